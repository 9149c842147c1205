"""Spikes of the gradient, counted in training records. Loads without torch."""

from collections.abc import Sequence

import numpy as np

SPIKE = 10.0
"""A gradient norm this many times the median of the records is a spike."""


def spikes(grad_norms: Sequence[float]) -> int:
    """How many of these gradient norms are above SPIKE times their median."""
    return int((np.array(grad_norms) > SPIKE * np.median(grad_norms)).sum()) if len(grad_norms) else 0

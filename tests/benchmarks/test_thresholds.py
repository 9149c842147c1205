"""The benchmark of the threshold search, on a small trace."""

import numpy as np
import pytest

from benchmarks.thresholds import drawn_traces, figures, plain_figures
from par.evaluation.thresholds import Grid


def test_both_ways_agree_on_a_trace_that_tells_rules_apart():
    """Product and reference have the same figures, and a hundred rules have figures of their own."""
    traces, grid = drawn_traces(128, 80), Grid.every((0.2, 0.5, 0.8), 32)
    found = figures(traces, grid)
    assert found == pytest.approx(plain_figures(traces, grid))
    assert len(np.unique(np.reshape(found, (3, -1)), axis=1).T) > 100

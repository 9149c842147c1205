"""Chance as a pure function of (seed, step): no generator lives long enough to need saving."""

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Independent substreams of one seed, so that no setting of one shifts the draws of another.

    Examples have their own, in par.tasks.streams.
    """

    INITIALISATION = 0
    DEPTH = 1
    LENGTHS = 2
    BOXES = 3
    RESET = 4
    STRETCH = 5
    HALTING = 6


def generator(stream: Stream, seed: int, step: int = 0) -> np.random.Generator:
    """A fresh generator for one use; equal on every rank, and equal again after a resume."""
    return np.random.default_rng((int(stream), seed, step))


def integer_seed(stream: Stream, seed: int) -> int:
    """A seed in 0 … 2^32 − 1 for a library with a generator of its own."""
    return int(generator(stream, seed).integers(2**32))

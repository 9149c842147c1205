"""What every statistic asks of its seeds, and what it answers where they do not suffice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from par.errors import DataError

CONFIDENCE = 0.95
"""Coverage that an interval aims at, two-sided."""
RESAMPLES = 9999
"""Resamples of a bootstrap; permutations of a test, which is exact where there are no more than these."""


@dataclass(frozen=True, slots=True)
class TooFew:
    """The answer where a statistic would say more than its seeds do: how many there are, and how many it needs."""

    n: int
    needed: int
    of: str = "seeds"

    def __str__(self) -> str:
        return f"too few {self.of} to say ({self.n}, needs {self.needed})"


@dataclass(frozen=True, slots=True)
class Degenerate:
    """The answer where a statistic is undefined for these seeds, however many they are."""

    reason: str

    def __str__(self) -> str:
        return f"undefined: {self.reason}"


class Interval(NamedTuple):
    """The ends of a confidence interval, in the unit of what it bounds."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"[{self.low:.2f}, {self.high:.2f}]"


class Significance(NamedTuple):
    """What a test found: its statistic, and the probability of one at least as extreme under the null hypothesis."""

    statistic: float
    p: float


def checked(values: Sequence[float]) -> list[float]:
    """Return the values as floats, one per seed. Raises DataError for no value or one that is not finite."""
    if len(values) == 0 or not all(map(math.isfinite, values)):
        raise DataError(f"values={list(values)} must be finite numbers, one per seed: enter a failed seed as 0")
    return [float(value) for value in values]


def aligned(first: Sequence[object], second: Sequence[object]) -> None:
    """Raise DataError unless both have one entry per seed."""
    if len(first) != len(second):
        raise DataError(f"{len(first)} values against {len(second)}: give one of each per seed, in the same order")


def moments(values: Sequence[float]) -> tuple[int, float, float]:
    """Return count, mean and sum of squared distances from the mean. Raises DataError as ``checked``."""
    seeds = checked(values)
    mean = math.fsum(seeds) / len(seeds)
    return len(seeds), mean, math.fsum((value - mean) ** 2 for value in seeds)

"""How many seeds reach a threshold of G, and how good those are that do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from par.statistics.seeds import CONFIDENCE, TooFew, checked

SUCCESS = 2.0
"""G from which a seed counts as a success."""
THRESHOLDS = (2.0, 4.0, 8.0, 16.0)
"""The values of G at which success rates are reported."""


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """How many of n seeds reached a threshold, and the ends of the exact interval of their share."""

    reached: int
    n: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Share of the seeds, in [0, 1]."""
        return self.reached / self.n

    def __str__(self) -> str:
        return f"{self.reached}/{self.n} [{self.low:.2f}, {self.high:.2f}]"


class ProfilePoint(NamedTuple):
    """One point of a performance profile: the share of seeds with at least this G."""

    G: float
    success: SuccessRate


def success_rate(Gs: Sequence[float], threshold: float) -> SuccessRate:
    """Share of seeds with G >= threshold, and its exact interval at CONFIDENCE.

    Raises DataError for no seed or a G that is not finite. Source: Clopper & Pearson 1934, Biometrika 26.
    """
    from scipy.special import betaincinv

    seeds = checked(Gs)
    n, reached, tail = len(seeds), sum(value >= threshold for value in seeds), (1 - CONFIDENCE) / 2
    low = float(betaincinv(reached, n - reached + 1, tail)) if reached else 0.0
    high = float(betaincinv(reached + 1, n - reached, 1 - tail)) if reached < n else 1.0
    return SuccessRate(reached, n, low, high)


def performance_profile(Gs: Sequence[float], levels: Sequence[float] | None = None) -> tuple[ProfilePoint, ...]:
    """P(G >= g) at each level, ascending; by default at every G that occurs, where the profile steps down.

    The intervals are exact at each point, not for the curve as a whole. A censored seed counts up to its bound: beyond
    the smallest one the profile is itself a lower bound. Raises DataError as ``success_rate``. Source: Dolan & Moré
    2002, Math. Program. 91; over seeds, Agarwal et al. 2021, NeurIPS.
    """
    at = sorted(set(checked(Gs if levels is None else levels)))
    return tuple(ProfilePoint(level, success_rate(Gs, level)) for level in at)


def success_conditional_mean(Gs: Sequence[float], threshold: float = SUCCESS) -> float | TooFew:
    """Mean G of the seeds with G >= threshold: how good a success is, whatever its probability.

    The mean of all seeds mixes both questions. A censored seed counts with its bound. Without a success the answer is
    TooFew. Raises DataError for no seed or a G that is not finite. Source: the two-part model of a semicontinuous
    outcome (Duan et al. 1983, J. Bus. Econ. Stat. 1).
    """
    reached = [value for value in checked(Gs) if value >= threshold]
    return math.fsum(reached) / len(reached) if reached else TooFew(0, 1, of="successful seeds")

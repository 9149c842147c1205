"""Numbers over the seeds of one configuration. A failed seed enters every one of them as G = 0, or a score of 0."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from par.errors import DataError

SUCCESS = 2.0
"""G from which a seed counts as a success."""
PRIOR_SPREAD = 0.25
"""Spread of scores in [0, 1] that is assumed before any seed has run."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Seeds in short. ``sd`` has ddof = 1 and is None for one seed, which has no spread."""

    n: int
    mean: float
    sd: float | None
    worst: float


class SuccessRate(NamedTuple):
    """Share of seeds that reached a threshold, with the ends of its exact interval."""

    rate: float
    low: float
    high: float


def lower_bound(scores: Sequence[float]) -> float:
    """Lower confidence bound of the mean score: the mean less one standard error.

    The variance counts one pseudo-observation at the distance PRIOR_SPREAD from the mean, so that the bound exists for
    one seed, where it is mean - 0.25, and a lucky seed alone ranks below several good ones:

        mean - sqrt((PRIOR_SPREAD^2 + sum((x - mean)^2)) / n) / sqrt(n)

    It may be negative. Raises DataError for no score or one that is not finite.
    """
    n, mean, squares = _moments(scores)
    return mean - math.sqrt((PRIOR_SPREAD**2 + squares) / n) / math.sqrt(n)


def success_rate(Gs: Sequence[float], threshold: float, *, confidence: float = 0.95) -> SuccessRate:
    """Share of seeds with G >= threshold, and its exact (Clopper-Pearson) interval at ``confidence``.

    Raises DataError for no seed or a G that is not finite.
    """
    from scipy.stats import binomtest

    n, _, _ = _moments(Gs)
    reached = sum(value >= threshold for value in Gs)
    interval = binomtest(reached, n).proportion_ci(confidence, method="exact")
    return SuccessRate(reached / n, float(interval.low), float(interval.high))


def summary(Gs: Sequence[float]) -> Summary:
    """Count, mean, sd and worst seed. Raises DataError for no seed or a G that is not finite."""
    n, mean, squares = _moments(Gs)
    return Summary(n=n, mean=mean, sd=math.sqrt(squares / (n - 1)) if n > 1 else None, worst=float(min(Gs)))


def _moments(values: Sequence[float]) -> tuple[int, float, float]:
    """Return count, mean and sum of squared distances from the mean."""
    if not values or not all(map(math.isfinite, values)):
        raise DataError(f"values={list(values)} must be finite numbers, one per seed: enter a failed seed as 0")
    mean = math.fsum(values) / len(values)
    return len(values), mean, math.fsum((value - mean) ** 2 for value in values)

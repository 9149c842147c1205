"""Where the seeds lie: mean, worst, median, and an interval of the mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from par.statistics.seeds import CONFIDENCE, RESAMPLES, Interval, TooFew, aligned, checked, moments

INTERVAL_SEEDS = 4
"""Seeds from which a bootstrap interval says more than their range.

Of n seeds all draws hit the worst one with probability n^-n: above 2.5 %, an end of the interval, up to n = 3.
"""
IQM_SEEDS = 4
"""Seeds from which a quarter at each end is at least one seed."""
ROUNDING = 1e-9
"""How far above one half a product of shares may end that is one half."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Seeds in short. ``sd`` has ddof = 1 and is None for one seed, which has no spread."""

    n: int
    mean: float
    sd: float | None
    worst: float


def summary(Gs: Sequence[float]) -> Summary:
    """Count, mean, sd and worst seed. Raises DataError for no seed or a G that is not finite."""
    n, mean, squares = moments(Gs)
    return Summary(n=n, mean=mean, sd=math.sqrt(squares / (n - 1)) if n > 1 else None, worst=float(min(Gs)))


def mean_interval(Gs: Sequence[float]) -> Interval | TooFew:
    """Percentile bootstrap interval of the mean over seeds, in units of G. The same seeds give the same
    interval.

    It is short for few seeds: of normal seeds it covers the mean in about 84 % of cases at n = 5 and 90 % at n = 10.
    Where all seeds agree it has no width: no spread was seen, which does not prove that there is none. TooFew below
    INTERVAL_SEEDS. Raises DataError for no seed or a G that is not finite. Source: Efron & Tibshirani 1993, An
    Introduction to the Bootstrap, ch. 13.
    """
    seeds = checked(Gs)
    if len(seeds) < INTERVAL_SEEDS:
        return TooFew(len(seeds), INTERVAL_SEEDS)
    return bootstrap_mean(seeds)


def bootstrap_mean(values: Sequence[float] | np.ndarray) -> Interval:
    """Percentile bootstrap interval of the mean of at least two finite values, in whatever order they come."""
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.sort(values),), np.mean, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return Interval(float(found.low), float(found.high))


def interquartile_mean(Gs: Sequence[float]) -> float | TooFew:
    """Mean of the seeds without the lowest and the highest quarter, each rounded down to whole seeds.

    A companion of the worst seed and the success rate, never alone: it leaves failed seeds out, up to a quarter. TooFew
    below IQM_SEEDS. Raises DataError for no seed or a G that is not finite. Source: Agarwal et al. 2021, NeurIPS.
    """
    seeds = sorted(checked(Gs))
    if len(seeds) < IQM_SEEDS:
        return TooFew(len(seeds), IQM_SEEDS)
    trimmed = len(seeds) // 4
    middle = seeds[trimmed : len(seeds) - trimmed]
    return math.fsum(middle) / len(middle)


def censored_share(censored: Sequence[bool]) -> float:
    """Share of the seeds whose G is a lower bound, in [0, 1]. Raises DataError for no seed."""
    flags = checked(censored)
    return sum(flags) / len(flags)


def median_G(Gs: Sequence[float], censored: Sequence[bool]) -> float | None:
    """Kaplan-Meier median: the least G beyond which at most half of the seeds get; None where it is not reached.

    A seed that is censored at some G counts as getting beyond it; a failed one fails at 0. It assumes that the tested
    depths do not depend on how the seed does. Raises DataError for no seed, a G that is not finite, or flags of another
    number. Source: Kaplan & Meier 1958, J. Am. Stat. Assoc. 53.
    """
    from scipy.stats import CensoredData, ecdf

    seeds = checked(Gs)
    aligned(seeds, censored)
    data = CensoredData(
        uncensored=[G for G, bound in zip(seeds, censored, strict=True) if not bound],
        right=[G for G, bound in zip(seeds, censored, strict=True) if bound],
    )
    survival = ecdf(data).sf
    reached = survival.quantiles[survival.probabilities <= 0.5 + ROUNDING]
    return float(reached[0]) if len(reached) else None

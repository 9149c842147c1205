"""One group of seeds: mean, worst, median, an interval of the mean, and all of it, worst first, for a report."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from par.statistics.seeds import CONFIDENCE, RESAMPLES, Interval, TooFew, aligned, checked, moments
from par.statistics.success import SUCCESS, THRESHOLDS, ProfilePoint, performance_profile, success_conditional_mean

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


@dataclass(frozen=True, slots=True)
class Description:
    """A group of seeds, in units of G; the shares lie in [0, 1]. ``median`` is None where it is not reached."""

    n: int
    worst: float
    success: tuple[ProfilePoint, ...]
    conditional_mean: float | TooFew
    mean: float
    interval: Interval | TooFew
    sd: float | TooFew
    censored: float
    median: float | None
    iqm: float | TooFew

    def __str__(self) -> str:
        """Lines of text. The IQM comes last: it leaves failed seeds out, so nobody should read it first."""
        return "\n".join(
            [
                f"seeds: {self.n}, the worst at G = {self.worst:.2f}",
                *(f"G ≥ {level:g}: {success}" for level, success in self.success),
                f"mean of those with G ≥ {SUCCESS:g}: {_shown(self.conditional_mean)}",
                f"mean {self.mean:.2f} {self.interval}, sd {_shown(self.sd)}",
                f"censored {self.censored:.0%}, median {'not reached' if self.median is None else _shown(self.median)}",
                f"IQM {_shown(self.iqm)}",
            ]
        )


def describe(Gs: Sequence[float], censored: Sequence[bool]) -> Description:
    """Every number on one group of seeds, TooFew where they do not suffice for it.

    Raises DataError for no seed, a G that is not finite, or flags of another number.
    """
    short = summary(Gs)
    return Description(
        n=short.n,
        worst=short.worst,
        success=performance_profile(Gs, THRESHOLDS),
        conditional_mean=success_conditional_mean(Gs),
        mean=short.mean,
        interval=mean_interval(Gs),
        sd=TooFew(short.n, 2) if short.sd is None else short.sd,
        median=median_G(Gs, censored),
        censored=censored_share(censored),
        iqm=interquartile_mean(Gs),
    )


def _shown(value: float | TooFew) -> str:
    return str(value) if isinstance(value, TooFew) else f"{value:.2f}"

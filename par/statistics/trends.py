"""What success goes along with: the size of the backbone, and what was seen early in training."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from par.errors import DataError
from par.statistics.seeds import CONFIDENCE, RESAMPLES, Degenerate, Significance, TooFew, aligned, checked
from par.statistics.success import SUCCESS

TREND_SEEDS = 6
"""Seeds from which a trend is fitted: 5 have p = 0.05 at best, where size separates success from failure."""
SIGNAL_SEEDS = 5
"""Seeds from which ranks are correlated: perfect agreement of 4 has p = 2/24."""
SAME_SIZE = 1e-9
"""Spread, in powers of ten, below which sizes are one."""
GRID = 129
"""Intercepts that are tried before the best one is refined."""
SPIKE = 10.0
"""A gradient norm this many times the median of the records is a spike."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Change of the log odds of success per tenfold parameters, its interval, and p of no change."""

    slope: float
    low: float
    high: float
    p: float


def success_trend(parameters: Sequence[float], Gs: Sequence[float], threshold: float = SUCCESS) -> Trend | TooFew:
    """Logistic trend of success, G >= threshold, against log10 of the number of parameters, one entry per seed.

    Firth's penalty keeps the slope finite where size separates success from failure; p is that of the penalised
    likelihood ratio, the interval that of the penalised profile likelihood. Seeds are taken as independent given the
    size, so it speaks about these backbones, not about size as such. TooFew below TREND_SEEDS seeds or 2 sizes. Raises
    DataError for no seed, a number that is not finite, sizes that are not positive, or lists of unequal length. Source:
    Firth 1993, Biometrika 80; Heinze & Schemper 2002, Stat. Med. 21.
    """
    from scipy.stats import chi2

    sizes, seeds = checked(parameters), checked(Gs)
    aligned(sizes, seeds)
    if min(sizes) <= 0:
        raise DataError(f"parameters={sizes} must be positive: their logarithm is taken")
    if len(seeds) < TREND_SEEDS:
        return TooFew(len(seeds), TREND_SEEDS)
    decades = np.log10(sizes)
    unit = float(decades.std())
    if unit < SAME_SIZE:
        return TooFew(1, 2, of="sizes")
    profile = _profile((decades - decades.mean()) / unit, np.asarray(seeds) >= threshold)
    slope, top = _highest(profile)
    drop = top - float(chi2.ppf(CONFIDENCE, 1)) / 2
    low, high = (_crossing(profile, slope, drop, side) / unit for side in (-1, 1))
    return Trend(slope / unit, low, high, float(chi2.sf(max(0.0, 2 * (top - profile(0.0))), 1)))


def early_signal(signals: Sequence[float], outcomes: Sequence[float]) -> Significance | TooFew | Degenerate:
    """Spearman's rank correlation of a signal early in training with the outcome: final G, or success as 0/1.

    The statistic is rho, with ties at their mean rank. p is two-sided, over all pairings up to RESAMPLES of them, else
    over as many at random, always the same. Degenerate where all signals, or all outcomes, are equal. TooFew below
    SIGNAL_SEEDS. Raises DataError for no seed, a number that is not finite, or lists of unequal length. Source:
    Spearman 1904, Am. J. Psychol. 15; the permutation p, Pitman 1937, Suppl. J. R. Stat. Soc. 4.
    """
    from scipy.stats import permutation_test, rankdata

    aligned(signals, outcomes)
    pairs = sorted(zip(checked(signals), checked(outcomes), strict=True))
    if len(pairs) < SIGNAL_SEEDS:
        return TooFew(len(pairs), SIGNAL_SEEDS)
    columns = np.transpose(pairs)
    for name, values in zip(("signals", "outcomes"), columns, strict=True):
        if np.ptp(values) == 0:
            return Degenerate(f"all {name} are equal")
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in columns]
    early, final = (centred / np.linalg.norm(centred) for centred in ranks)
    found = permutation_test(
        (early,), lambda permuted, axis: np.sum(permuted * final, axis=axis), permutation_type="pairings",
        vectorized=True, n_resamples=RESAMPLES, rng=np.random.default_rng(0),
    )  # fmt: skip
    return Significance(float(np.clip(found.statistic, -1, 1)), float(found.pvalue))


def spikes(grad_norms: Sequence[float]) -> int:
    """How many of these gradient norms are above SPIKE times their median."""
    return int((np.array(grad_norms) > SPIKE * np.median(grad_norms)).sum()) if len(grad_norms) else 0


def _profile(z_N: np.ndarray, success_N: np.ndarray) -> Callable[[float], float]:
    """The penalised log likelihood as a function of the slope, at the best intercept."""
    from scipy.optimize import minimize_scalar

    def loss(intercepts: np.ndarray | float, slope: float) -> np.ndarray:
        logits = np.asarray(intercepts)[..., None] + slope * z_N
        likelihood = -np.logaddexp(0, np.where(success_N, -logits, logits)).sum(axis=-1)
        return -likelihood - 0.5 * np.log(np.maximum(_information(logits, z_N), sys.float_info.min))

    def profile(slope: float) -> float:
        reach = np.abs(slope * z_N).max() + math.log(2 * len(z_N) + 1) + 1
        grid = np.linspace(-reach, reach, GRID)
        best = int(np.argmin(loss(grid, slope)))
        ends = grid[max(0, best - 1)], grid[min(GRID - 1, best + 1)]
        found: Any = minimize_scalar(loss, bounds=ends, args=(slope,), method="bounded", options={"xatol": 1e-9})
        return -float(found.fun)

    return profile


def _information(logits: np.ndarray, z_N: np.ndarray) -> np.ndarray:
    """Determinant of the Fisher information of intercept and slope."""
    from scipy.special import expit

    weights = expit(logits) * expit(-logits)
    total = np.maximum(weights.sum(axis=-1), sys.float_info.min)
    centre = (weights * z_N).sum(axis=-1) / total
    return total * (weights * (z_N - centre[..., None]) ** 2).sum(axis=-1)


def _highest(profile: Callable[[float], float]) -> tuple[float, float]:
    """Where the profile is highest, and how high."""
    from scipy.optimize import minimize_scalar

    found: Any = minimize_scalar(lambda slope: -profile(slope), bracket=(-1.0, 1.0))
    return float(found.x), -float(found.fun)


def _crossing(profile: Callable[[float], float], slope: float, height: float, side: int) -> float:
    """Where the profile falls to a height on one side of its maximum."""
    from scipy.optimize import brentq

    step = 1.0
    while profile(slope + side * step) > height:
        step *= 2
    crossing: Any = brentq(lambda at: profile(at) - height, slope, slope + side * step)
    return float(crossing)

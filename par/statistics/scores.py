"""The score of a configuration, by which the search ranks, and what the chosen one of several is worth."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from statistics import fmean

from par import metrics as m
from par.errors import DataError
from par.statistics.seeds import checked, moments

PRIOR_SPREAD = 0.25
"""Spread of scores in [0, 1] that is assumed before any seed has run."""
REACH = {m.G.name: 16.0}
"""How far a metric reaches that is not a share: the prior spread is in proportion to it."""
FEWEST_FRESH = 2
"""Seeds at least: one half chooses the configuration that the other one judges."""
SPLITS = 1000
"""Most ways of halving the seeds that are averaged over; of more, as many at random."""


def lower_bound(scores: Sequence[float], metric: str = "") -> float:
    """Lower confidence bound of the mean score: the mean less one standard error.

    The variance counts one pseudo-observation at the distance PRIOR_SPREAD from the mean (times the REACH of the
    ``metric``, 1 for a share), so that the bound exists for one seed, where it is mean - 0.25, and a lucky seed alone
    ranks below several good ones:

        mean - sqrt((PRIOR_SPREAD^2 + sum((x - mean)^2)) / n) / sqrt(n)

    It may be negative. Raises DataError for no score or one that is not finite. Source: ours; the pseudo-observation is
    that of a scaled inverse chi-squared prior (Gelman et al. 2013, Bayesian Data Analysis, §2.6).
    """
    n, mean, squares = moments(scores)
    prior = PRIOR_SPREAD * REACH.get(metric, 1.0)
    return mean - math.sqrt((prior**2 + squares) / n) / math.sqrt(n)


@dataclass(frozen=True, slots=True)
class Selection:
    """The configuration with the best lower bound, and an estimate of its mean score that choosing does not flatter."""

    name: str
    score: float


def selected(scores: Mapping[str, Sequence[float]], metric: str = "") -> Selection:
    """Choose among configurations by the lower bound of their scores over seeds, all of which had no part before.

    The mean of the chosen one is too high, as luck had a part in the choice. So one half of the seeds chooses, the mean
    of the choice over the other half counts, and that is averaged over all ways of halving them. What comes out is, on
    average over sweeps, the true mean score of what half of the seeds would have chosen, a little below that of what
    all of them choose. Seeds are paired: the n-th one is the same for all configurations.

    Scores are those of the seeds by ``metric``, a failed one 0. Source: repeated split-half cross-validation (Burman
    1989, "A Comparative Study of Ordinary Cross-Validation, v-Fold Cross-Validation and the Repeated Learning-Testing
    Methods"). Raises DataError for no configuration, for different numbers of seeds, for fewer than two, and for a
    score that is not finite.
    """
    counts = {len(checked(seeds)) for seeds in scores.values()}
    if len(counts) != 1 or min(counts) < FEWEST_FRESH:
        raise DataError(f"fresh seeds={sorted(counts)}: give each configuration the same ones, at least {FEWEST_FRESH}")
    [count] = counts

    def best(seeds: Sequence[int]) -> str:
        """The first one with the best bound over these seeds."""
        return max(scores, key=lambda name: lower_bound([scores[name][seed] for seed in seeds], metric))

    judged = [fmean(scores[best(chosen)][seed] for seed in set(range(count)) - set(chosen)) for chosen in halves(count)]
    return Selection(best(range(count)), fmean(judged))


def halves(count: int) -> list[tuple[int, ...]]:
    """The ways of taking half of the seeds, the smaller part of an odd number; at most SPLITS, always the same."""
    if comb(count, count // 2) <= SPLITS:
        return list(combinations(range(count), count // 2))
    drawn = random.Random(0)
    return [tuple(sorted(drawn.sample(range(count), count // 2))) for _ in range(SPLITS)]

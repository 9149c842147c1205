"""The score of a configuration: one number over its seeds, by which the search ranks."""

import math
from collections.abc import Sequence

from par.study.statistics.seeds import moments

PRIOR_SPREAD = 0.25
"""Spread of scores in [0, 1] that is assumed before any seed has run."""


def lower_bound(scores: Sequence[float]) -> float:
    """Lower confidence bound of the mean score: the mean less one standard error.

    The variance counts one pseudo-observation at the distance PRIOR_SPREAD from the mean, so that the bound exists for
    one seed, where it is mean - 0.25, and a lucky seed alone ranks below several good ones:

        mean - sqrt((PRIOR_SPREAD^2 + sum((x - mean)^2)) / n) / sqrt(n)

    It may be negative. Raises DataError for no score or one that is not finite. Source: ours; the pseudo-observation is
    that of a scaled inverse chi-squared prior (Gelman et al. 2013, Bayesian Data Analysis, §2.6).
    """
    n, mean, squares = moments(scores)
    return mean - math.sqrt((PRIOR_SPREAD**2 + squares) / n) / math.sqrt(n)

"""The score of a configuration: one number over its seeds, by which the search ranks."""

import math
from collections.abc import Sequence

from par import metrics as m
from par.statistics.seeds import moments

PRIOR_SPREAD = 0.25
"""Spread of scores in [0, 1] that is assumed before any seed has run."""


REACH = {m.G.name: 16.0}
"""How far a metric reaches that is not a share: the prior spread is in proportion to it."""


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

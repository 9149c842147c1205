"""Groups of seeds against each other: success rates, spread, and which of two seeds is likely to be better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from par.errors import DataError
from par.statistics.description import INTERVAL_SEEDS, bootstrap_mean
from par.statistics.seeds import CONFIDENCE, RESAMPLES, Degenerate, Interval, Significance, TooFew, checked
from par.statistics.spread import brown_forsythe, spread_difference
from par.statistics.success import SUCCESS

COMPARED_SEEDS = 3
"""Seeds of each group from which success rates are compared: all of 2 against none of 2 has p = 0.125."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """Probability that a seed of the first group beats one of the second, ties counted half, and its interval."""

    probability: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.probability:.2f} {Interval(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class Paired:
    """Two groups on the seeds that both have, and the seeds that only one of them has."""

    seeds: tuple[int, ...]
    improvement: Improvement | TooFew
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]

    def __str__(self) -> str:
        alone = [
            f"only in the {side}: seeds {', '.join(map(str, seeds))}"
            for side, seeds in (("first", self.only_first), ("second", self.only_second))
            if seeds
        ]
        return "; ".join([f"on {len(self.seeds)} shared seeds: {self.improvement}", *alone])


def success_difference(
    first: Sequence[float], second: Sequence[float], threshold: float = SUCCESS
) -> Significance | TooFew:
    """Exact two-sided test whether two groups of seeds reach G >= threshold equally often.

    Unconditional, as the number of seeds of each group is fixed and that of successes is not, and more powerful than
    Fisher's test, whose smaller one-sided p is the statistic; p doubles the smaller one-sided one. TooFew below
    COMPARED_SEEDS in a group. Raises DataError for no seed or a G that is not finite. Source: Boschloo 1970, Stat.
    Neerl. 24.
    """
    from scipy.stats import boschloo_exact

    groups = checked(first), checked(second)
    if (fewest := min(map(len, groups))) < COMPARED_SEEDS:
        return TooFew(fewest, COMPARED_SEEDS)
    reached = [sum(value >= threshold for value in group) for group in groups]
    missed = [len(group) - count for group, count in zip(groups, reached, strict=True)]
    if sum(reached) == 0 or sum(missed) == 0:
        return Significance(1.0, 1.0)
    found = boschloo_exact([reached, missed])
    return Significance(float(found.statistic), min(1.0, float(found.pvalue)))


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """Adjust the p-values of a family of tests, in their order, so that any false rejection has the level of one test.

    The i-th smallest of m is multiplied by m - i + 1; none gets below a smaller one, or above 1. Raises DataError for a
    p outside [0, 1]. Source: Holm 1979, Scand. J. Stat. 6.
    """
    if not all(0 <= p <= 1 for p in ps):
        raise DataError(f"ps={list(ps)} must be probabilities, in [0, 1]")
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = highest
    return tuple(adjusted)


def probability_of_improvement(first: Sequence[float], second: Sequence[float]) -> Improvement | TooFew:
    """P(X > Y) + P(X = Y) / 2 for seeds X of the first group and Y of the second, with a percentile bootstrap interval.

    Both groups are resampled. Where every pair has one outcome a bootstrap has no width, so the interval is the exact
    one of as many disjoint pairs. TooFew below INTERVAL_SEEDS in a group. Raises DataError for no seed or a G that is
    not finite. Source: Agarwal et al. 2021, NeurIPS; Vargha & Delaney 2000, J. Educ. Behav. Stat. 25.
    """
    from scipy.stats import bootstrap

    xs, ys = np.sort(checked(first)), np.sort(checked(second))
    if (fewest := min(len(xs), len(ys))) < INTERVAL_SEEDS:
        return TooFew(fewest, INTERVAL_SEEDS)
    outcomes = _outcomes(xs[:, None], ys)
    if np.ptp(outcomes) == 0:
        return _unanimous(float(outcomes[0, 0]), fewest)

    def improvement(rows: np.ndarray, columns: np.ndarray, axis: int) -> np.ndarray:
        return outcomes[rows[..., :, None], columns[..., None, :]].mean(axis=(-2, -1))

    found = bootstrap(
        (np.arange(len(xs)), np.arange(len(ys))), improvement, n_resamples=RESAMPLES, vectorized=True, batch=1000,
        confidence_level=CONFIDENCE, method="percentile", rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return Improvement(float(outcomes.mean()), float(found.low), float(found.high))


def paired_improvement(first: Mapping[int, float], second: Mapping[int, float]) -> Paired:
    """Probability that the first group beats the second on one seed, by seed number: what the seeds share cancels.

    Ties count half; the percentile bootstrap resamples the shared seeds. Seeds of one group alone enter no number and
    are listed. The improvement is TooFew below INTERVAL_SEEDS shared ones. Raises DataError for a group without a seed
    or a G that is not finite. Source: as ``probability_of_improvement``; pairing as in Fisher 1935, The Design of
    Experiments.
    """
    checked(list(first.values()))
    checked(list(second.values()))
    shared = tuple(sorted(first.keys() & second.keys()))
    return Paired(
        seeds=shared,
        improvement=_on_pairs([first[seed] for seed in shared], [second[seed] for seed in shared]),
        only_first=tuple(sorted(first.keys() - second.keys())),
        only_second=tuple(sorted(second.keys() - first.keys())),
    )


def _on_pairs(xs: Sequence[float], ys: Sequence[float]) -> Improvement | TooFew:
    if len(xs) < INTERVAL_SEEDS:
        return TooFew(len(xs), INTERVAL_SEEDS)
    outcomes = _outcomes(np.asarray(xs), np.asarray(ys))
    if np.ptp(outcomes) == 0:
        return _unanimous(float(outcomes[0]), len(xs))
    return Improvement(float(outcomes.mean()), *bootstrap_mean(outcomes))


def _outcomes(xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """1 where x is above y, 1/2 where they are equal, 0 below."""
    return (np.sign(xs - ys) + 1) / 2


def _unanimous(outcome: float, pairs: int) -> Improvement:
    """The interval after n independent pairs with one outcome: its share is at least ((1 - CONFIDENCE) / 2)^(1/n).

    The rest may be wins or losses. Source: Clopper & Pearson 1934, Biometrika 26.
    """
    share = ((1 - CONFIDENCE) / 2) ** (1 / pairs)
    return Improvement(outcome, share * outcome, 1 - share * (1 - outcome))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two groups: a test of their success rates and one of their spreads.

    The ``adjusted`` p-values are Holm's over all pairs that were tested, or None where the seeds were too few.
    """

    first: str
    second: str
    success: Significance | TooFew
    success_adjusted: float | None
    spread: Significance | TooFew
    spread_adjusted: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every pair of groups, and a test whether all of them have equal spread."""

    pairs: tuple[Pair, ...]
    spread: Significance | TooFew | Degenerate


def compare_groups(groups: Mapping[str, Sequence[float]], threshold: float = SUCCESS) -> Comparison:
    """Compare G between groups of seeds, e.g. backbones: success rates in pairs, spread in pairs and overall.

    Success is G >= threshold. Success rates and spreads are two families of tests, each adjusted by itself. Raises
    DataError for a group without a seed or a G that is not finite. Source: the tests', and ``holm``.
    """
    names = list(combinations(groups, 2))
    success = [success_difference(groups[one], groups[other], threshold) for one, other in names]
    spread = [spread_difference(groups[one], groups[other]) for one, other in names]
    columns = zip(names, success, _adjusted(success), spread, _adjusted(spread), strict=True)
    pairs = tuple(
        Pair(one, other, of_success, success_p, of_spread, spread_p)
        for (one, other), of_success, success_p, of_spread, spread_p in columns
    )
    return Comparison(pairs, brown_forsythe(list(groups.values())))


def _adjusted(tests: Sequence[Significance | TooFew]) -> list[float | None]:
    """The p-values of the tests that could be made, adjusted as one family."""
    adjusted = iter(holm([test.p for test in tests if isinstance(test, Significance)]))
    return [next(adjusted) if isinstance(test, Significance) else None for test in tests]

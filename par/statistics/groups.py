"""Several groups of seeds against each other, each pair once, with what that many tests cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from par.statistics.comparison import holm, success_difference
from par.statistics.seeds import Degenerate, Significance, TooFew
from par.statistics.spread import brown_forsythe, spread_difference
from par.statistics.success import SUCCESS


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

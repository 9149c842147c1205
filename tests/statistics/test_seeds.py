import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.errors import DataError
from par.statistics import seeds
from par.statistics.comparison import (
    Improvement,
    compare_groups,
    holm,
    paired_improvement,
    probability_of_improvement,
    success_difference,
)
from par.statistics.description import (
    Description,
    censored_share,
    describe,
    interquartile_mean,
    mean_interval,
    median_G,
    summary,
)
from par.statistics.scores import lower_bound
from par.statistics.seeds import TooFew
from par.statistics.spread import brown_forsythe, dip_test, spread_difference, variance_split
from par.statistics.success import performance_profile, success_conditional_mean, success_rate
from par.statistics.trends import early_signal, success_trend

OF_ONE_GROUP = {
    "lower_bound": lower_bound,
    "summary": summary,
    "mean_interval": mean_interval,
    "interquartile_mean": interquartile_mean,
    "success_rate": lambda Gs: success_rate(Gs, 8),
    "performance_profile": performance_profile,
    "success_conditional_mean": success_conditional_mean,
    "dip_test": dip_test,
    "median_G": lambda Gs: median_G(Gs, [False] * len(Gs)),
    "describe": lambda Gs: describe(Gs, [False] * len(Gs)),
}
OF_TWO_GROUPS = {
    "success_difference": success_difference,
    "spread_difference": spread_difference,
    "brown_forsythe": lambda one, other: brown_forsythe([one, other]),
    "probability_of_improvement": probability_of_improvement,
    "paired_improvement": lambda one, other: paired_improvement(dict(enumerate(one)), dict(enumerate(other))),
    "compare_groups": lambda one, other: compare_groups({"one": one, "other": other}),
}
TOGETHER = {
    "success_trend": lambda Gs: success_trend([10.0**i for i in range(len(Gs))], Gs),
    "early_signal": lambda Gs: early_signal(range(len(Gs)), Gs),
    "variance_split": lambda Gs: variance_split([G / 32 for G in Gs], [1024] * len(Gs)),
}
ALL = {**OF_ONE_GROUP, **{name: lambda Gs, f=f: f([1.0] * 6, Gs) for name, f in OF_TWO_GROUPS.items()}, **TOGETHER}

factors = st.lists(st.sampled_from([0.0, 0.46, 1.8, 2.0, 7.3, 16.0]) | st.floats(0, 32), min_size=1, max_size=12)


def numbers(found) -> list[float]:
    """Every number in a result, however deep."""
    match found:
        case float() | int():
            return [found]
        case tuple() | list():
            return [number for part in found for number in numbers(part)]
        case str() | None:
            return []
    return [number for name in found.__slots__ for number in numbers(getattr(found, name))]


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
@pytest.mark.parametrize("name", ALL)
def test_missing_and_non_finite_seeds_are_refused(name, values):
    """No number is computed from nothing, or from a seed that is not a number."""
    with pytest.raises(DataError, match="enter a failed seed as 0"):
        ALL[name](values)


@pytest.mark.parametrize("n", [1, 4, 6, 12])
@pytest.mark.parametrize("name", ALL)
def test_agreeing_seeds_have_an_answer(name, n):
    """Seeds that all agree, failed ones too, warn of nothing, and every number said about them is finite."""
    for value in (0.0, 0.1, 16.0):
        assert all(map(math.isfinite, numbers(ALL[name]([value] * n))))


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=15)
@given(Gs=factors)
def test_any_seeds_have_an_answer_that_their_order_does_not_change(name, Gs):
    """Of any finite seeds every number is finite, and the same in another order where seeds stand for themselves."""
    found = ALL[name](Gs)
    assert all(map(math.isfinite, numbers(found)))
    if name not in TOGETHER and name != "paired_improvement":
        assert ALL[name](Gs[::-1]) == found


@pytest.mark.parametrize(
    ("found", "needed"),
    [
        (lambda n: mean_interval([1.0, 2, 3, 4][:n]), 4),
        (lambda n: interquartile_mean([1.0, 2, 3, 4][:n]), 4),
        (lambda n: dip_test(([0.0, 16] * 5)[:n]), 10),
        (lambda n: success_difference([16.0] * n, [0.0] * 9), 3),
        (lambda n: probability_of_improvement([16.0] * n, [0.0] * 9), 4),
        (lambda n: spread_difference([16.0, 0, 3, 1, 2][:n], [0.0] * 9), 5),
        (lambda n: brown_forsythe([[16.0, 0, 3, 1, 2][:n], [0.0] * 9]), 5),
        (lambda n: success_trend([10.0**i for i in range(n)], [0.0] * n), 6),
        (lambda n: early_signal(range(n), range(n)), 5),
        (lambda n: variance_split([0.5] * n, [9] * n), 2),
    ],
)  # fmt: skip
def test_each_statistic_says_what_it_needs(found, needed):
    """One seed below its need a statistic answers with both numbers, in words; with as many as it needs, it speaks."""
    few = found(needed - 1)
    assert few == TooFew(needed - 1, needed)
    assert str(few) == f"too few seeds to say ({needed - 1}, needs {needed})"
    assert not isinstance(found(needed), TooFew)


def test_the_package_loads_without_its_libraries():
    """All of its modules together load neither scipy nor diptest nor torch: who only reads a ledger does not wait."""
    folder = Path(seeds.__file__).parent
    modules = ", ".join(f"par.statistics.{path.stem}" for path in folder.glob("[a-z]*.py"))
    script = f"import sys, {modules}; print(*({{'scipy', 'diptest', 'torch'}} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder.parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
    assert "par.statistics.trends" in modules


def test_lists_of_unequal_length_are_refused():
    """What belongs to one seed comes once for each: a missing flag, size, signal or count is an error."""
    for measure in (
        lambda: median_G([1.0, 2], [True]),
        lambda: describe([1.0, 2], [True]),
        lambda: success_trend([1e9], [1.0, 2]),
        lambda: early_signal([1.0], [1.0, 2]),
        lambda: variance_split([0.5], [9, 9]),
    ):
        with pytest.raises(DataError, match="one of each per seed"):
            measure()


def test_impossible_input_is_refused():
    """Shares above 1, single trials, sizes of 0, p above 1 and flags of nobody are errors that say so."""
    for measure, said in (
        (lambda: variance_split([1.5, 0.5], [9, 9]), r"shares lie in \[0, 1\]"),
        (lambda: variance_split([0.5, 0.5], [9, 1]), "at least 2 trials"),
        (lambda: success_trend([0.0] * 6, [1.0] * 6), "must be positive"),
        (lambda: holm([0.5, 1.5]), "must be probabilities"),
        (lambda: censored_share([]), "one per seed"),
    ):
        with pytest.raises(DataError, match=said):
            measure()


def test_results_are_of_the_promised_kind():
    """The walk over results above looks into them: it finds the numbers of a description and of an improvement."""
    found = describe([1.0] * 4, [True] * 4)
    assert isinstance(found, Description)
    assert len(numbers(found)) == 1 + 1 + 4 * 5 + 2 + 1 + 2 + 1 + 1 + 1
    assert numbers(Improvement(0.5, 0.25, 1.0)) == [0.5, 0.25, 1.0]

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, fisher_exact, mannwhitneyu

from par.statistics.comparison import (
    Improvement,
    holm,
    paired_improvement,
    probability_of_improvement,
    success_difference,
)
from par.statistics.seeds import TooFew
from tests.statistics.spoken import spoken

ps = st.lists(st.floats(0, 1), max_size=8)
group = st.lists(st.integers(0, 4).map(float), min_size=4, max_size=8)


def outcomes(reached: int, n: int) -> list[float]:
    """Seeds of which so many reach 16, and the others fail."""
    return [16.0] * reached + [0.0] * (n - reached)


def test_the_lady_tasting_tea():
    """Three of four against one of four: Fisher's one-sided p is 17/70; unconditionally it is less, and no finding."""
    found = spoken(success_difference(outcomes(3, 4), outcomes(1, 4)))
    assert found.statistic == pytest.approx(17 / 70)
    assert 0.05 < found.p < 2 * found.statistic


def test_the_textbook_vaccine():
    """7 of 15 against 12 of 15: one-sided 0.0341, where Fisher has 0.0641 (Mehta & Senchaudhuri 2003)."""
    found = spoken(success_difference(outcomes(7, 15), outcomes(12, 15)))
    assert found == pytest.approx((0.0641, 2 * 0.0341), abs=1e-4)


@settings(max_examples=30)
@given(st.integers(3, 9), st.integers(3, 9), st.data())
def test_it_beats_fisher_and_is_fair_to_both_groups(n, m, data):
    """p is at most Fisher's doubled one-sided one, and the same if groups, or success and failure, change places."""
    one, other = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    found = spoken(success_difference(outcomes(one, n), outcomes(other, m)))
    table = [[one, other], [n - one, m - other]]
    fisher: list[Any] = [fisher_exact(table, alternative=side) for side in ("less", "greater")]
    assert found.p <= min(1, *(2 * one_sided.pvalue for one_sided in fisher)) + 1e-9
    for turned in ((other, m, one, n), (n - one, n, m - other, m)):
        a, of, b, of_other = turned
        assert spoken(success_difference(outcomes(a, of), outcomes(b, of_other))).p == pytest.approx(found.p, abs=1e-6)


def test_equal_rates_are_rarely_called_different():
    """Whatever the common rate, p <= 5 % has a probability of at most 5 %, at 5 against 6 seeds."""
    n, m, rates = 5, 6, np.linspace(0, 1, 51)
    rejected = [
        binom.pmf(a, n, rates) * binom.pmf(b, m, rates)
        for a, b in product(range(n + 1), range(m + 1))
        if spoken(success_difference(outcomes(a, n), outcomes(b, m))).p <= 0.05
    ]
    assert 0.02 < np.sum(rejected, axis=0).max() <= 0.05


def test_the_smallest_groups_that_can_differ():
    """All of 3 against none of 3 is a finding, p = 1/32; all against all is none, p = 1."""
    assert spoken(success_difference(outcomes(3, 3), outcomes(0, 3))).p == pytest.approx(1 / 32)
    for reached in (0, 3):
        assert spoken(success_difference(outcomes(reached, 3), outcomes(reached, 3))).p == 1


def test_holm_of_the_textbook():
    """Of 0.01, 0.04, 0.03, 0.005 the adjusted values are 0.03, 0.06, 0.06, 0.02."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([]) == ()


@given(ps)
def test_holm_lies_between_nothing_and_bonferroni(values):
    """No value gets smaller or larger than Bonferroni's; their order stays, and the smallest one is Bonferroni's."""
    adjusted = holm(values)
    assert all(p <= found <= min(1, len(values) * p) for p, found in zip(values, adjusted, strict=True))
    assert [found for _, found in sorted(zip(values, adjusted, strict=True))] == sorted(adjusted)
    assert not values or min(adjusted) == min(1, len(values) * min(values))


def test_holm_keeps_the_level_of_the_family():
    """Of six true hypotheses one or more is rejected at 5 % in about 5 % of families."""
    families = np.random.default_rng(0).uniform(size=(4000, 6)).tolist()
    assert np.mean([min(holm(family)) <= 0.05 for family in families]) == pytest.approx(0.05, abs=0.01)


@settings(max_examples=40)
@given(group, group)
def test_improvement_is_mann_whitneys_u(first, second):
    """The probability is U / (n m), it and that of the exchanged groups make 1, and the interval holds it."""
    found = spoken(probability_of_improvement(first, second))
    u = mannwhitneyu(first, second, method="asymptotic").statistic if len({*first, *second}) > 1 else None
    assert found.probability == (0.5 if u is None else pytest.approx(u / (len(first) * len(second))))
    assert 0 <= found.low <= found.probability <= found.high <= 1
    assert spoken(probability_of_improvement(second, first)).probability == pytest.approx(1 - found.probability)


@pytest.mark.parametrize(("first", "low", "high"), [(16.0, 0.025**0.25, 1), (0.0, 0, 1 - 0.025**0.25)])
def test_a_clean_win_is_not_certain(first, low, high):
    """Where every seed of one group wins, the interval is the exact one of four pairs, not a point."""
    found = spoken(probability_of_improvement([first] * 4, [8.0] * 5))
    assert (found.low, found.high) == pytest.approx((low, high))


def test_ties_are_no_evidence_either_way():
    """Where all seeds agree the probability is one half, in the middle of a wide interval."""
    found = spoken(probability_of_improvement([16.0] * 4, [16.0] * 4))
    assert found.probability == 0.5
    assert found.low == pytest.approx(1 - found.high) == pytest.approx(0.025**0.25 / 2)


def test_the_interval_of_improvement_covers():
    """Of normal groups of 12, shifted by 1, the interval holds Φ(1/√2) in about 95 % of samples."""
    rng = np.random.default_rng(0)
    samples = zip(rng.normal(1, size=(60, 12)).tolist(), rng.normal(size=(60, 12)).tolist(), strict=True)
    found = [spoken(probability_of_improvement(*pair)) for pair in samples]
    assert np.mean([one.low <= 0.7602 <= one.high for one in found]) >= 0.88


def test_missing_seeds_are_listed():
    """Six seeds against four: four are compared, the two that only one side has are named, none is dropped (X10)."""
    found = paired_improvement(dict.fromkeys(range(6), 16.0), dict.fromkeys((1, 2, 3, 4), 7.0))
    assert (found.seeds, found.only_first, found.only_second) == ((1, 2, 3, 4), (0, 5), ())
    assert str(found) == "on 4 shared seeds: 1.00 [0.40, 1.00]; only in the first: seeds 0, 5"


def test_too_few_shared_seeds_are_said_and_listed():
    """Groups without a common seed are not compared, and all their seeds are named (X10)."""
    found = paired_improvement({0: 1.0}, {1: 1.0})
    assert found.improvement == TooFew(0, 4)
    assert str(found) == (
        "on 0 shared seeds: too few seeds to say (0, needs 4); only in the first: seeds 0; only in the second: seeds 1"
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=4, max_size=9), st.data())
def test_pairs_are_compared_by_seed(pairs, data):
    """The probability is the share of seeds won, ties half, whatever is added to both groups of one seed."""
    shifts = data.draw(st.lists(st.integers(-9, 9), min_size=len(pairs), max_size=len(pairs)))
    first = {seed: float(x + shift) for seed, ((x, _), shift) in enumerate(zip(pairs, shifts, strict=True))}
    second = {seed: float(y + shift) for seed, ((_, y), shift) in enumerate(zip(pairs, shifts, strict=True))}
    found = paired_improvement(first, second).improvement
    assert isinstance(found, Improvement)
    assert found.probability == pytest.approx(np.mean([(x > y) + (x == y) / 2 for x, y in pairs]))
    assert 0 <= found.low <= found.probability + 1e-9 <= found.high + 2e-9

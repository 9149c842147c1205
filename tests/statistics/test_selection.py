"""The worth of a chosen configuration."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from par.errors import DataError
from par.statistics.scores import SPLITS, halves, selected

scores = st.lists(st.floats(0, 1), min_size=2, max_size=6)


@given(scores)
def test_one_alone_is_worth_its_mean(fresh):
    """Where there is nothing to choose, the score is the plain mean."""
    found = selected({"a": fresh})
    assert found.name == "a"
    assert found.score == pytest.approx(np.mean(fresh))


def test_choosing_costs_nothing():
    """Of equal configurations, each seed good three times in ten, the chosen one is worth 0.3, not more (X1)."""
    chance, trials = np.random.default_rng(0), 300
    drawn = (chance.random((trials, 3, 6)) < 0.3).astype(float)
    honest = [selected(dict(zip("abc", rows, strict=True))).score for rows in drawn.tolist()]
    assert drawn.mean(2).max(1).mean() > 0.4
    assert np.mean(honest) == pytest.approx(0.3, abs=4 * np.std(honest) / trials**0.5)


@given(st.permutations("abc"))
def test_the_better_one_is_chosen(order):
    """By the lower bound, of two equal means the steadier. Seed 1 chooses b, which seed 0 judges; seed 0 chooses a."""
    fresh = {"a": [0.5, 0.7], "b": [0.2, 1.0], "c": [0.1, 0.2]}
    found = selected({name: fresh[name] for name in order})
    assert found.name == "a"
    assert found.score == pytest.approx((0.2 + 0.7) / 2)


@pytest.mark.parametrize(
    "fresh", [{}, {"a": []}, {"a": [0.1]}, {"a": [0.1] * 2, "b": [0.2] * 3}, {"a": [0.1, math.nan]}]
)
def test_what_cannot_be_compared_is_refused(fresh):
    """No configuration, fewer than two seeds, different numbers of them, or a score that is not finite."""
    with pytest.raises(DataError):
        selected(fresh)


@pytest.mark.parametrize("count", [2, 3, 10, 13, 40])
def test_halves_are_the_same_for_everyone_and_few(count):
    """All ways of halving where they are few, otherwise a thousand; each seed chooses as often as any other."""
    found = halves(count)
    assert found == halves(count)
    assert len(found) == min(SPLITS, math.comb(count, count // 2))
    assert all(len(set(chosen)) == count // 2 for chosen in found)
    times = np.bincount([seed for chosen in found for seed in chosen], minlength=count) / len(found)
    assert np.allclose(times, count // 2 / count, atol=0.07)

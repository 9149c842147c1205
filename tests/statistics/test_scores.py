import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from par.statistics.scores import lower_bound

scores = st.lists(st.floats(0, 1), min_size=1, max_size=10)


@given(scores, st.data())
def test_raising_any_seed_raises_the_bound(seeds, data):
    """No seed's improvement ever lowers the bound, so a failed seed always costs something."""
    i = data.draw(st.integers(0, len(seeds) - 1))
    better = list(seeds)
    better[i] += data.draw(st.floats(0.01, 1))
    assert lower_bound(better) > lower_bound(seeds)


@given(st.floats(0, 1), st.integers(1, 20))
def test_agreeing_seeds_are_trusted_by_degrees(score, n):
    """n seeds that agree are bounded 0.25 / n below their score; one seed, 0.25 below."""
    assert lower_bound([score] * n) == pytest.approx(score - 0.25 / n)


@given(scores, st.floats(-1, 1))
def test_the_bound_moves_with_the_scores(seeds, shift):
    """A constant added to every score is added to the bound, and the order of seeds does not matter."""
    assert lower_bound([score + shift for score in seeds[::-1]]) == pytest.approx(lower_bound(seeds) + shift)


@given(scores.filter(lambda seeds: len(seeds) > 1))
def test_the_bound_is_a_standard_error_below_the_mean(seeds):
    """The bound lies below the mean by the standard error of the seeds and one pseudo-observation at 0.25."""
    n = len(seeds)
    variance = (n * statistics.pvariance(seeds) + 0.25**2) / n
    assert lower_bound(seeds) == pytest.approx(statistics.fmean(seeds) - math.sqrt(variance / n))


def test_a_lucky_seed_ranks_below_several_good_ones():
    """One perfect seed does not beat four seeds at 0.9."""
    assert lower_bound([1.0]) < lower_bound([0.9] * 4)


def test_luck_does_not_pay_more_where_scores_are_larger():
    """The bound of G is that of a share, sixteen times as large: one lucky seed ranks below several good ones."""
    assert lower_bound([16.0], "G") == pytest.approx(16 * lower_bound([1.0]))
    assert lower_bound([16.0], "G") < lower_bound([15.0] * 4, "G")

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from par.errors import DataError
from par.study.statistics import lower_bound, success_rate, summary

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


@given(st.integers(1, 30), st.data())
def test_interval_is_exact(n, data):
    """At each end of the interval the seen count, or a more extreme one, has a probability of 2.5 %."""
    reached = data.draw(st.integers(0, n))
    rate, low, high = success_rate([16.0] * reached + [0.0] * (n - reached), 8)
    assert rate == reached / n
    assert low == 0 if reached == 0 else binom.sf(reached - 1, n, low) == pytest.approx(0.025, rel=1e-6)
    assert high == 1 if reached == n else binom.cdf(reached, n, high) == pytest.approx(0.025, rel=1e-6)


def test_one_failing_seed_of_six_is_seen():
    """Five seeds at 16 and one at 1.8: the rate is 5/6 in [0.36, 1.00], and the worst seed is named."""
    seeds = [16.0, 16, 16, 16, 16, 1.8]
    assert [round(share, 2) for share in success_rate(seeds, 8)] == [0.83, 0.36, 1.0]
    assert summary(seeds).worst == 1.8


def test_a_seed_on_the_threshold_succeeds():
    """G = g* counts as success."""
    assert success_rate([8.0], 8).rate == 1


@given(scores)
def test_summary_agrees_with_the_textbook(seeds):
    """Mean, sd with n - 1, and minimum are those of the seeds; one seed has no sd."""
    found = summary(seeds)
    assert (found.n, found.worst) == (len(seeds), min(seeds))
    assert found.mean == pytest.approx(statistics.fmean(seeds))
    assert found.sd == (None if len(seeds) == 1 else pytest.approx(statistics.stdev(seeds), abs=1e-12))


@pytest.mark.parametrize("seeds", [[], [1.0, math.nan], [math.inf]])
def test_missing_and_non_finite_seeds_are_refused(seeds):
    """No number is computed from nothing, or from a seed that is not a number."""
    for measure in (lower_bound, summary, lambda values: success_rate(values, 8)):
        with pytest.raises(DataError, match="enter a failed seed as 0"):
            measure(seeds)

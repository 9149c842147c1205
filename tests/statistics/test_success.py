import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from par.statistics.seeds import TooFew
from par.statistics.success import (
    performance_profile,
    success_conditional_mean,
    success_rate,
)

factors = st.lists(st.floats(0, 32), min_size=1, max_size=10)


@given(st.integers(1, 30), st.data())
def test_interval_is_exact(n, data):
    """At each end of the interval the seen count, or a more extreme one, has a probability of 2.5 %."""
    reached = data.draw(st.integers(0, n))
    found = success_rate([16.0] * reached + [0.0] * (n - reached), 8)
    assert found.rate == reached / n
    assert found.low == 0 if reached == 0 else binom.sf(reached - 1, n, found.low) == pytest.approx(0.025, rel=1e-6)
    assert found.high == 1 if reached == n else binom.cdf(reached, n, found.high) == pytest.approx(0.025, rel=1e-6)


@pytest.mark.parametrize("n", [2, 5, 10])
def test_interval_covers(n):
    """Whatever the true rate, the interval holds it in at least 95 % of samples."""
    rates = np.linspace(0, 1, 101)
    intervals = [success_rate([16.0] * k + [0.0] * (n - k), 8) for k in range(n + 1)]
    covered = [
        binom.pmf(k, n, rates) * ((found.low <= rates) & (rates <= found.high)) for k, found in enumerate(intervals)
    ]
    assert np.sum(covered, axis=0).min() >= 0.95


def test_one_failing_seed_of_six_is_seen():
    """Five seeds at 16 and one at 1.8: the rate is 5/6 in [0.36, 1.00]."""
    assert str(success_rate([16.0, 16, 16, 16, 16, 1.8], 8)) == "5/6 [0.36, 1.00]"


def test_a_seed_on_the_threshold_succeeds():
    """G = g* counts as success."""
    assert success_rate([8.0], 8).rate == 1


@settings(max_examples=40)
@given(factors)
def test_the_profile_is_the_empirical_survival_function(seeds):
    """The profile never rises, is 1 at the worst seed and 1/n or more at the best; its area is the mean of G."""
    profile = performance_profile(seeds)
    rates = [point.success.rate for point in profile]
    assert rates == sorted(rates, reverse=True)
    assert (profile[0].G, rates[0], profile[-1].G) == (min(seeds), 1, max(seeds))
    widths = np.diff([0.0, *(point.G for point in profile)])
    assert float(widths @ rates) == pytest.approx(statistics.fmean(seeds), abs=1e-9)


def test_the_profile_at_given_levels_is_the_success_rate():
    """At levels that are asked for, the profile says what the success rates say."""
    seeds = [16.0, 3, 0, 2]
    assert performance_profile(seeds, (4, 2)) == ((2, success_rate(seeds, 2)), (4, success_rate(seeds, 4)))


@given(factors, st.floats(0, 32))
def test_the_mean_splits_into_success_and_failure(seeds, threshold):
    """The mean is rate × mean of successes + (1 − rate) × mean of failures."""
    failures = [value for value in seeds if value < threshold]
    rate, success = success_rate(seeds, threshold).rate, success_conditional_mean(seeds, threshold)
    if isinstance(success, TooFew):
        assert failures == seeds
    else:
        parts = rate * success + (1 - rate) * (statistics.fmean(failures) if failures else 0)
        assert parts == pytest.approx(statistics.fmean(seeds), abs=1e-9)


def test_without_success_there_is_no_mean_of_successes():
    """Where no seed succeeds the sentence says of what there are too few."""
    assert str(success_conditional_mean([0.0, 1.9])) == "too few successful seeds to say (0, needs 1)"

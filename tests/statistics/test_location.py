import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from par.statistics.description import interquartile_mean, mean_interval, summary
from tests.statistics.spoken import spoken

factors = st.lists(st.floats(0, 32), min_size=4, max_size=12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_summary_agrees_with_the_textbook(seeds):
    """Mean, sd with n - 1, and minimum are those of the seeds; one seed has no sd."""
    found = summary(seeds)
    assert (found.n, found.worst) == (len(seeds), min(seeds))
    assert found.mean == pytest.approx(statistics.fmean(seeds))
    assert found.sd == (None if len(seeds) == 1 else pytest.approx(statistics.stdev(seeds), abs=1e-12))


@given(factors)
def test_the_interval_holds_the_mean_within_the_seeds(seeds):
    """The interval lies within the range of the seeds and holds their mean."""
    low, high = spoken(mean_interval(seeds))
    assert min(seeds) - 1e-9 <= low <= statistics.fmean(seeds) + 1e-9
    assert statistics.fmean(seeds) - 1e-9 <= high <= max(seeds) + 1e-9


@given(st.lists(st.integers(0, 32), min_size=4, max_size=12), st.sampled_from([0.5, 2.0, 8.0]), st.integers(-8, 8))
def test_the_interval_moves_with_the_seeds(seeds, scale, shift):
    """Scaled and shifted seeds have the scaled and shifted interval."""
    moved = [scale * value + shift for value in seeds]
    assert mean_interval(moved) == pytest.approx(
        [scale * end + shift for end in spoken(mean_interval(seeds))], abs=1e-9
    )


def test_the_interval_is_the_quantile_of_all_resamples():
    """Of six seeds with one at 1.8 the number k of its draws is binomial(6, 1/6): the ends are at k = 2 or 3, and 0."""
    low, high = spoken(mean_interval([16.0, 16, 16, 16, 16, 1.8]))
    assert (low, high) == (pytest.approx(16 - 3 * 14.2 / 6), 16)


@pytest.mark.parametrize(("n", "coverage"), [(5, 0.84), (10, 0.90)])
def test_the_interval_covers_as_documented(n, coverage):
    """Of normal seeds the interval holds the true mean as often as the docstring says, within 4 points."""
    samples = np.random.default_rng(0).normal(size=(300, n))
    found = [spoken(mean_interval(seeds)) for seeds in samples.tolist()]
    held = [interval.low <= 0 <= interval.high for interval in found]
    assert np.mean(held) == pytest.approx(coverage, abs=0.04)


@given(factors)
def test_iqm_is_the_trimmed_mean(seeds):
    """The IQM is the mean with 25 % of the seeds cut off at each end."""
    assert interquartile_mean(seeds) == pytest.approx(trim_mean(seeds, 0.25))


def test_iqm_hides_a_failing_seed():
    """One failed seed of six moves the worst seed and not the IQM, which is why it is never shown alone."""
    assert interquartile_mean([16.0] * 5 + [1.8]) == interquartile_mean([16.0] * 6) == 16

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from par.statistics.description import censored_share, median_G

RELAPSE = [6, 6, 6, 7, 10, 13, 16, 22, 23]
REMISSION = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
"""Weeks in remission under 6-MP, until relapse or the end of the study (Freireich et al. 1963, Blood 21)."""
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]

factors = st.lists(st.floats(0, 32), min_size=1, max_size=15)


def test_the_textbook_medians():
    """Median remission is 23 weeks under 6-MP, with 12 of 21 patients censored, and 8 under placebo."""
    flags = [False] * len(RELAPSE) + [True] * len(REMISSION)
    assert median_G(RELAPSE + REMISSION, flags) == 23
    assert censored_share(flags) == 12 / 21
    assert median_G(PLACEBO, [False] * len(PLACEBO)) == 8


@given(factors)
def test_without_censoring_it_is_the_lower_median(seeds):
    """Where every G is a value, the median is the lower one of the seeds, whether their number is odd or even."""
    assert median_G(seeds, [False] * len(seeds)) == statistics.median_low(seeds)


@given(factors)
def test_lower_bounds_alone_have_no_median(seeds):
    """Where every G is a lower bound, the median is not reached."""
    assert median_G(seeds, [True] * len(seeds)) is None


@given(factors, st.data())
def test_the_median_never_takes_a_bound_for_a_value(seeds, data):
    """Censoring a seed moves the median up, or out of reach, and never down."""
    i = data.draw(st.integers(0, len(seeds) - 1))
    found = median_G(seeds, [place == i for place in range(len(seeds))])
    assert found is None or found >= statistics.median_low(seeds)


def test_a_failed_seed_pulls_the_median_down():
    """Two of four seeds at the ceiling and two failed: at most half get beyond 0, so the median is 0."""
    assert median_G([16.0, 16, 0, 0], [True, True, False, False]) == 0
    assert median_G([16.0, 16, 16, 0], [True, True, True, False]) is None


def test_the_median_sees_through_the_ceiling():
    """Exponential G with median 8, censored at random: the Kaplan-Meier median is near 8, that of the bounds is not."""
    rng = np.random.default_rng(0)
    G, tested = rng.exponential(8 / np.log(2), 4000), rng.uniform(4, 24, 4000)
    seen = np.minimum(G, tested)
    assert median_G(seen.tolist(), (tested < G).tolist()) == pytest.approx(8, rel=0.06)
    assert np.median(seen) < 7

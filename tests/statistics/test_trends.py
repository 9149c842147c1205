import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom, chi2, spearmanr

from par.statistics.seeds import Degenerate
from par.statistics.trends import early_signal, success_trend
from tests.statistics.spoken import spoken

SIZES = [0.5e9, 1.5e9, 3e9, 7e9]


def outcomes(*reached: int, n: int) -> tuple[list[float], list[float]]:
    """Sizes and G of n seeds on each backbone, of which so many succeed."""
    sizes = [size for size, _ in zip(SIZES, reached, strict=False) for _ in range(n)]
    return sizes, [16.0 * (seed < count) for count in reached for seed in range(n)]


def two_sizes(small: int, large: int, n: int) -> tuple[list[float], list[float]]:
    return [1e9] * n + [1e10] * n, [16.0] * small + [0.0] * (n - small) + [16.0] * large + [0.0] * (n - large)


def penalised(intercept: float, slope: float, decades: np.ndarray, success: np.ndarray) -> float:
    """Log likelihood and half the log determinant of the information, written out."""
    design = np.column_stack([np.ones_like(decades), decades])
    p = 1 / (1 + np.exp(-(intercept + slope * decades)))
    information = design.T @ ((p * (1 - p))[:, None] * design)
    return float(np.log(np.where(success, p, 1 - p)).sum() + 0.5 * np.log(np.linalg.det(information)))


@settings(max_examples=30)
@given(st.integers(3, 9), st.data())
def test_of_two_sizes_the_slope_is_a_log_odds_ratio(n, data):
    """A tenfold size changes the log odds by their difference with half a seed added to each count (Firth 1993)."""
    small, large = data.draw(st.integers(0, n)), data.draw(st.integers(0, n))
    found = spoken(success_trend(*two_sizes(small, large, n)))
    odds = [math.log((count + 0.5) / (n - count + 0.5)) for count in (small, large)]
    assert found.slope == pytest.approx(odds[1] - odds[0], abs=1e-4)
    assert found.low < found.slope < found.high
    assert (found.p <= 0.05) == (found.low > 0 or found.high < 0)


@pytest.mark.parametrize("reached", [(0, 1, 3, 6), (2, 3, 1, 4), (0, 0, 6, 6), (6, 6, 6, 6)])
def test_it_is_the_maximum_of_the_penalised_likelihood(reached):
    """Slope, p and interval are those of the penalised likelihood, maximised over both parameters at once."""
    sizes, Gs = outcomes(*reached, n=6)
    decades, success = np.log10(sizes) - np.mean(np.log10(sizes)), np.array(Gs) >= 2
    found = spoken(success_trend(sizes, Gs))
    best = minimize(lambda at: -penalised(at[0], at[1], decades, success), [0.0, 0.0], method="Nelder-Mead", tol=1e-10)
    assert found.slope == pytest.approx(best.x[1], abs=1e-3)

    def at(slope: float) -> float:
        return -minimize(lambda b: -penalised(b[0], slope, decades, success), [0.0], method="Nelder-Mead", tol=1e-9).fun

    assert found.p == pytest.approx(chi2.sf(2 * (-best.fun - at(0)), 1), abs=1e-4)
    for end in (found.low, found.high):
        assert at(end) == pytest.approx(-best.fun - chi2.ppf(0.95, 1) / 2, abs=1e-3)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 4), min_size=4, max_size=4), st.sampled_from([1e-9, 1e-6, 8.0]))
def test_the_unit_of_size_does_not_matter(reached, unit):
    """Sizes in billions or in bytes have one trend; exchanged success and failure turn its sign."""
    sizes, Gs = outcomes(*reached, n=4)
    found = spoken(success_trend(sizes, Gs))
    again = spoken(success_trend([unit * size for size in sizes], [16 - G for G in Gs]))
    assert (again.slope, again.low, again.high, again.p) == pytest.approx(
        (-found.slope, -found.high, -found.low, found.p), abs=1e-3
    )


def test_separation_is_finite_and_found():
    """Both small backbones always fail and both large ones succeed: the slope is finite, its interval above 0."""
    found = spoken(success_trend(*outcomes(0, 0, 6, 6, n=6)))
    assert 3 < found.low < found.slope < found.high < 40
    assert found.p < 1e-4


def test_without_a_trend_one_is_rarely_seen():
    """Whatever the common rate, p <= 5 % has a probability near 5 % or below, at two sizes with 6 seeds each."""
    rates = np.linspace(0, 1, 51)
    tables = [(a, b) for a in range(7) for b in range(a, 7)]
    rejected = [
        (1 + (a < b)) * binom.pmf(a, 6, rates) * binom.pmf(b, 6, rates)
        for a, b in tables
        if spoken(success_trend(*two_sizes(a, b, 6))).p <= 0.05
    ]
    assert 0.02 < np.sum(rejected, axis=0).max() <= 0.06


def test_one_size_has_no_trend():
    """Seeds of one backbone say nothing about size, and the sentence says so."""
    assert str(success_trend([7e9] * 6, [0.0, 16] * 3)) == "too few sizes to say (1, needs 2)"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=5, max_size=9))
def test_rho_is_spearmans(pairs):
    """rho is Spearman's, and only the order of signals and outcomes counts."""
    signals, finals = ([float(value) for value in column] for column in zip(*pairs, strict=True))
    found = early_signal(signals, finals)
    if min(len(set(signals)), len(set(finals))) == 1:
        assert isinstance(found, Degenerate)
        return
    reference: Any = spearmanr(signals, finals)
    found = spoken(found)
    assert found.statistic == pytest.approx(reference.statistic, abs=1e-9)
    assert early_signal([math.exp(value) for value in signals], finals) == pytest.approx(found)
    turned = spoken(early_signal([-value for value in signals], finals))
    assert turned.statistic == pytest.approx(-found.statistic)


def test_p_counts_the_pairings():
    """Perfect agreement of 5 seeds is one of 120 pairings, doubled; so is perfect disagreement."""
    assert early_signal(range(5), range(5)) == pytest.approx((1, 2 / 120))
    assert early_signal(range(5), range(0, -5, -1)) == pytest.approx((-1, 2 / 120))


def test_a_signal_of_success_is_found():
    """A loss that is low exactly in the seeds that succeed later agrees with success as far as ties let it."""
    found = spoken(early_signal([0.9, 0.8, 0.85, 0.2, 0.1, 0.3, 0.25, 0.95], [0, 0, 0, 1, 1, 1, 1, 0]))
    best: Any = spearmanr(range(8), [0] * 4 + [1] * 4)
    assert found.statistic == pytest.approx(-best.statistic)
    assert found.p == pytest.approx(2 / 70, abs=0.01)


def test_chance_is_rarely_a_signal():
    """Of unrelated signals at most about 5 % have p <= 5 %."""
    pairs = np.random.default_rng(0).normal(size=(200, 2, 6)).tolist()
    assert np.mean([spoken(early_signal(*pair)).p <= 0.05 for pair in pairs]) <= 0.08


@pytest.mark.parametrize(("signals", "outcomes"), [([1.0] * 5, range(5)), (range(5), [16.0] * 5)])
def test_what_is_equal_everywhere_signals_nothing(signals, outcomes):
    """Equal signals, or equal outcomes, have no rank correlation, and the answer says which are equal."""
    which = "signals" if signals == [1.0] * 5 else "outcomes"
    assert str(early_signal(signals, outcomes)) == f"undefined: all {which} are equal"

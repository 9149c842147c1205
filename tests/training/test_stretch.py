"""Positional stretch: one factor a step, from a range that grows late in the run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.config.run import RunConfig
from par.testing import tiny_run
from par.training.draws import draw_factor, factor_range


def stretched(
    start: float = 0.5,
    ramp: float = 0.25,
    s_max: float = 8.0,
    *,
    s_min: float = 0.5,
    seed: int = 0,
    distribution: str = "uniform",
) -> RunConfig:
    stretch = {"enabled": True, "start": start, "ramp": ramp, "s_min": s_min, "s_max": s_max}
    return tiny_run(train__steps=400, seed=seed, stretch=stretch | {"distribution": distribution})


def log_share(factor: float) -> float:
    return float(np.log(factor / 0.5) / np.log(16))


def test_the_range_is_one_then_grows_linearly_then_holds():
    """The range is [1, 1] before the start, grows linearly to both sides over the ramp, and is whole from there on."""
    run = stretched()
    assert [factor_range(run, step) for step in (0, 199, 200)] == [(1.0, 1.0)] * 3
    least, largest = zip(*(factor_range(run, step) for step in (225, 250, 275)), strict=True)
    assert largest == pytest.approx([2.75, 4.5, 6.25])
    assert least == pytest.approx([0.875, 0.75, 0.625])
    assert [factor_range(run, step) for step in (300, 399)] == [(0.5, 8.0)] * 2


def test_without_a_ramp_the_range_is_whole_at_once():
    """A ramp of 0 steps to the whole range at the start."""
    run = stretched(ramp=0.0)
    assert (factor_range(run, 199), factor_range(run, 200)) == ((1.0, 1.0), (0.5, 8.0))


@settings(max_examples=50, deadline=None)
@given(
    step=st.integers(0, 399),
    start=st.floats(0, 0.7),
    ramp=st.floats(0, 0.3),
    s_min=st.floats(0.01, 1),
    s_max=st.floats(1, 64),
    seed=st.integers(0, 99),
    distribution=st.sampled_from(["uniform", "log_uniform"]),
)
def test_a_factor_is_pure_and_inside_its_range(step, start, ramp, s_min, s_max, seed, distribution):
    """Every factor is the same at every call and lies in [s_min(t), s_max(t)], which lies in [s_min, s_max]."""
    run = stretched(start, ramp, s_max, s_min=s_min, seed=seed, distribution=distribution)
    factor = draw_factor(run, step)
    assert factor == draw_factor(run, step)
    least, largest = factor_range(run, step)
    assert least * (1 - 1e-12) <= factor <= largest * (1 + 1e-12)
    assert s_min * (1 - 1e-12) <= least <= 1 <= largest <= s_max * (1 + 1e-12)


def test_outside_the_stretch_the_factor_is_exactly_one():
    """Where it is off, and before its start, positions are multiplied by exactly 1."""
    off = tiny_run(train__steps=400, stretch__start=0.0)
    assert {draw_factor(off, step) for step in range(400)} == {1.0}
    for distribution in ("uniform", "log_uniform"):
        assert {draw_factor(stretched(distribution=distribution), step) for step in range(201)} == {1.0}


@pytest.mark.parametrize(
    ("distribution", "scale"), [("uniform", lambda s: (s - 0.5) / 7.5), ("log_uniform", log_share)]
)
def test_factors_cover_their_range(distribution, scale):
    """Over steps and seeds s, or its logarithm, is uniform on [s_min, s_max]: mean, least, greatest."""
    runs = [stretched(0.0, 0.0, seed=seed, distribution=distribution) for seed in range(10)]
    shares = [scale(draw_factor(run, step)) for run in runs for step in range(400)]
    assert np.mean(shares) == pytest.approx(0.5, abs=5 / np.sqrt(12 * len(shares)))
    assert min(shares) < 0.01
    assert max(shares) > 0.99


def test_seeds_stretch_differently():
    """Two seeds draw different factors, and so do two steps."""
    assert draw_factor(stretched(), 350) != draw_factor(stretched(seed=1), 350)
    assert draw_factor(stretched(), 350) != draw_factor(stretched(), 351)

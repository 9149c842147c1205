"""Positional stretch: one factor a step, from a range that grows late in the run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.config import RunConfig
from par.testing import tiny_run
from par.training.stretch import draw_factor, largest_factor


def stretched(
    start: float = 0.5, ramp: float = 0.25, s_max: float = 8.0, *, seed: int = 0, distribution: str = "uniform"
) -> RunConfig:
    stretch = {"enabled": True, "start": start, "ramp": ramp, "s_max": s_max, "distribution": distribution}
    return tiny_run(train__steps=400, seed=seed, stretch=stretch)


def log_share(factor: float) -> float:
    return float(np.log(factor) / np.log(8))


def test_the_range_is_one_then_rises_linearly_then_holds():
    """s_max(t) is 1 before the start, rises linearly over the ramp, and is s_max from there on."""
    run = stretched()
    assert [largest_factor(run, step) for step in (0, 199, 200)] == [1.0, 1.0, 1.0]
    assert [largest_factor(run, step) for step in (225, 250, 275)] == pytest.approx([2.75, 4.5, 6.25])
    assert [largest_factor(run, step) for step in (300, 399)] == pytest.approx([8.0, 8.0])


def test_without_a_ramp_the_range_is_whole_at_once():
    """A ramp of 0 steps to s_max at the start."""
    run = stretched(ramp=0.0)
    assert (largest_factor(run, 199), largest_factor(run, 200)) == (1.0, 8.0)


@settings(max_examples=50, deadline=None)
@given(
    step=st.integers(0, 399),
    start=st.floats(0, 0.7),
    ramp=st.floats(0, 0.3),
    s_max=st.floats(1, 64),
    seed=st.integers(0, 99),
    distribution=st.sampled_from(["uniform", "log_uniform"]),
)
def test_a_factor_is_pure_and_inside_its_range(step, start, ramp, s_max, seed, distribution):
    """Every factor is the same at every call and lies between 1 and s_max(t) <= s_max."""
    run = stretched(start, ramp, s_max, seed=seed, distribution=distribution)
    factor = draw_factor(run, step)
    assert factor == draw_factor(run, step)
    assert 1 <= factor <= largest_factor(run, step) * (1 + 1e-12)
    assert largest_factor(run, step) <= s_max * (1 + 1e-12)


def test_outside_the_stretch_the_factor_is_exactly_one():
    """Where it is off, and before its start, positions are multiplied by exactly 1."""
    off = tiny_run(train__steps=400, stretch__start=0.0)
    assert {draw_factor(off, step) for step in range(400)} == {1.0}
    for distribution in ("uniform", "log_uniform"):
        assert {draw_factor(stretched(distribution=distribution), step) for step in range(201)} == {1.0}


@pytest.mark.parametrize(("distribution", "scale"), [("uniform", lambda s: (s - 1) / 7), ("log_uniform", log_share)])
def test_factors_cover_their_range(distribution, scale):
    """Over the steps and many seeds s, or its logarithm, is uniform on [1, s_max]: mean, least and greatest say so."""
    runs = [stretched(0.0, 0.0, seed=seed, distribution=distribution) for seed in range(10)]
    shares = [scale(draw_factor(run, step)) for run in runs for step in range(400)]
    assert np.mean(shares) == pytest.approx(0.5, abs=5 / np.sqrt(12 * len(shares)))
    assert min(shares) < 0.01
    assert max(shares) > 0.99


def test_seeds_stretch_differently():
    """Two seeds draw different factors, and so do two steps."""
    assert draw_factor(stretched(), 350) != draw_factor(stretched(seed=1), 350)
    assert draw_factor(stretched(), 350) != draw_factor(stretched(), 351)

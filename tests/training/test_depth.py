"""The draws of depth, iterations, prefixes and boxes: their ranges, their means, and their purity."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.config.groups import ScheduleConfig
from par.config.run import RunConfig
from par.testing import tiny_run
from par.training.draws import StepDepth, _free_iterations, answered_iterations, draw_boxes, draw_depth, draw_lengths

STEPS = 4000
KINDS = {
    "forced": {"schedule__overrun": 2},
    "hold": {"schedule__kind": "hold", "schedule__iterations": 6.5},
    "fixed": {"schedule__kind": "fixed", "schedule__iterations": 5},
    "random": {"schedule__kind": "random", "schedule__iterations": 5, "objective": "final_only"},
}


def drawn(run: RunConfig, steps: int = STEPS) -> list[StepDepth]:
    return [draw_depth(run, step) for step in range(steps)]


@pytest.mark.parametrize("kind", KINDS)
def test_depths_are_uniform(kind):
    """d is uniform over 1 .. d_train under every schedule: each value within five standard errors of its share."""
    counts = np.bincount([depth.operations for depth in drawn(tiny_run(task__train_depth=8, **KINDS[kind]))])
    assert counts[0] == 0
    assert len(counts) == 9
    share = 1 / 8
    assert np.abs(counts[1:] / STEPS - share).max() < 5 * np.sqrt(share * (1 - share) / STEPS)


@pytest.mark.parametrize("step_size", [1, 2, 3])
@pytest.mark.parametrize("overrun", [0, 3])
def test_forced_iterations_complete_the_operations(step_size, overrun):
    """Forced R is ceil(d / c) plus any whole number 0 .. o, each as often as another, whatever d."""
    run = tiny_run(task__train_depth=7, recurrence__step_size=step_size, schedule__overrun=overrun)
    over = np.array([depth.iterations - ceil(depth.operations / step_size) for depth in drawn(run)])
    assert set(over) == set(range(overrun + 1))
    assert over.mean() == pytest.approx(overrun / 2, abs=0.1)


def test_fixed_iterations_are_constant():
    """Fixed R is the configured one at every step."""
    assert {depth.iterations for depth in drawn(tiny_run(**KINDS["fixed"]))} == {5}


def test_random_iterations_are_uniform():
    """Random R takes every value from 1 to the configured one equally often, and does not look at d."""
    depths = drawn(tiny_run(**KINDS["random"]))
    counts = np.bincount([depth.iterations for depth in depths], minlength=6)
    assert counts[0] == 0
    assert np.abs(counts[1:] / STEPS - 1 / 5).max() < 5 * np.sqrt(0.2 * 0.8 / STEPS)
    pairs = np.array([(depth.operations, depth.iterations) for depth in depths])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 5 / np.sqrt(STEPS)


@pytest.mark.parametrize("distribution", ["heavy_tail", "uniform"])
@pytest.mark.parametrize("mean", [1, 2, 6.5, 16])
def test_hold_iterations_have_the_configured_mean(mean, distribution):
    """Over 1e5 draws R is at least 1, and its mean is the configured one within five standard errors, not one more."""
    schedule = ScheduleConfig(kind="hold", iterations=mean, distribution=distribution)
    rng = np.random.default_rng(0)
    iterations = np.array([_free_iterations(schedule, rng) for _ in range(100_000)])
    assert iterations.min() == 1
    assert iterations.mean() == pytest.approx(mean, abs=5 * iterations.std() / np.sqrt(len(iterations)) + 1e-12)


def test_hold_iterations_are_heavy_tailed():
    """Their variance is that of a Poisson number whose rate is log-normal with sigma 0.5."""
    schedule, rng = ScheduleConfig(kind="hold", iterations=16), np.random.default_rng(0)
    variance = np.var([_free_iterations(schedule, rng) for _ in range(100_000)])
    assert variance == pytest.approx(15 + 15**2 * (np.exp(0.25) - 1), rel=0.05)


def test_uniform_hold_iterations_are_uniform():
    """Every R from 1 to 2 x mean - 1 comes equally often, and no other."""
    schedule, rng = ScheduleConfig(kind="hold", iterations=3.5, distribution="uniform"), np.random.default_rng(0)
    counts = np.bincount([_free_iterations(schedule, rng) for _ in range(60_000)])
    assert counts[0] == 0
    assert counts[1:] / 60_000 == pytest.approx(np.full(6, 1 / 6), abs=0.01)


def test_hold_keeps_its_mean_over_steps():
    """One draw a step has the configured mean, too: the generators of different steps are independent."""
    iterations = np.array([depth.iterations for depth in drawn(tiny_run(**KINDS["hold"]))])
    assert iterations.mean() == pytest.approx(6.5, abs=5 * iterations.std() / np.sqrt(STEPS))


def test_hold_with_prefixes_uses_whole_prompts():
    """Where each branch draws its own length, every prompt has d_train operations; else all have the drawn depth."""
    many = drawn(tiny_run(**KINDS["hold"], train__branches__prefixes=3), 50)
    assert {(depth.operations, depth.one_depth) for depth in many} == {(4, False)}
    assert all(depth.one_depth for depth in drawn(tiny_run(**KINDS["hold"]), 50))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_a_draw_is_a_function_of_seed_and_step(kind, seed, steps):
    """A step's depth, lengths and boxes are the same at every call, in whatever order steps are asked for."""
    run = tiny_run(seed=seed, **KINDS[kind])

    def draws(step: int) -> tuple[StepDepth, list, list]:
        depth = draw_depth(run, step)
        return depth, draw_lengths(run, step, depth).tolist(), draw_boxes(run, step, 3).tolist()

    first = {step: draws(step) for step in steps}
    assert {step: draws(step) for step in reversed(steps)} == first


@pytest.mark.parametrize("kind", ["forced", "hold", "random"])
def test_seeds_and_steps_draw_differently(kind):
    """Two seeds have different sequences of depths, and one seed does not repeat itself."""
    one, other = (drawn(tiny_run(seed=seed, **KINDS[kind]), 60) for seed in (0, 1))
    assert one != other
    assert one[:30] != one[30:]


def test_no_setting_shifts_anothers_draws():
    """Depth, lengths and boxes have substreams of their own: another schedule leaves the boxes as they were."""
    run, other = tiny_run(), tiny_run(**KINDS["random"], train__branches__prefixes=1)
    assert np.array_equal(draw_boxes(run, 3, 5), draw_boxes(other, 3, 5))
    assert drawn(run, 20) == drawn(tiny_run(train__branches__prefixes=4, train__branches__boxes="one"), 20)
    same = StepDepth(4, 9, False)
    assert np.array_equal(draw_lengths(run, 3, same), draw_lengths(other, 3, same))


@settings(max_examples=30, deadline=None)
@given(operations=st.integers(1, 9), prefixes=st.integers(1, 4), one_depth=st.booleans(), step=st.integers(0, 99))
def test_prefix_lengths_lie_in_the_prompt(operations, prefixes, one_depth, step):
    """Each prompt has its prefix lengths in 1 .. d; the first is the whole prompt where the batch has one depth."""
    run = tiny_run(train__branches__prefixes=prefixes)
    lengths_BP = draw_lengths(run, step, StepDepth(operations, 5, one_depth))
    assert lengths_BP.shape == (run.train.batch_size, prefixes)
    assert lengths_BP.min() >= 1
    assert lengths_BP.max() <= operations
    assert not one_depth or (lengths_BP[:, 0] == operations).all()


def test_prefix_lengths_and_boxes_are_uniform():
    """Over many steps every length and every box is drawn equally often."""
    run = tiny_run(train__branches__prefixes=2)
    lengths = np.stack([draw_lengths(run, step, StepDepth(5, 5, False)) for step in range(200)])
    boxes = np.stack([draw_boxes(run, step, 5) for step in range(200)])
    assert boxes.shape[1:] == (run.train.batch_size, 2)
    for values, first in ((lengths, 1), (boxes, 0)):
        shares = np.bincount(values.flatten(), minlength=first + 5)[first:] / values.size
        assert np.abs(shares - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / values.size)


@settings(max_examples=30, deadline=None)
@given(iterations=st.integers(1, 20), window=st.integers(1, 20))
def test_the_window_is_answered(iterations, window):
    """The last min(w, R) iterations have an answer target; for ``final_only`` the last one alone has."""
    answered = answered_iterations(tiny_run(recurrence__gradient_window=window), iterations)
    assert answered == tuple(k for k in range(1, iterations + 1) if k > iterations - window)
    last = answered_iterations(tiny_run(recurrence__gradient_window=window, objective="final_only"), iterations)
    assert last == (iterations,)

"""Targets of learned halting: when Yes is right, and that both classes weigh the same."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from par.tasks.groups import parse_task
from par.testing import tiny_run
from par.training.batches import Batches, halting_targets
from par.training.draws import StepDepth, draw_depth, extra_negative
from par.training.loop import Trainer


@settings(max_examples=60, deadline=None)
@given(
    step_size=st.integers(1, 3),
    kept=st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True).map(sorted),
    lengths=st.lists(st.integers(1, 8), min_size=6, max_size=6),
)
def test_yes_iff_complete_and_classes_weigh_the_same(step_size, kept, lengths):
    """Yes iff c k reaches the branch's length; members of a class weigh the same, and each class 1/2 if it has any."""
    lengths_BN = np.array(lengths).reshape(2, 3)
    yes_KBN, weights_KBN = halting_targets(tiny_run(recurrence__step_size=step_size), tuple(kept), lengths_BN)
    for place, b, n in np.ndindex(yes_KBN.shape):
        assert yes_KBN[place, b, n] == (step_size * kept[place] >= lengths_BN[b, n])
    for value in (0, 1):
        members = weights_KBN[yes_KBN == value]
        if members.size:
            assert members.sum() == pytest.approx(0.5)
            assert np.ptp(members) == 0


def learned(**changes):
    return tiny_run(halting__mode="learned", task__train_depth=9, recurrence__gradient_window=3, **changes)


def deep(iterations, operations=9):
    return StepDepth(operations, iterations, one_depth=True)


def test_the_extra_negative_lies_before_the_window():
    """It is one of the iterations 1 .. R - w, each as likely as another, and a function of seed and step."""
    run = learned()
    drawn = [extra_negative(run, step, deep(8)) for step in range(2000)]
    assert drawn == [extra_negative(run, step, deep(8)) for step in range(2000)]
    shares = np.bincount(drawn, minlength=6)[1:] / 2000
    assert len(shares) == 5
    assert np.abs(shares - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 2000)
    assert drawn != [extra_negative(learned(seed=1), step, deep(8)) for step in range(2000)]


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_without_iterations_before_the_window_there_is_no_extra(iterations):
    """A window that covers all iterations leaves no extra negative, and nor does halting that is not learned."""
    assert extra_negative(learned(), 0, deep(iterations)) is None
    assert extra_negative(tiny_run(recurrence__gradient_window=3), 0, deep(9)) is None


@pytest.mark.parametrize(("operations", "step_size", "short"), [(5, 1, 4), (2, 1, 1), (7, 3, 2), (6, 3, 1), (9, 1, 6)])
def test_the_extra_negative_is_a_no(operations, step_size, short):
    """It is an iteration k with c k < d, up to the last of these: however long the state is held, never a Yes."""
    run = learned(recurrence__step_size=step_size)
    drawn = {extra_negative(run, step, deep(9, operations)) for step in range(200)}
    assert drawn == set(range(1, short + 1))


@pytest.mark.parametrize(("operations", "step_size"), [(1, 1), (2, 3), (3, 3)])
def test_where_one_iteration_completes_there_is_no_extra(operations, step_size):
    """With c >= d every iteration is at Yes: none is read beside the window."""
    assert extra_negative(learned(recurrence__step_size=step_size), 0, deep(9, operations)) is None


def test_with_several_prefixes_the_deepest_branch_is_at_no():
    """The extra iteration is short of the longest prefix that the batch draws, though others may be complete."""
    run = learned(
        schedule__kind="hold", schedule__iterations=9, train__branches__prefixes=2, train__batch_size=2,
    )  # fmt: skip
    stream, seen = batches(run), []
    for step in range(60):
        (micro,) = stream.micro_batches(step)
        if micro.plan.keep[0] + 3 <= micro.plan.count:
            assert not micro.targets.halt_KBN[0].all()
            seen.append(bool(micro.targets.halt_KBN[0].any()))
    assert {*seen} == {True, False}


def batches(run):
    return Batches(run, parse_task(run.task.name), Trainer(run).rendering)


def test_the_extra_negative_is_read_but_has_no_answer():
    """It is kept beside the window, weighs nothing as an answer, and is a No; only a depth of 1 has none."""
    run = learned(schedule__kind="fixed", schedule__iterations=6)
    for step in range(8):
        (micro,) = batches(run).micro_batches(step)
        extra = extra_negative(run, step, draw_depth(run, step))
        if draw_depth(run, step).operations == 1:
            assert micro.plan.keep == (4, 5, 6)
            continue
        assert micro.plan.keep == (extra, 4, 5, 6)
        assert not micro.targets.weights_KBN[0].any()
        assert micro.targets.weights_KBN[1:].sum() == pytest.approx(1)
        assert not micro.targets.halt_KBN[0].any()
        assert micro.targets.halt_weights_KBN[0].all()


@pytest.mark.parametrize(("workers", "micro_batch"), [(1, 8), (1, 3), (1, 1), (2, 4), (2, 3), (2, 1)])
def test_classes_balance_over_the_global_batch(workers, micro_batch):
    """Over all micro-batches and workers, Yes weighs 1/2 and No 1/2, though one piece may have a single class."""
    run = learned(compute__micro_batch=micro_batch, compute__workers=workers, train__branches__prefixes=3)
    stream = batches(run)
    mixed = [step for step in range(12) if draw_depth(stream.run, step).operations > 4]
    assert mixed
    for step in mixed:
        sums = torch.zeros(2)
        for rank in range(workers):
            for micro in stream.micro_batches(step, rank=rank, workers=workers):
                assert micro.targets.halt_KBN.shape == micro.targets.answers_KBN.shape
                sums.scatter_add_(0, micro.targets.halt_KBN.flatten(), micro.targets.halt_weights_KBN.flatten())
        assert sums.tolist() == pytest.approx([0.5, 0.5], abs=1e-5)


def test_halting_that_is_not_learned_asks_nothing():
    """A forced run has no Yes and No among its candidates and its halting weight is zero in the loss."""
    forced, other = tiny_run(), learned()
    (micro,) = batches(forced).micro_batches(0)
    assert micro.packed.candidates_BC.shape[1] == 3
    assert Trainer(forced)._halting_weight == 0
    (micro,) = batches(other).micro_batches(0)
    rendering = Trainer(other).rendering
    assert micro.packed.candidates_BC[:, 3:].unique(dim=0).tolist() == [[rendering.yes, rendering.no]]
    assert Trainer(other)._halting_weight == other.halting.weight

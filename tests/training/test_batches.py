"""The training stream: pure, and cut into workers and micro-batches without a trace."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from par.tasks.groups import parse_task
from par.tasks.prompts import open_rendering
from par.tasks.streams import Split, examples
from par.testing import tiny_run
from par.training.batches import Batches, MicroBatch
from par.training.draws import draw_depth, draw_factor

CUTS = pytest.mark.parametrize(
    ("workers", "micro_batch"), [(1, 8), (1, 3), (1, 1), (2, None), (2, 3), (4, 1), (8, None)]
)
SETTINGS = {
    "plain": {},
    "prefixes": {"train__branches__prefixes": 3, "train__branches__boxes": "one"},
    "hold": {"schedule__kind": "hold", "schedule__iterations": 6, "train__branches__prefixes": 2},
    "reset, stretch, halting": {
        "train__query_reset": 0.5,
        "stretch": {"enabled": True, "start": 0.0, "ramp": 0.0},
        "halting__mode": "learned",
        "schedule__kind": "fixed",
        "schedule__iterations": 6,
    },
}


def stream(rendering: str = "compact", **changes: object) -> Batches:
    run = tiny_run(**changes)
    task = parse_task(run.task.name)
    return Batches(run, task, open_rendering(task, rendering, run.task.position_spacing))


def tensors(micro: MicroBatch) -> dict[str, torch.Tensor]:
    """Every tensor of a forward pass, with the prompts as its first dimension."""
    packed = {f.name: getattr(micro.packed, f.name) for f in fields(micro.packed) if f.name != "layout"}
    packed["ends"] = micro.packed.layout.ends_BN
    targets = {f.name: getattr(micro.targets, f.name).transpose(0, 1) for f in fields(micro.targets)}
    reset = {} if micro.plan.reset is None else {"reset": micro.plan.reset.transpose(0, 1)}
    return packed | targets | reset


def plan(micro: MicroBatch) -> tuple:
    return micro.plan.count, micro.plan.keep, micro.plan.window


@CUTS
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_pieces_are_the_global_batch_in_order(settings, workers, micro_batch):
    """Laid end to end, rank by rank, the pieces of any cut are the tensors of the uncut batch, bit for bit."""
    cut = stream(**SETTINGS[settings], compute__workers=workers, compute__micro_batch=micro_batch)
    for step in range(3):
        (whole,) = stream(**SETTINGS[settings]).micro_batches(step)
        pieces = [m for rank in range(workers) for m in cut.micro_batches(step, rank=rank, workers=workers)]
        assert {plan(piece) for piece in pieces} == {plan(whole)}
        for name, tensor in tensors(whole).items():
            assert torch.equal(torch.cat([tensors(piece)[name] for piece in pieces]), tensor), name


@CUTS
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_weights_of_a_global_batch_add_up_to_one(settings, workers, micro_batch):
    """Whatever the cut, so that a sum over micro-batches and workers is the mean over the batch."""
    cut = stream(**SETTINGS[settings], compute__workers=workers, compute__micro_batch=micro_batch)
    for step in range(3):
        pieces = [m for rank in range(workers) for m in cut.micro_batches(step, rank=rank, workers=workers)]
        assert sum(piece.targets.weights_KBN.sum().item() for piece in pieces) == pytest.approx(1, abs=1e-5)


def test_micro_batches_are_as_large_as_asked():
    """Each holds ``micro_batch`` prompts but the last, which holds what is left of the worker's share."""
    sizes = [len(m.packed.ids_BT) for m in stream(compute__micro_batch=3).micro_batches(0)]
    assert sizes == [3, 3, 2]
    cut = stream(compute__micro_batch=3, compute__workers=2)
    assert [len(m.packed.ids_BT) for m in cut.micro_batches(0, rank=1, workers=2)] == [3, 1]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_batch_is_a_function_of_seed_and_step(settings):
    """A step's batch is the same bits from any stream of the run, whatever was drawn before; other seeds differ."""
    first, again = stream(**SETTINGS[settings]), stream(**SETTINGS[settings])
    order = [5, 0, 3]
    drawn = {step: tensors(next(first.micro_batches(step))) for step in order}
    for step in reversed(order):
        for name, tensor in tensors(next(again.micro_batches(step))).items():
            assert torch.equal(tensor, drawn[step][name]), name
    other = stream(**SETTINGS[settings], seed=1)
    assert any(
        not np.array_equal(drawn[step]["answers_KBN"], tensors(next(other.micro_batches(step)))["answers_KBN"])
        for step in order
    )


def test_the_examples_are_the_training_split_in_order():
    """Step t trains on examples t B .. (t + 1) B - 1 of the seed's training split, each once."""
    batches = stream("text", train__branches__boxes="one", seed=4)
    for step in (0, 7):
        (micro,) = batches.micro_batches(step)
        indices = range(8 * step, 8 * step + 8)
        operations = draw_depth(batches.run, step).operations
        drawn = examples(batches.task, seed=4, split=Split.TRAIN, indices=indices, depth=operations)
        wanted_BP = torch.from_numpy(batches.rendering.render(drawn).prefix_BP)
        assert torch.equal(micro.packed.ids_BT[:, : micro.packed.layout.prefix_tokens], wanted_BP)


def test_all_boxes_or_one():
    """``boxes: all`` asks every box at every prefix length; ``one`` asks one box for each."""
    (every,) = stream(train__branches__prefixes=2).micro_batches(0)
    (one,) = stream(train__branches__prefixes=2, train__branches__boxes="one").micro_batches(0)
    assert every.packed.layout.ends_BN.shape == (8, 2 * 3)
    assert one.packed.layout.ends_BN.shape == (8, 2)


def test_branches_are_reset():
    """Every branch has the configured share of its iterations reset."""
    changes = {"schedule__kind": "fixed", "schedule__iterations": 20, "train__query_reset": 0.3}
    resets = []
    for step in range(10):
        (micro,) = stream("text", **changes).micro_batches(step)
        assert micro.plan.reset.shape == (20, *micro.packed.layout.ends_BN.shape)
        resets.append(micro.plan.reset)
    share = torch.stack([r.float().mean() for r in resets]).mean().item()
    assert share == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / sum(r.numel() for r in resets)))


def test_without_reset_there_is_none():
    """A share of 0 is the paper's recurrence: no reset at all."""
    assert next(stream().micro_batches(0)).plan.reset is None


def test_positions_are_stretched_by_the_steps_factor():
    """All positions of a step are those of the unstretched batch times one factor."""
    stretched = stream(stretch={"enabled": True, "start": 0.0, "ramp": 0.0})
    for step in (0, 11):
        factor = draw_factor(stretched.run, step)
        assert factor > 1
        plain, wide = next(stream().micro_batches(step)).packed, next(stretched.micro_batches(step)).packed
        torch.testing.assert_close(wide.positions_BT, factor * plain.positions_BT)
        assert torch.equal(wide.ids_BT, plain.ids_BT)

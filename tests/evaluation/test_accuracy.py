"""Accuracy by depth: one packed pass against every question asked alone."""

from math import ceil
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from par.evaluation.accuracy import DepthCurve, batch_drift, depth_curve
from par.evaluation.exam import Exam
from par.evaluation.tally import COUNTS, Tally
from par.model.build import build_model, build_rendering
from par.model.looped import LoopedModel
from par.model.packing import Branches, Packed, pack
from par.model.reading import OwnIteration
from par.model.recurrence import Iterations
from par.objects import Objects
from par.tasks.groups import GroupTask, parse_task, states
from par.tasks.prompts import CompactRendering, Rendering
from par.tasks.streams import Split, examples
from par.testing import run_processes, tiny_run
from par.training.parallel import data_mesh, shard

DEPTHS = (1, 2, 3, 5, 8)


def tiny(rendering: str = "compact", name: str = "swap-s3", seed: int = 0) -> tuple[LoopedModel, GroupTask, Rendering]:
    run = tiny_run(backbone="mini-qwen3", task__rendering=rendering, task__name=name)
    words = build_rendering(run)
    return build_model(run, words, seed=seed), parse_task(name), words


def exam(model: nn.Module, task: GroupTask, words: Rendering, **changes) -> Exam:
    asked = {"depths": DEPTHS, "sequences": 13, "batch_size": 5}
    return Exam(model=cast(LoopedModel, model), task=task, rendering=words, **asked | changes)


def measure(model: nn.Module, task: GroupTask, words: Rendering, **changes) -> DepthCurve:
    how = {name: changes.pop(name) for name in ("begun", "keep") if name in changes}
    return depth_curve(exam(model, task, words, **changes), **how)


@torch.no_grad()
def right_alone(
    model: LoopedModel, task: GroupTask, words: Rendering, *, index: int, depth: int, reads: int
) -> list[bool]:
    """Whether each box of prompt ``index`` is right after ``depth`` operations, asked alone with R = ``reads``."""
    drawn = examples(task, seed=99, split=Split.TEST, indices=[index], depth=depth)
    prompts = words.render(drawn)
    held = list(range(task.boxes))
    for operation in drawn.operations_BD[0]:
        held = [held[source] for source in task.operations_KN[operation]]
    found = []
    for box in range(task.boxes):
        asked = pack(prompts, Branches(np.array([[depth]]), np.array([[box]])))
        logits_KBNC, _ = model(asked, Iterations(count=reads, keep=(reads,)))
        found.append(logits_KBNC[0, 0, 0].argmax().item() == held[box])
    return found


@pytest.mark.parametrize(("rendering", "name"), [("compact", "swap-s3"), ("text", "s4-full")])
@pytest.mark.parametrize("step_size", [1, 2])
def test_a_curve_is_every_depth_alone(rendering, name, step_size):
    """Each depth has the accuracy of prompts of that many operations, asked box by box, at R = ceil(d / c)."""
    model, task, words = tiny(rendering, name)
    curve = measure(model, task, words, step_size=step_size)
    for place, depth in enumerate(DEPTHS):
        reads = ceil(depth / step_size)
        asked = [right_alone(model, task, words, index=index, depth=depth, reads=reads) for index in range(13)]
        right_BX = np.array(asked)
        assert curve.single_query[place] == pytest.approx(right_BX.mean())
        assert curve.full_state[place] == pytest.approx(right_BX.all(axis=1).mean())
    assert 0 < np.mean(curve.single_query) < 1


class Oracle(nn.Module):
    """Answers every question of a compact prompt right, but for the boxes and iterations where it is told not to."""

    def __init__(self, task: GroupTask, words: CompactRendering, *, wrong: tuple[int, ...] = (), step_size: int = 0):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.task, self.words, self.wrong, self.step_size = task, words, wrong, step_size

    def read(self, packed: Packed, reading: OwnIteration) -> Tensor:
        """At every iteration, or with a step size only at iteration ceil(j / c) of a branch of j operations."""
        P, X = packed.layout.prefix_tokens, self.task.boxes
        operations_BD = packed.ids_BT[:, 1:P].numpy() - self.words.operations
        held_BJX = torch.from_numpy(states(self.task, operations_BD))
        seen_BN = packed.layout.ends_BN - 1
        boxes_BN = packed.ids_BT[:, P:] - self.words.queries
        answers_BN = held_BJX[torch.arange(len(held_BJX))[:, None], seen_BN, boxes_BN]
        answers_BN = (answers_BN + torch.isin(boxes_BN, torch.tensor(self.wrong))) % X
        at_1BN = (self._late(torch.tensor(reading.own_N), seen_BN) + answers_BN).unsqueeze(0) % X
        return nn.functional.one_hot(at_1BN, X).float()

    def _late(self, own_N: Tensor, seen_BN: Tensor) -> Tensor:
        return (self.step_size > 0) & (own_N != (seen_BN + self.step_size - 1) // max(1, self.step_size))


@pytest.mark.parametrize("wrong", [(), (1,), (0, 3), (0, 1, 2, 3)])
def test_a_full_state_needs_every_box(wrong):
    """With one of four boxes wrong in every prompt the full state is never right, and three questions in four are."""
    task = parse_task("swap-s4")
    words = CompactRendering(task, 3)
    curve = measure(Oracle(task, words, wrong=wrong), task, words)
    assert curve.single_query == (1 - len(wrong) / 4,) * len(DEPTHS)
    assert curve.full_state == (0.0 if wrong else 1.0,) * len(DEPTHS)


@pytest.mark.parametrize("step_size", [1, 2, 3])
def test_every_depth_is_read_at_its_own_iteration(step_size):
    """A model that is right at iteration ceil(d / c) and at no other is right at every depth."""
    task = parse_task("swap-s4")
    words = CompactRendering(task, 3)
    curve = measure(Oracle(task, words, step_size=step_size), task, words, step_size=step_size)
    assert curve.full_state == (1.0,) * len(DEPTHS)
    other = measure(Oracle(task, words, step_size=step_size), task, words, step_size=step_size + 1)
    assert min(other.full_state) == 0


@pytest.mark.parametrize(("rendering", "name"), [("compact", "swap-s3"), ("text", "s4-full")])
def test_the_batch_size_changes_nothing(rendering, name):
    """Whatever the batch size, with a last batch that is partial or far from full, each prompt counts once.

    Exactly: whether an accuracy reaches one half must not hang on how thirds were added up.
    """
    model, task, words = tiny(rendering, name)
    curves = [measure(model, task, words, depths=(2, 5), batch_size=size) for size in (1, 4, 13, 30)]
    assert curves == curves[:1] * 4


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_restored(training):
    """A model in training is in training afterwards, one in evaluation is still in evaluation."""
    model, task, words = tiny()
    model.train(training)
    measure(model, task, words)
    assert all(module.training == training for module in model.modules())


def test_evaluation_leaves_no_gradient():
    """No graph is built, no parameter has a gradient after a curve, and none has moved."""
    model, task, words = tiny()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    graphs: list[bool] = []
    model.head.register_forward_hook(lambda head, args, logits: graphs.append(logits.requires_grad))
    measure(model, task, words)
    assert set(graphs) == {False}
    assert all(p.grad is None and torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_counts_are_told_batch_by_batch():
    """After each batch the listener gets the counts so far."""
    heard: list[Tally] = []
    curve = measure(*tiny(), keep=heard.append)
    assert [tally.prompts for tally in heard] == [5, 10, 13]
    assert [right / 13 for right in heard[-1].full_D] == list(curve.full_state)


def measure_sharded(rank: int, out: Path) -> None:
    """Two workers measure three, then two batches together."""
    model, task, words = tiny()
    mesh = data_mesh()
    shard(model, mesh)
    curves = [measure(model, task, words, mesh=mesh, batch_size=size) for size in (5, 7)]
    torch.save(curves, out / f"{rank}.pt")


@pytest.mark.dist
def test_two_workers_measure_what_one_does(tmp_path):
    """Workers that take turns at the batches, an odd number of them included, both have the curve of one worker."""
    run_processes(2, measure_sharded, tmp_path)
    wanted = measure(*tiny())
    for rank in (0, 1):
        assert torch.load(tmp_path / f"{rank}.pt", weights_only=False) == [wanted, wanted]


class Stopped(Exception):
    """Raised where a test stops an evaluation."""


@pytest.mark.parametrize("stop_after", [1, 2])
def test_an_interrupted_evaluation_goes_on_from_its_last_batch(tmp_path, stop_after):
    """Stopped after any batch and begun with the saved counts, it ends with the same curve and reads no batch twice."""
    model, task, words = tiny()
    owner, folder, tallies = {"step": 20}, Objects.at(tmp_path), []

    def keep(tally: Tally) -> None:
        tallies.append(tally.prompts)
        tally.save(folder, owner)
        if len(tallies) == stop_after:
            raise Stopped

    with pytest.raises(Stopped):
        measure(model, task, words, keep=keep)
    begun = Tally.load(folder, owner, len(DEPTHS))
    again = measure(model, task, words, begun=begun, keep=keep)
    assert tallies == [5, 10, 13]
    assert again == measure(model, task, words)
    assert Tally.load(folder, {"step": 21}, len(DEPTHS)) == Tally.empty(len(DEPTHS))
    folder.put(COUNTS, folder.get(COUNTS)[:20])
    assert Tally.load(folder, owner, len(DEPTHS)) == Tally.empty(len(DEPTHS))


@pytest.mark.parametrize("name", ["swap-s3", "s4-full"])
def test_accuracy_does_not_depend_on_the_batch(name):
    """Whatever the number of prompts per pass, every accuracy is the same; the drift of the logits is rounding."""
    model, task, words = tiny("text", name)
    one, *others = (measure(model, task, words, batch_size=size) for size in (1, 4, 16))
    assert all(other == one for other in others)
    assert 0 <= batch_drift(exam(model, task, words, depths=(8,), batch_size=16)) < 1e-4


def test_drift_between_batches_is_measured():
    """A model whose answers depend on the size of its batch has that difference as its drift."""
    task = parse_task("swap-s4")
    words = CompactRendering(task, 3)

    class Leaky(Oracle):
        def read(self, packed: Packed, reading: OwnIteration) -> Tensor:
            return super().read(packed, reading) + 0.25 * len(packed.ids_BT)

    leaky = Leaky(task, words)
    assert batch_drift(exam(leaky, task, words, depths=(5,), batch_size=9)) == pytest.approx(0.25 * 7)

"""Label-free training: the teacher's answers on truncated prompts take the place of step labels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from par.model.packing import Branches, pack
from par.model.recurrence import Iterations
from par.objects import Objects
from par.tasks.prompts import Prompts
from par.tasks.streams import Split, examples
from par.testing import run_processes, tiny_run
from par.training import checkpoint
from par.training.loop import Trainer
from par.training.parallel import data_mesh

SETTINGS = {
    "forced": {},
    "hold": {"schedule": {"kind": "hold", "iterations": 4}},
    "two operations an iteration": {"recurrence__step_size": 2, "task__train_depth": 7},
    "one box, stretched": {
        "train__branches__boxes": "one",
        "stretch": {"enabled": True, "start": 0.0, "ramp": 0.0},
    },
    "halting": {"halting__mode": "learned", "schedule": {"kind": "forced", "overrun": 2}},
}


def trainer(**changes) -> Trainer:
    return Trainer(tiny_run(objective="prefix_distill", **changes))


def teaching_step(student: Trainer, *, taught: bool = True) -> int:
    """A step whose prompts are deep enough for a lesson (or not)."""
    return next(step for step in range(50) if (next(student.batches.micro_batches(step)).lesson is not None) == taught)


@pytest.mark.parametrize("settings", SETTINGS)
@torch.no_grad()
def test_one_pass_answers_every_truncation(settings):
    """What the teacher says at iteration k is its answer to a prompt truncated to c·k operations, read after k."""
    student = trainer(**SETTINGS[settings])
    run, task = student.run, student.batches.task
    step = teaching_step(student)
    (micro,) = student.batches.micro_batches(step)
    answers_KBNC = student.teacher.answers(micro.lesson, len(micro.plan.keep))
    depth = micro.depth.operations
    indices = step * run.train.batch_size + np.arange(run.train.batch_size)
    drawn = examples(task, seed=run.seed, split=Split.TRAIN, indices=indices, depth=depth)
    boxes_BN = student.batches._branches(step, micro.depth).boxes_BN
    stretch = micro.packed.positions_BT.max() / plain_positions(student, step).max()
    for place, k in enumerate(micro.plan.keep):
        length = run.recurrence.step_size * k
        if length >= depth or place not in micro.lesson.places:
            assert not answers_KBNC[place].any()
            continue
        cut = replace(drawn, operations_BD=drawn.operations_BD[:, :length])
        alone = Branches(np.full_like(boxes_BN, length), boxes_BN)
        packed = pack(student.rendering.render(cut), alone).stretched(float(stretch))
        logits_1BNC, _ = student.teacher.model(packed, Iterations(count=k, keep=(k,)))
        torch.testing.assert_close(answers_KBNC[place], logits_1BNC[0].softmax(-1), atol=1e-5, rtol=1e-4)


def plain_positions(student: Trainer, step: int) -> Tensor:
    settings = student.run.model_dump() | {"stretch": {"enabled": False}}
    plain = Trainer(type(student.run).model_validate(settings))
    return next(plain.batches.micro_batches(step)).packed.positions_BT


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_step_label_reaches_the_loss(settings, monkeypatch):
    """With wrong labels for every number of operations but the last the training is the same, bit for bit."""
    right = [report.loss for report in trainer(**SETTINGS[settings]).steps()]
    whole = Prompts.__getattribute__

    def scrambled(self: Prompts, name: str):
        value = whole(self, name)
        if name == "answers_BJN":
            value = value.copy()
            value[:, :-1] = (value[:, :-1] + 1) % value.shape[-1]
        return value

    monkeypatch.setattr(Prompts, "__getattribute__", scrambled)
    assert [report.loss for report in trainer(**SETTINGS[settings]).steps()] == right


def test_the_loss_is_the_divergence_from_the_teacher():
    """Before the answer is due it is KL(teacher ‖ student) in nats, then cross-entropy, averaged over iterations."""
    student = trainer()
    with torch.no_grad():
        for p in student.teacher.model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    step = teaching_step(student)
    (micro,) = student.batches.micro_batches(step)
    teacher_KBNC = student.teacher.answers(micro.lesson, len(micro.plan.keep)).double()
    loss, *_ = student._forward_backward([micro])
    with torch.no_grad():
        logits_KBNC, _ = student.model(micro.packed, micro.plan)
    logs_KBNC = logits_KBNC.double().log_softmax(-1)
    d, terms = micro.depth.operations, []
    for place, k in enumerate(micro.plan.keep):
        if k < d:
            p = teacher_KBNC[place]
            terms.append((p * (p.log() - logs_KBNC[place])).sum(-1).mean())
        else:
            final = micro.targets.answers_KBN[place].unsqueeze(-1)
            terms.append(-logs_KBNC[place].gather(-1, final).mean())
    assert loss.item() == pytest.approx(torch.stack(terms).mean().item(), rel=1e-5)
    assert any(term > 0.01 for term in terms[:-1])


def test_the_teacher_follows_slowly():
    """It starts as the student does, and after each step is decay times itself plus the rest of the student."""
    student = trainer(train__teacher_decay=0.75)
    pairs = list(zip(student.teacher.model.parameters(), student.model.parameters(), strict=True))
    assert all(torch.equal(own, other) for own, other in pairs)
    wanted = [own.clone() for own, _ in pairs]
    for _, _report in zip(range(3), student.steps(), strict=False):
        wanted = [0.75 * was + 0.25 * other.detach() for was, (_, other) in zip(wanted, pairs, strict=True)]
    for was, (own, _other) in zip(wanted, pairs, strict=True):
        torch.testing.assert_close(own, was, atol=1e-6, rtol=1e-5)
        assert own.grad is None
    assert any(not torch.equal(own, other) for own, other in pairs)


@pytest.mark.parametrize("stop", [1, 7, 11])
def test_a_resumed_teacher_is_one_that_never_stopped(tmp_path, stop):
    """Interrupted after any step, a run with a teacher ends with the same losses and bits: the checkpoint holds it."""
    whole = trainer()
    losses = [report.loss for report in whole.steps()]
    first = trainer()
    for report in first.steps():
        if report.step == stop:
            checkpoint.save(first, Objects.at(tmp_path), [])
            break
    again = trainer()
    checkpoint.resume(again, Objects.at(tmp_path))
    assert [report.loss for report in again.steps()] == losses[stop:]
    for one, other in ((whole.model, again.model), (whole.teacher.model, again.teacher.model)):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def losses_of_two(rank: int, out: Path) -> None:
    run = tiny_run(objective="prefix_distill", compute__workers=2, train__steps=8)
    sharded = Trainer(run, data_mesh())
    losses = [report.loss for report in sharded.steps()]
    teacher = [p.full_tensor() for p in sharded.teacher.model.parameters()]
    if rank == 0:
        torch.save((losses, teacher), out / "two")


@pytest.mark.dist
def test_two_workers_teach_as_one(tmp_path):
    """Sharded over two workers losses and the teacher's weights are those of one process."""
    run_processes(2, losses_of_two, tmp_path)
    losses, weights = torch.load(tmp_path / "two", weights_only=True)
    alone = trainer(train__steps=8)
    assert losses == pytest.approx([report.loss for report in alone.steps()], rel=1e-4)
    for found, wanted in zip(weights, alone.teacher.model.parameters(), strict=True):
        torch.testing.assert_close(found, wanted.detach(), atol=1e-4, rtol=1e-3)

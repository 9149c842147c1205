"""Sharded equals single: real gloo processes against one process."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from par.evaluation.exam import Exam
from par.objects import Objects
from par.testing import run_processes, tiny_run
from par.training import checkpoint
from par.training.loop import Trainer
from par.training.parallel import data_mesh


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def first_gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    trainer._forward_backward(trainer.batch())
    return {name: whole(p.grad).clone() for name, p in trainer.model.named_parameters() if p.grad is not None}


def train(trainer: Trainer) -> tuple[list[float], dict[str, torch.Tensor]]:
    losses = [report.loss for report in trainer.steps()]
    return losses, {name: whole(p.detach()).clone() for name, p in trainer.model.named_parameters()}


CASES = {
    "tied": {},
    "micro-batches": {"compute__micro_batch": 2, "train__branches__prefixes": 2, "train__query_reset": 0.5},
    "untied-halting": {"backbone": "tiny-qwen2-untied", "halting__mode": "learned"},
    "muon": {"optim__matrices": "muon"},
}


class Collectives(TorchDispatchMode):
    """Counts the collective operations that run within."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("c10d", "_c10d_functional"):
            self.names[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def collectives_of_a_step(mesh, iterations: int) -> Counter[str]:
    fixed = {"schedule__kind": "fixed", "schedule__iterations": iterations, "compute__workers": 2}
    trainer = Trainer(tiny_run(**fixed), mesh)
    steps = trainer.steps()
    next(steps)
    with Collectives() as counted:
        next(steps)
    return counted.names


@torch.no_grad()
def collectives_of_a_reading(mesh, depth: int) -> Counter[str]:
    """Of one pass that is read once, at the iteration that completes the depth; it is not the first of its model."""
    trainer = Trainer(tiny_run(compute__workers=2), mesh)
    exam = replace(Exam.of(trainer.run, trainer.model, trainer.rendering, mesh), depths=(depth,))
    exam.read(np.arange(2), exam.own_reads())
    with Collectives() as counted:
        exam.read(np.arange(2), exam.own_reads())
    return counted.names


def record(rank: int, out: Path) -> None:
    mesh = data_mesh()
    counts = [collectives_of_a_step(mesh, R) for R in (4, 32)], [collectives_of_a_reading(mesh, R) for R in (4, 32)]
    if rank == 0:
        torch.save(counts, out / "collectives")
    for name, changes in CASES.items():
        run = tiny_run(train__steps=5, compute__workers=2, **changes)
        found = first_gradients(Trainer(run, mesh)), *train(Trainer(run, mesh))
        trainer = Trainer(run, mesh)
        checkpoint.save(trainer, Objects.at(out / f"{name}-checkpoints"), [])
        checkpoint.resume(trainer, Objects.at(out / f"{name}-checkpoints"))
        tied = trainer.model.head.weight is trainer.model.embed.weight
        if rank == 0:
            torch.save((*found, tied), out / name)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    out = tmp_path_factory.mktemp("two_workers")
    run_processes(2, record, out)
    return out


@pytest.mark.dist
@pytest.mark.parametrize("case", CASES)
def test_sharded_equals_single(two_workers, case):
    """Two workers have the loss, the gradients and, after training, the parameters of one (T2 T17).

    Muon orthogonalises in bfloat16, whose rounding depends on how a sum is cut: its updates agree to that precision.
    """
    atol = 1e-3 if case == "muon" else 1e-5
    gradients_2, losses_2, parameters_2, _ = torch.load(two_workers / case)
    run = tiny_run(train__steps=5, **CASES[case])
    gradients_1 = first_gradients(Trainer(run))
    losses_1, parameters_1 = train(Trainer(run))
    torch.testing.assert_close(gradients_2, gradients_1, atol=1e-5, rtol=0)
    torch.testing.assert_close(losses_2, losses_1, atol=atol, rtol=0)
    torch.testing.assert_close(parameters_2, parameters_1, atol=10 * atol, rtol=0)


@pytest.mark.dist
def test_collectives_do_not_depend_on_iterations(two_workers):
    """32 iterations gather and reduce as often as 4, in training and in reading: the recurrence is one unit."""
    for few, many in torch.load(two_workers / "collectives", weights_only=False):
        assert few == many
        assert sum(count for name, count in few.items() if "gather" in name) > 0


@pytest.mark.dist
def test_tied_matrix_stays_one_parameter(two_workers):
    """After sharding, saving and loading, a tied embedding and head are one parameter, and an untied pair two (T1)."""
    _, _, parameters, tied = torch.load(two_workers / "tied")
    assert tied
    assert "head.weight" not in parameters
    _, _, parameters, tied = torch.load(two_workers / "untied-halting")
    assert not tied
    assert "head.weight" in parameters

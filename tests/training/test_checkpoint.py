"""Resumed equals never stopped, whoever dies and whoever goes on."""

from pathlib import Path

import pytest
import torch

from par.config.run import RunConfig
from par.errors import CheckpointError
from par.objects import Objects
from par.testing import FailAt, WorkerLost, run_processes, tiny_run
from par.training import checkpoint
from par.training.loop import Trainer
from par.training.parallel import data_mesh

STEPS = 12


def train_to_end(run: RunConfig, folder: Path | str, hook=lambda report: None, mesh=None) -> Trainer:
    """Go on from the last commit, committing every ``checkpoint_every`` steps."""
    trainer, checkpoints = Trainer(run, mesh), Objects.at(folder)
    history = checkpoint.resume(trainer, checkpoints)
    for report in trainer.steps():
        history.append({"step": report.step, "loss": report.loss})
        if report.step % run.compute.checkpoint_every == 0:
            checkpoint.save(trainer, checkpoints, history)
        hook(report)
    trainer.history = history
    return trainer


def parameters(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in trainer.model.named_parameters()}


@pytest.mark.parametrize("kill_at", [1, 5, 7, 11])
@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_resume_equals_never_stopped(tmp_path, kill_at, matrices):
    """A run killed after any step and resumed ends with the same bits and the same reports as one left alone."""
    run = tiny_run(train__steps=STEPS, optim__matrices=matrices, train__query_reset=0.5, stretch__enabled=True)
    whole = train_to_end(run, tmp_path / "whole")
    with pytest.raises(WorkerLost):
        train_to_end(run, tmp_path / "killed", FailAt(kill_at))
    again = train_to_end(run, tmp_path / "killed")
    assert again.history == whole.history
    for name, value in parameters(again).items():
        assert torch.equal(value, parameters(whole)[name]), name


def first_half(rank: int, run: RunConfig, folder: Path | str) -> None:
    with pytest.raises(WorkerLost):
        train_to_end(run, folder, FailAt(7), data_mesh())


def second_half(rank: int, run: RunConfig, folder: Path | str, out: Path) -> None:
    trainer = train_to_end(run, folder, mesh=data_mesh())
    whole = {name: p.full_tensor() for name, p in parameters(trainer).items()}
    if rank == 0:
        torch.save((trainer.history, whole), out)


@pytest.mark.dist
def test_resume_on_another_number_of_workers(tmp_path):
    """One worker goes on where two stopped, and two where one stopped, as if the number had never changed (T5)."""
    slow = {"train__steps": STEPS, "optim__lr": 1e-3, "optim__adapter_lr": 1e-3}
    one, two = tiny_run(**slow), tiny_run(**slow, compute__workers=2)
    whole = train_to_end(one, tmp_path / "whole")
    with pytest.raises(WorkerLost):
        train_to_end(one, tmp_path / "one_two", FailAt(7))
    run_processes(2, first_half, two, tmp_path / "two_one")
    run_processes(2, second_half, two, tmp_path / "one_two", tmp_path / "one_two.pt")
    after_two = train_to_end(one, tmp_path / "two_one")
    losses, values = torch.load(tmp_path / "one_two.pt")
    for history in (after_two.history, losses):
        assert [r["loss"] for r in history] == pytest.approx([r["loss"] for r in whole.history], abs=1e-6)
    for name, value in parameters(whole).items():
        torch.testing.assert_close(values[name], value, atol=1e-5, rtol=0)
        torch.testing.assert_close(parameters(after_two)[name], value, atol=1e-5, rtol=0)


@pytest.mark.dist
def test_an_object_store_holds_checkpoints(tmp_path, s3):
    """Two workers that save to an object store and stop are gone on from by one, as if nothing had happened."""
    slow, place = {"train__steps": STEPS, "optim__lr": 1e-3, "optim__adapter_lr": 1e-3}, s3.format("two_one")
    whole = train_to_end(tiny_run(**slow), tmp_path)
    run_processes(2, first_half, tiny_run(**slow, compute__workers=2), place)
    assert checkpoint.committed_step(Objects.at(place)) == 5
    after = train_to_end(tiny_run(**slow), place)
    assert [r["loss"] for r in after.history] == pytest.approx([r["loss"] for r in whole.history], abs=1e-6)
    for name, value in parameters(whole).items():
        torch.testing.assert_close(parameters(after)[name], value, atol=1e-5, rtol=0)
    assert {path.split("/")[0] for path in Objects.at(place).sizes()} == {"step_00000010"}


def test_only_the_last_checkpoint_stays(tmp_path):
    """Each commit removes all others where none is better, partial ones included."""
    (tmp_path / "step_00000001").mkdir(parents=True)
    train_to_end(tiny_run(train__steps=STEPS), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["step_00000010"]


def test_another_runs_checkpoint_is_refused(tmp_path):
    """A checkpoint of another seed or configuration is never loaded."""
    train_to_end(tiny_run(train__steps=STEPS), tmp_path)
    with pytest.raises(CheckpointError, match="seed"):
        checkpoint.resume(Trainer(tiny_run(train__steps=STEPS, seed=1)), Objects.at(tmp_path))

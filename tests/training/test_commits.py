"""Which checkpoints exist, which stay, and what a full disk or a death leaves of them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from par.errors import CheckpointError, DiskFullError, FailureKind
from par.model.build import build_model
from par.objects import Objects
from par.testing import run_processes, tiny_run
from par.training import checkpoint, commits
from par.training.commits import MANIFEST, STATE, WEIGHTS
from par.training.loop import Trainer
from par.training.parallel import data_mesh
from tests.disks import fill

REPOSITORY = Path(__file__).resolve().parents[2]


def trained(steps: int, **changes) -> Trainer:
    trainer = Trainer(tiny_run(**changes))
    advance(trainer, steps)
    return trainer


def advance(trainer: Trainer, to: int) -> None:
    for report in trainer.steps():
        if report.step == to:
            return


def saved(folder: Objects, accuracies: dict[int, float | None], **changes) -> Trainer:
    """A trainer that has committed at these steps, with these accuracies."""
    trainer = Trainer(tiny_run(**changes))
    for step, accuracy in accuracies.items():
        advance(trainer, step)
        checkpoint.save(trainer, folder, [{"step": step}], accuracy=accuracy)
    return trainer


def parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def shard(checkpoint: Path) -> Path:
    return next((checkpoint / WEIGHTS).glob("*.distcp"))


def cut(file: Path, by: int) -> None:
    file.write_bytes(file.read_bytes()[:-by])


DAMAGES = {
    "no manifest": lambda last: (last / MANIFEST).unlink(),
    "truncated manifest": lambda last: cut(last / MANIFEST, 20),
    "empty manifest": lambda last: (last / MANIFEST).write_bytes(b""),
    "unreadable manifest": lambda last: (last / MANIFEST).write_bytes(b"\xff\xfe"),
    "manifest of something else": lambda last: (last / MANIFEST).write_text('{"format": 2}'),
    "missing shard": lambda last: shard(last).unlink(),
    "short shard": lambda last: cut(shard(last), 1),
    "no optimizer": lambda last: shutil.rmtree(last / STATE),
}


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory) -> Path:
    """A folder with the whole checkpoints of steps 2 and 4, as it is before the next save."""
    place, before = tmp_path_factory.mktemp("seed"), tmp_path_factory.mktemp("before")
    trainer = saved(Objects.at(place), {2: 0.75})
    shutil.copytree(place, before, dirs_exist_ok=True)
    advance(trainer, 4)
    checkpoint.save(trainer, Objects.at(place), [{"step": 4}], accuracy=0.5)
    shutil.copytree(before, place, dirs_exist_ok=True)
    return place


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_partial_checkpoint_does_not_exist(tmp_path, two_checkpoints, kind):
    """Without its manifest or a whole file it is passed over for the one before; the next save removes it (T4)."""
    shutil.copytree(two_checkpoints, tmp_path / "seed")
    DAMAGES[kind](tmp_path / "seed" / "step_00000004")
    folder, again = Objects.at(tmp_path / "seed"), Trainer(tiny_run())
    assert checkpoint.committed_step(folder) == 2
    assert checkpoint.resume(again, folder) == [{"step": 2}]
    assert again.step == 2
    advance(again, 3)
    checkpoint.save(again, folder, [], accuracy=1.0)
    assert names(tmp_path / "seed") == ["step_00000003"]


def test_a_checkpoint_of_another_format_is_refused(tmp_path):
    """What another par wrote is neither read nor taken for a partial checkpoint and removed."""
    folder = Objects.at(tmp_path)
    saved(folder, {2: None})
    manifest = tmp_path / "step_00000002" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(CheckpointError, match="format=3"):
        commits.tidy(folder)
    assert names(tmp_path) == ["step_00000002"]


def test_fields_of_a_newer_par_are_passed_over(tmp_path):
    """A manifest of the same format with a field that is not known here is read."""
    folder = Objects.at(tmp_path)
    saved(folder, {2: None})
    manifest = tmp_path / "step_00000002" / MANIFEST
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"new": 1}))
    assert checkpoint.committed_step(folder) == 2


def test_the_last_and_the_best_stay(tmp_path):
    """While a seed trains the last checkpoint is whole; of the best, of equals the later, the weights stay (T11)."""
    folder = Objects.at(tmp_path)
    saved(folder, {1: 0.5, 2: 0.75, 3: 0.75, 4: 0.25, 5: None})
    assert names(tmp_path) == ["step_00000003", "step_00000005"]
    assert names(tmp_path / "step_00000003") == [MANIFEST, "history.json", WEIGHTS]
    assert names(tmp_path / "step_00000005") == [MANIFEST, "history.json", STATE, WEIGHTS]
    assert checkpoint.committed_step(folder) == 5


def test_weights_alone_give_the_same_logits(tmp_path):
    """Of a seed that is done the last and the best weights stay, and answer as those that were trained (T11)."""
    folder, run = Objects.at(tmp_path), tiny_run(objective="prefix_distill", train__query_reset=0.5)
    trainer, whole = Trainer(run), {}
    for step, accuracy in ((2, 0.5), (4, 0.25)):
        advance(trainer, step)
        checkpoint.save(trainer, folder, [], accuracy=accuracy)
        whole[step] = answers(trainer.model, trainer)
    full = sum(folder.sizes().values())
    commits.tidy(folder, done=True)
    assert sum(folder.sizes().values()) < full
    assert {path.split("/")[1] for path in folder.sizes()} == {MANIFEST, "history.json", WEIGHTS}
    for which, step in (("last", 4), ("best", 2)):
        model = build_model(run, trainer.rendering, seed=99)
        assert checkpoint.load_weights(model, folder, which).step == step
        assert torch.equal(answers(model, trainer), whole[step])


@torch.no_grad()
def answers(model: torch.nn.Module, trainer: Trainer) -> torch.Tensor:
    """Logits of the first training prompts."""
    micro = next(trainer.batches.micro_batches(0))
    return model(micro.packed, micro.plan)[0]


def test_weights_of_another_model_are_refused(tmp_path):
    """Neither a checkpoint that is not there nor one of another model is loaded; the message names what differs."""
    folder, trainer = Objects.at(tmp_path), Trainer(tiny_run())
    with pytest.raises(CheckpointError, match="no committed checkpoint"):
        checkpoint.load_weights(trainer.model, folder)
    checkpoint.save(trainer, folder, [])
    other = Trainer(tiny_run(halting__mode="learned", backbone="mini-qwen3")).model
    with pytest.raises(CheckpointError, match="of another model: model/"):
        checkpoint.load_weights(other, folder)


@pytest.mark.parametrize("done", [False, True])
def test_tidying_killed_at_any_moment_leaves_what_is_wanted(tmp_path, monkeypatch, two_checkpoints, done):
    """Whatever write or deletion is the last one, what is to stay is valid, and the next time completes."""
    survived, completed = 0, False
    while not completed:
        place = shutil.copytree(two_checkpoints, tmp_path / f"killed-{survived}")
        (place / "step_00000006").mkdir()
        folder = Objects.at(place)
        with monkeypatch.context() as patch:
            completed = tidied_until(patch, folder, survived, done=done)
        left = commits.committed(folder)
        assert [commit.step for commit in left] == [2, 4]
        assert left[-1].resumable or done
        commits.tidy(folder, done=done)
        found = {path.split("/")[0] for path in folder.sizes() if STATE in path.split("/")}
        assert found == (set() if done else {"step_00000004"})
        assert names(place) == ["step_00000002", "step_00000004"]
        survived += 1
    assert survived > 3


class Killed(BaseException):
    pass


def tidied_until(patch, folder: Objects, operations: int, *, done: bool) -> bool:
    """Tidy, dying before the operation with this number; True if there were not so many."""
    left = [operations]

    def dying(original):
        def operation(*args):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return original(*args)

        return operation

    for name in ("put", "delete", "delete_folder"):
        patch.setattr(Objects, name, dying(getattr(Objects, name)))
    try:
        commits.tidy(folder, done=done)
    except Killed:
        return False
    return True


@pytest.mark.parametrize("leaving", [0, 8192, 65536, 200_000])
def test_a_full_disk_leaves_the_previous_checkpoint(small_disk, leaving):
    """A save that does not fit says so, removes what it wrote, and training goes on from the one before it."""
    folder = Objects.at(small_disk / "seed")
    trainer = saved(folder, {2: 0.5})
    size = sum(folder.sizes().values())
    assert size > leaving, "the next checkpoint would fit"
    filler = fill(small_disk, leaving)
    advance(trainer, 4)
    with pytest.raises(DiskFullError, match=r"no space left in .*/seed/step_00000004.* bytes free.*par gc") as raised:
        checkpoint.save(trainer, folder, [], accuracy=0.5)
    assert raised.value.kind == FailureKind.DISK
    assert names(small_disk / "seed") == ["step_00000002"]
    again = Trainer(tiny_run())
    assert checkpoint.resume(again, folder) == [{"step": 2}]
    filler.unlink()
    advance(again, 4)
    checkpoint.save(again, folder, [], accuracy=0.5)
    assert equal(parameters(again.model), parameters(trainer.model))
    assert names(small_disk / "seed") == ["step_00000004"]


def save_on_a_full_disk(rank: int, disk: Path) -> None:
    """Both workers learn that the disk is full; then there is room, and both go on."""
    trainer, folder = Trainer(tiny_run(compute__workers=2), data_mesh()), Objects.at(disk / "seed")
    advance(trainer, 2)
    checkpoint.save(trainer, folder, [])
    if rank == 0:
        fill(disk, 8192)
    advance(trainer, 4)
    with pytest.raises(DiskFullError, match="step_00000004"):
        checkpoint.save(trainer, folder, [])
    assert checkpoint.committed_step(folder) == 2
    if rank == 0:
        (disk / "filler").unlink()
    advance(trainer, 5)
    assert checkpoint.save(trainer, folder, []).step == 5


@pytest.mark.dist
def test_a_full_disk_is_told_to_all_workers(small_disk):
    """Where one of several workers finds the disk full, all of them raise it and none waits for another."""
    run_processes(2, save_on_a_full_disk, small_disk)


DYING = """
import os, signal, sys
from pathlib import Path
from par.objects import Objects
from par.training import checkpoint, commits, shards
from tests.training.test_checkpoint import train_to_end
from par.testing import tiny_run

module, name, deadly = sys.argv[2], sys.argv[3], int(sys.argv[4])
owner = {"shards": shards, "commits": commits.Commit}[module]
original, calls = getattr(owner, name), []

def dying(*args, **keywords):
    calls.append(name)
    if len(calls) == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **keywords)

setattr(owner, name, dying)
train_to_end(tiny_run(train__steps=12), Path(sys.argv[1]))
"""


@pytest.mark.parametrize(("module", "name", "call"), [("shards", "save", 4), ("commits", "write", 2)])
def test_killed_between_shard_and_manifest(tmp_path, module, name, call):
    """SIGKILL before the optimizer's shards or the manifest: resumed, all bits are as if undisturbed (T4)."""
    from tests.training.test_checkpoint import train_to_end

    arguments = [sys.executable, "-c", DYING, str(tmp_path / "killed"), module, name, str(call)]
    died = subprocess.run(arguments, cwd=REPOSITORY, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert died.returncode == -signal.SIGKILL
    assert names(tmp_path / "killed") == ["step_00000005", "step_00000010"]
    assert list((tmp_path / "killed" / "step_00000010" / WEIGHTS).glob("*.distcp"))
    assert checkpoint.committed_step(Objects.at(tmp_path / "killed")) == 5
    run = tiny_run(train__steps=12)
    again, whole = train_to_end(run, tmp_path / "killed"), train_to_end(run, tmp_path / "whole")
    assert again.history == whole.history
    assert equal(parameters(again.model), parameters(whole.model))
    assert names(tmp_path / "killed") == ["step_00000010"]

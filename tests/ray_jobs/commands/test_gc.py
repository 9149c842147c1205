"""`par gc` on a sweep that drivers left behind, as a user runs it."""

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from par.ledger.lease import hold
from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, ConfigRecord, SeedResult, SweepRecord
from par.objects import Objects
from par.testing import tiny_run
from par.training import checkpoint
from par.training.commits import STATE, WEIGHTS
from par.training.loop import Trainer
from ray_jobs.cli import app
from ray_jobs.console import bytes_text

DRAFT = f".result.json.{'0' * 32}"


def par(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def rows(output: str) -> dict[str, list[str]]:
    """Files and size by kind, from the printed table."""
    lines = [line.strip("│").split("│") for line in output.splitlines() if line.startswith("│")]
    return {kind.strip(): [files.strip(), size.strip()] for kind, files, size in lines}


def left(storage: Path) -> set[str]:
    return {str(path.relative_to(storage)) for path in storage.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The checkpoints of a seed that was best at step 2 and died while it saved step 6."""
    place, trainer = tmp_path_factory.mktemp("seed"), Trainer(tiny_run())
    accuracies = {2: 0.9, 4: 0.5}
    for report in trainer.steps():
        if report.step in accuracies:
            checkpoint.save(trainer, Objects.at(place), [], accuracy=accuracies[report.step])
        if report.step == max(accuracies):
            break
    (place / "step_00000006" / WEIGHTS).mkdir(parents=True)
    (place / "step_00000006" / WEIGHTS / "__0_0.distcp").write_bytes(bytes(2000))
    return place


@pytest.fixture
def storage(tmp_path, trained) -> Path:
    """Seeds 0 done, 1 stopped, 2 with an attempt that has no end: all with the same checkpoints."""
    ledger = Ledger.create(tmp_path, "left", SweepRecord(space=""))
    record = ConfigRecord.of(tiny_run(), number=0, suggested={})
    ledger.add_config(record)
    for seed in range(3):
        attempt = ledger.begin_attempt(record.id, seed, Attempt(start="2026-01-01T00:00:00+00:00"))
        if seed < 2:
            ledger.end_attempt(record.id, seed, replace(attempt, end="2026-01-01T01:00:00+00:00"))
        shutil.copytree(trained, Path(ledger.checkpoints(record.id, seed).root))
    ledger.finish(record.id, 0, SeedResult(metrics={"G": 1.0}, step=4))
    for name in ("tune/20260101-000000/trial/params.json", "train/0123/snapshot.json"):
        ledger.objects.put(name, b"x" * 1000)
    for name, hours in ((DRAFT, 2), (DRAFT.replace("0", "1"), 0.5)):
        path = Path(ledger.objects.root, "configs", record.id, name)
        path.write_bytes(b"x" * 500)
        then = datetime.now(UTC).timestamp() - hours * 3600
        os.utime(path, (then, then))
    return tmp_path


def test_gc_frees_what_is_not_needed(storage, trained):
    """A dry run tells what a real one removes; no result, attempt, or seed that may run is touched (T11)."""
    before = left(storage)
    state = sum(path.stat().st_size for path in (trained / "step_00000004" / STATE).iterdir())
    code, told = par("gc", "left", "--storage", str(storage), "--dry-run")
    assert (code, left(storage)) == (0, before)
    assert rows(told) == {
        "partial checkpoints": ["2", "4 kB"],
        "replaced checkpoints": ["0", "0 B"],
        "training state of finished seeds": ["2", bytes_text(state)],
        "drafts of killed writers": ["1", "500 B"],
        "session files of Ray": ["0", "0 B"],
    }
    code, done = par("gc", "left", "--storage", str(storage))
    assert (code, rows(done)) == (0, rows(told))
    removed = before - left(storage)
    assert left(storage) - before == {"left/lease-1.json"}
    assert len(removed) == 5
    assert not [path for path in removed if "seed-2" in path or path.endswith(("result.json", "attempt-1.json"))]
    code, again = par("gc", "left", "--storage", str(storage), "--dry-run")
    assert {kind: files for kind, (files, _) in rows(again).items() if files != "0"} == {}


def test_what_gc_leaves_is_loaded_and_resumed(storage):
    """After gc a finished seed has its last and best weights, and one that stopped goes on from its last checkpoint."""
    assert par("gc", "left", "--storage", str(storage))[0] == 0
    ledger = Ledger.open(storage, "left")
    [config] = ledger.read().configs
    model = Trainer(tiny_run()).model
    assert checkpoint.load_weights(model, ledger.checkpoints(config.id, 0)).step == 4
    assert checkpoint.load_weights(model, ledger.checkpoints(config.id, 0), "best").step == 2
    assert checkpoint.committed_step(ledger.checkpoints(config.id, 1)) == 4


def test_ray_s_files_go_once_nothing_runs(storage):
    """Session files stay while a seed may be running; once its attempt has ended they and its partial checkpoint go."""
    ledger = Ledger.open(storage, "left")
    [config] = ledger.read().configs
    ledger.end_attempt(config.id, 2, replace(config.attempts(2)[0], end="2026-01-01T01:00:00+00:00"))
    code, output = par("gc", "left", "--storage", str(storage))
    assert code == 0
    assert rows(output)["session files of Ray"] == ["2", "2 kB"]
    assert rows(output)["partial checkpoints"] == ["3", "6 kB"]
    assert not (storage / "left" / "tune").exists()
    assert not (storage / "left" / "train").exists()


def test_gc_waits_for_the_driver(storage):
    """While a driver holds the lease of the sweep nothing is removed, and the message names the driver; exit code 2."""
    with hold(Ledger.open(storage, "left")):
        before = left(storage)
        code, output = par("gc", "left", "--storage", str(storage))
        assert code == 2
        assert f"pid {os.getpid()}" in output
        assert left(storage) == before


def test_gc_of_no_sweep(tmp_path):
    """A sweep that is not there is named, with those that are; exit code 2."""
    code, output = par("gc", "none", "--storage", str(tmp_path))
    assert code == 2
    assert "no sweep none" in output

"""A ledger that an earlier version wrote can be read, resumed and reported."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ray_jobs.cli import app
from tests.ray_jobs.sweeps import attempts, results, sweep

OLD = Path(__file__).parent / "old_ledger"
INTERRUPTED = "configs/45879d8c/seed-1"


@pytest.fixture
def storage(tmp_path):
    shutil.copytree(OLD / "old", tmp_path / "old")
    return tmp_path


def par(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_an_old_ledger_is_read(storage):
    """Its status names the seed that was interrupted and how to go on; its report is written."""
    status = par("status", "old", "--storage", storage)
    assert "Nobody drives it: go on with par resume old" in status
    assert "killed" in status
    par("report", "old", "--storage", storage)
    assert "Does a ledger of an earlier version go on?" in (storage / "old" / "report.html").read_text(encoding="utf-8")


@pytest.mark.ray
def test_an_old_ledger_goes_on(storage):
    """Finished seeds keep every byte, the interrupted one goes on from its checkpoint, and the sweep is complete."""
    before = results(storage, "old")
    code, output = sweep("--resume", "old", "--storage", str(storage))
    assert code == 0, output
    after = results(storage, "old")
    assert len(before) == 3
    assert before == {path: after[path] for path in before}
    assert after.keys() - before.keys() == {f"{INTERRUPTED}/result.json"}
    lives = {path: life for path, life in attempts(storage, "old").items() if INTERRUPTED in path}
    assert [life.get("failure") for life in lives.values()] == ["STOPPED", None]
    assert [life["resumed_at"] for life in lives.values()] == [0, 20]
    assert "Every seed has a result" in par("status", "old", "--storage", storage)

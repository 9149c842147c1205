"""`par status` and `par sync` as a user types them."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from par.ledger.lease import hold
from par.ledger.ledger import Ledger
from par.ledger.records import Verdict
from par.statistics.scores import lower_bound
from ray_jobs.cli import app
from ray_jobs.console import BAD_INPUT
from ray_jobs.mlflow_runs.store import default_uri
from tests.ray_jobs.projected import (
    DIVERGED,
    begin,
    dump,
    everything,
    everything_finished,
    fail,
    finish,
    ids,
    new_ledger,
)
from tests.ray_jobs.sweeps import REPOSITORY

HEAVY = {"ray", "torch", "mlflow", "optuna", "transformers"}


def par(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"MLFLOW_TRACKING_URI": None})


def row(output: str, start: str) -> list[str]:
    """The cells of the table row that begins with ``start``."""
    line = next(line for line in output.splitlines() if line.startswith(f"│ {start}"))
    return [cell.strip() for cell in line.strip("│").split("│")]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return new_ledger(tmp_path)


def test_all_sweeps_in_one_table(ledger):
    """A row per sweep: seeds done, failed, running and to do of the whole sweep, its best score and its driver."""
    first, second = ids(ledger)
    finish(ledger, first, 0)
    finish(ledger, first, 1, DIVERGED)
    ledger.give_verdict(first, Verdict(score=0.5, seeds=(0, 1)))
    fail(ledger, second, 0, "HANG")
    begin(ledger, second, 1)
    Ledger.create(ledger.storage, "other", ledger.sweep)
    assert row(par("status", "--storage", ledger.storage).output, "demo")[:7] == [
        "demo",
        "2/2",
        "2",
        "1",
        "0",
        "1",
        "0.500",
    ]
    with hold(ledger):
        output = par("status", "--storage", ledger.storage).output
    assert row(output, "demo")[:7] == ["demo", "2/2", "2", "1", "1", "0", "0.500"]
    assert "@" in row(output, "demo")[8]
    assert row(output, "other")[:7] == ["other", "0/2", "0", "0", "0", "4", "-"]


def test_one_sweep_seed_by_seed(ledger):
    """Each seed shows its G, its kind of failure, or where it stands, with its attempts; then what failed, and why."""
    first, second = ids(ledger)
    fail(ledger, first, 0, "OOM_GPU")
    finish(ledger, first, 0)
    finish(ledger, first, 1, DIVERGED)
    fail(ledger, second, 0, "HANG", "a [strange] message")
    output = par("status", "demo", "--storage", ledger.storage).output
    assert row(output, first)[1:] == ["4.00 ×2", "0 (NUMERIC)", f"{lower_bound([0.25, 0.0]):.3f}"]
    assert row(output, second)[1:] == ["HANG", "waiting", "-"]
    assert row(output, "HANG")[1:] == ["1", f"{second} seed 0", "a [strange] message"]
    assert row(output, "NUMERIC")[1:] == ["1", f"{first} seed 1", "loss=nan"]
    assert f"go on with par resume demo --storage {ledger.storage}" in output


def test_what_is_given_up_has_its_command(ledger):
    """A seed that failed too often is counted by its kind, beside the whole command that starts it again."""
    for _ in range(2):
        fail(ledger, ids(ledger)[0], 0, "HANG")
    output = par("status", "demo", "--storage", ledger.storage).output
    assert f"(HANG 1) start again with par resume demo --storage {ledger.storage} --failed" in output


def test_a_running_sweep_has_a_status(ledger):
    """While a driver lives, an attempt without an end runs; once the driver is gone it was killed (J7)."""
    first, _ = ids(ledger)
    begin(ledger, first, 0)
    with hold(ledger):
        output = par("status", "demo", "--storage", ledger.storage).output
    assert row(output, first)[1].startswith("running ")
    assert "drives it on" in output
    output = par("status", "demo", "--storage", ledger.storage).output
    assert row(output, first)[1] == "killed"
    assert "par resume demo" in output


def test_a_complete_sweep_needs_nothing(ledger):
    """Nothing is left to type when every seed has a result."""
    everything_finished(ledger)
    output = par("status", "demo", "--storage", ledger.storage).output
    assert "Every seed has a result." in output
    assert "resume" not in output


def test_a_damaged_sweep_hides_no_other(ledger):
    """The others are shown, and what is wrong with the damaged one is said."""
    Ledger.create(ledger.storage, "other", ledger.sweep)
    (Path(ledger.storage) / "other" / "sweep.json").write_text('{"format": 99}')
    output = par("status", "--storage", ledger.storage).output
    assert row(output, "demo")[0] == "demo"
    assert "format=99" in output


@pytest.mark.parametrize("command", ["status", "sync"])
def test_an_unknown_sweep_is_refused(ledger, command):
    """Exit code 2 and one line that names the sweeps that exist."""
    done = par(command, "nothing", "--storage", ledger.storage)
    assert done.exit_code == BAD_INPUT
    assert "sweeps there: demo" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("status", "demo"), ("export", "demo", "--csv", "FOLDER/seeds.csv")])
def test_a_light_command_loads_no_heavy_library(ledger, arguments):
    """It answers in a moment, without Ray, torch, Optuna or MLflow."""
    typed = [word.replace("FOLDER", ledger.storage) for word in (*arguments, "--storage", ledger.storage)]
    script = (
        "import sys; from ray_jobs.cli import app\n"
        f"app({typed!r}, standalone_mode=False)\n"
        f"assert not {HEAVY!r} & sys.modules.keys(), {HEAVY!r} & sys.modules.keys()\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    assert time.monotonic() - began < 30


def test_sync_writes_what_is_missing_and_then_nothing(ledger, empty_store):
    """An empty store gets all runs; a second call leaves every row of it as it is (M1)."""
    shutil.copy(empty_store, ledger.storage)
    everything_finished(ledger)
    done = par("sync", "demo", "--storage", ledger.storage)
    assert done.exit_code == 0, done.output
    assert "7 runs in MLflow" in done.output
    database = Path(ledger.storage) / "mlflow.db"
    before = dump(database)
    assert "nothing to do" in par("sync", "demo", "--storage", ledger.storage).output
    assert dump(database) == before
    assert {status for status, *_ in everything(default_uri(ledger.storage)).values()} == {"FINISHED"}


def test_sync_closes_what_a_dead_driver_left_open(ledger, empty_store):
    """RUNNING stays while the driver lives, and becomes KILLED once it is dead; the sweep likewise (M3)."""
    shutil.copy(empty_store, ledger.storage)
    first, _ = ids(ledger)
    begin(ledger, first, 0)

    def states() -> set[str]:
        assert par("sync", "demo", "--storage", ledger.storage).exit_code == 0
        return {status for status, *_ in everything(default_uri(ledger.storage)).values()}

    with hold(ledger):
        assert states() == {"RUNNING"}
    assert states() == {"KILLED"}


@pytest.mark.parametrize("uri", ["foo://bar", "http://127.0.0.1:9"])
def test_a_store_that_does_not_answer_is_refused(ledger, uri):
    """Exit code 2 and one line that names the store."""
    done = par("sync", "demo", "--storage", ledger.storage, "--tracking-uri", uri)
    assert done.exit_code == BAD_INPUT
    assert f"--tracking-uri {uri}" in done.stderr
    assert "Traceback" not in done.stderr

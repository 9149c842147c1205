"""`par report` as a user types it."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from par.ledger.ledger import Ledger
from ray_jobs.cli import app
from ray_jobs.console import BAD_INPUT
from tests.ray_jobs.projected import DIVERGED, everything_finished, finish, ids, new_ledger
from tests.ray_jobs.sweeps import REPOSITORY

HEAVY = {"ray", "torch", "mlflow", "optuna", "transformers"}


def report(*arguments: str):
    return CliRunner().invoke(app, ["report", *arguments])


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return new_ledger(tmp_path)


def test_the_page_lies_beside_the_results(ledger):
    """Without --out the page is STORAGE/NAME/report.html, which the command names with its size; again it is new."""
    first, _ = ids(ledger)
    finish(ledger, first, 0)
    done = report("demo", "--storage", ledger.storage)
    assert done.exit_code == 0, done.output
    path = Path(ledger.storage) / "demo" / "report.html"
    assert f"{path} (" in done.output.replace("\n", "")
    assert "Not complete" in path.read_text()
    finish(ledger, first, 1, DIVERGED)
    assert report("demo", "--storage", ledger.storage).exit_code == 0
    assert "loss=nan" in path.read_text()


def test_out_names_the_file(ledger, tmp_path):
    """--out writes there, and nothing beside the results."""
    everything_finished(ledger)
    assert report("demo", "--storage", ledger.storage, "--out", str(tmp_path / "mine.html")).exit_code == 0
    assert "Complete: 4 seeds have a result" in (tmp_path / "mine.html").read_text()
    assert not (Path(ledger.storage) / "demo" / "report.html").exists()


def test_bad_input_is_refused(ledger, tmp_path):
    """A sweep that is not there or is damaged, a name that is none, a file that cannot be: one line and exit code 2."""
    Ledger.create(ledger.storage, "damaged", ledger.sweep)
    (Path(ledger.storage) / "damaged" / "sweep.json").write_text('{"format": 1, "space"')
    nowhere = tmp_path / "no" / "folder" / "r.html"
    for arguments, said in (
        (["nothing"], "sweeps there: damaged, demo"),
        (["../demo"], "must be a plain name"),
        (["damaged"], "sweep.json"),
        (["demo", "--out", str(nowhere)], f"--out {nowhere}: No such file or directory"),
    ):
        done = report(*arguments, "--storage", ledger.storage)
        assert done.exit_code == BAD_INPUT, arguments
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert "Traceback" not in done.stderr


def test_report_loads_no_heavy_library(ledger):
    """It needs neither Ray nor torch, Optuna or MLflow."""
    script = (
        "import sys; from ray_jobs.cli import app\n"
        f"app(['report', 'demo', '--storage', {ledger.storage!r}], standalone_mode=False)\n"
        f"assert not {HEAVY!r} & sys.modules.keys(), {HEAVY!r} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)

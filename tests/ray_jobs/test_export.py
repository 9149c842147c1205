"""`par export` as a user types it, read back with pyarrow, the csv module and stock Optuna."""

import csv

import optuna
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from par.study.lease import hold
from par.study.ledger import Ledger, SeedResult
from par.study.recorded import recorded_space
from par.study.statistics.scores import lower_bound
from ray_jobs.cli import app
from ray_jobs.terminal import BAD_INPUT
from tests.ray_jobs.projected import DIVERGED, SPACE, fail, finish, ids, new_ledger

GOOD = SeedResult(metrics={"G": 4.0, "censored": 0.0, "extrapolation_auc": 0.5})


def export(ledger: Ledger, *arguments: str):
    return CliRunner().invoke(app, ["export", "demo", "--storage", ledger.storage, *arguments])


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    """The first configuration has both seeds, one of them diverged; of the other one a seed failed, one never began."""
    ledger = new_ledger(tmp_path)
    first, second = ids(ledger)
    finish(ledger, first, 0, GOOD)
    finish(ledger, first, 1, DIVERGED)
    fail(ledger, second, 0, "HANG")
    return ledger


def test_every_wanted_seed_has_a_row(ledger, tmp_path):
    """Both files have a row for each seed, failed and missing ones too, with types, and the space beside it (X10)."""
    done = export(ledger, "--parquet", str(tmp_path / "a.parquet"), "--csv", str(tmp_path / "a.csv"))
    assert done.exit_code == 0, done.output
    table, space = parquet.read_table(tmp_path / "a.parquet"), recorded_space(ledger)
    rows = [(row["seed"], row["status"], row["failure"], row["score"]) for row in table.to_pylist()]
    assert rows == [(0, "done", None, 0.5), (1, "done", "NUMERIC", 0.0), (0, "failed", "HANG", None),
                    (1, "waiting", None, None)]  # fmt: skip
    assert table["recurrence.gradient_window"].to_pylist() == [2, 2, 3, 3]
    assert table.schema.field("recurrence.gradient_window").type == pa.int64()
    metadata = {key: table.schema.metadata[key.encode()].decode() for key in ("par.sweep", "par.space")}
    assert metadata == {"par.sweep": "demo", "par.space": SPACE}
    assert table.schema.metadata[b"par.space_fingerprint"].decode() == space.fingerprint()
    with (tmp_path / "a.csv").open() as file:
        text = list(csv.DictReader(file))
    assert list(text[0]) == table.column_names
    assert [row["status"] for row in text] == [row["status"] for row in table.to_pylist()]
    assert [row["score"] for row in text] == ["0.5", "0", "", ""]


def test_only_a_full_rung_is_complete(ledger, tmp_path):
    """A judged configuration has its score, each rung an intermediate value; another runs or fails, unscored (X5)."""
    states = {}
    for name in ("alone", "driven"):
        url = f"sqlite:///{tmp_path}/{name}.db"
        if name == "driven":
            with hold(ledger):
                assert export(ledger, "--optuna", url).exit_code == 0
        else:
            assert export(ledger, "--optuna", url).exit_code == 0
        study = optuna.load_study(study_name="demo/tiny-qwen2", storage=url)
        states[name] = [trial.state.name for trial in study.trials]
        assert study.best_trial.value == lower_bound([0.5, 0.0])
        assert study.best_trial.intermediate_values == {2: study.best_trial.value}
        assert study.best_trial.params == {"recurrence.gradient_window": 2}
        attributes = study.best_trial.user_attrs
        assert (attributes["configuration"], attributes["scores"]) == (ids(ledger)[0], {"0": 0.5, "1": 0.0})
        assert attributes["failures"] == {"1": "NUMERIC"}
        assert (study.trials[1].value, study.trials[1].intermediate_values) == (None, {})
        study._storage._backend.engine.dispose()
    assert states == {"alone": ["COMPLETE", "FAIL"], "driven": ["COMPLETE", "RUNNING"]}


def test_nothing_that_exists_is_written_over(ledger, tmp_path):
    """A second export to the same file or study, and one to nowhere, ends with exit code 2 and what to do."""
    file, url = tmp_path / "a.csv", f"sqlite:///{tmp_path}/a.db"
    assert export(ledger, "--csv", str(file), "--optuna", url).exit_code == 0
    before = file.read_bytes()
    for arguments, hint in (
        (("--csv", str(file)), "name another file"),
        (("--optuna", url), "optuna delete-study"),
        (("--optuna", "a.db"), "sqlite:///studies.db"),
        ((), "give --parquet FILE"),
    ):
        done = export(ledger, *arguments)
        assert done.exit_code == BAD_INPUT
        assert hint in done.stderr
        assert "Traceback" not in done.stderr
    assert file.read_bytes() == before

"""`par export --optuna` as a user types it, read back with stock Optuna."""

import sqlite3
from contextlib import closing

import optuna
import pytest

from par.ledger.lease import hold
from par.ledger.ledger import Ledger
from par.statistics.scores import lower_bound
from tests.ray_jobs.exports import (
    BEST,
    CLIMBING,
    LOW,
    ONE,
    OTHER,
    RATES,
    exported,
    files_below,
    half_way,
    new_sweep,
    opened,
    refused,
    scored,
    trials_of,
    unfinished,
)
from tests.ray_jobs.projected import finish, ids


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return unfinished(tmp_path)


def test_only_a_full_rung_is_complete(ledger, tmp_path):
    """A judged configuration has its score, each rung an intermediate value; another runs or fails, unscored (X5)."""
    alone = trials_of(ledger, tmp_path / "alone.db")
    with hold(ledger):
        driven = trials_of(ledger, tmp_path / "driven.db")
    for judged, other in (alone, driven):
        assert (judged.state.name, judged.value) == ("COMPLETE", lower_bound([0.5, 0.0]))
        assert judged.intermediate_values == {2: judged.value}
        assert judged.params == {"recurrence.gradient_window": 2}
        attributes = judged.user_attrs
        assert (attributes["configuration"], attributes["scores"]) == (ids(ledger)[0], {"0": 0.5, "1": 0.0})
        assert attributes["failures"] == {"1": "NUMERIC"}
        assert (other.value, other.intermediate_values) == (None, {})
    assert [alone[1].state.name, driven[1].state.name] == ["FAIL", "RUNNING"]


def test_every_rung_is_an_intermediate_value(tmp_path):
    """A race is told rung by rung, by number of seeds, and its score is that of the last full one; a rung that lacks a
    seed, a confirmation that does, and fresh seeds are never part of a score (X5)."""
    ledger = half_way(tmp_path)
    trials = trials_of(ledger, tmp_path / "a.db")
    full = ((BEST, (1, 2, 4)), (CLIMBING, (1, 2)), (LOW, (1,)))
    rungs = [{seeds: lower_bound(scores[:seeds]) for seeds in counts} for scores, counts in full]
    assert [trial.intermediate_values for trial in trials] == rungs
    assert [trial.value for trial in trials] == [rung[max(rung)] for rung in rungs]
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    assert [trial.user_attrs["confirmation"] for trial in trials] == [None] * 3
    finish(ledger, ids(ledger)[0], 1001, scored(0.4))
    confirmed = trials_of(ledger, tmp_path / "b.db")[0]
    assert confirmed.user_attrs["confirmation"] == {"score": lower_bound([0.5, 0.4]), "seeds": [1000, 1001]}
    assert (confirmed.value, confirmed.intermediate_values) == (trials[0].value, rungs[0])


def test_each_backbone_is_a_study_of_its_own(tmp_path):
    """A study has the trials of its backbone alone, none if there are none yet; all are written, or none (X4)."""
    rest = f"backbones: [{ONE}, {OTHER}, mini-qwen3]\n{RATES}configurations: 6\nseeds: 1\n"
    proposals = [(ONE, 1e-4), (OTHER, 1e-4), (ONE, 1e-3)]
    ledger = new_sweep(tmp_path, rest, *((backbone, {"optim.lr": rate}) for backbone, rate in proposals))
    for config, score in zip(ids(ledger), (0.3, 0.6, 0.9), strict=True):
        finish(ledger, config, 0, scored(score))
    studies = exported(ledger, tmp_path / "a.db")
    found = {
        name: [(trial.params["optim.lr"], trial.user_attrs["scores"]["0"]) for trial in study.trials]
        for name, study in studies.items()
    }
    assert found == {"demo/tiny-qwen2": [(1e-4, 0.3), (1e-3, 0.9)], "demo/tiny-qwen3": [(1e-4, 0.6)],
                     "demo/mini-qwen3": []}  # fmt: skip
    assert all(name == f"demo/{study.user_attrs['par.backbone']}" for name, study in studies.items())
    url = f"sqlite:///{tmp_path}/b.db"
    with opened(url) as database:
        optuna.create_study(storage=database, study_name="demo/tiny-qwen3")
    assert "has a study demo/tiny-qwen3" in refused(ledger, "--optuna", url)
    with opened(url) as database:
        assert optuna.get_all_study_names(database) == ["demo/tiny-qwen3"]


@pytest.mark.parametrize("tables", [("notes",), ("studies", "students"), ()])
def test_a_foreign_database_is_left_as_it_is(ledger, tmp_path, tables):
    """One with other tables, even if one of them is called as Optuna's, and a file that is no database, are refused
    with their URL and what to do; neither they nor a table are written."""
    file = tmp_path / "school.db"
    if tables:
        with closing(sqlite3.connect(file)) as database:
            for table in tables:
                database.execute(f"create table {table} (name text)")
            database.commit()
    else:
        file.write_text("anything but a database\n" * 100)
    before, url = files_below(tmp_path), f"sqlite:///{file}"
    said = refused(ledger, "--optuna", url, "--csv", str(tmp_path / "a.csv"))
    assert f"--optuna {url} " in said
    assert "name another database" in said
    assert files_below(tmp_path) == before


def test_a_password_is_not_shown(ledger):
    """What is said of a database shows its URL without the user's name and password."""
    said = refused(ledger, "--optuna", "mysql://somebody:secret@nowhere/studies")
    assert "--optuna mysql://nowhere/studies cannot be used" in said
    assert "secret" not in said

"""What a person asks MLflow: each question is one filter, and each run says in words and few numbers how it went."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from par.ledger.ledger import ACCURACY, Ledger
from par.ledger.records import SeedResult, SweepRecord, Verdict
from par.seed.evaluate import to_parquet
from ray_jobs.mlflow_runs.projection import Projection
from ray_jobs.mlflow_runs.store import default_uri, open_store
from tests.ray_jobs.projected import DIVERGED, LATER, begin, fail, finish, ids, new_ledger
from tests.ray_jobs.sweeps import REPOSITORY

FRESH = 1000
FAR = SeedResult(metrics={"G": 16.0, "d50": 64.0, "censored": 1.0, "acc_16x": 0.9, "extrapolation_auc": 0.8})
NEAR = SeedResult(metrics={"G": 4.0, "d50": 16.0, "censored": 0.0, "acc_16x": 0.1, "extrapolation_auc": 0.2})
SCALARS = {
    "G_mean", "G_sd", "G_min", "success_16x", "success_lo", "success_hi", "n_seeds", "n_failed", "score", "gpu_hours",
}  # fmt: skip


def fill(ledger: Ledger) -> None:
    """The first configuration is confirmed, the second has a diverged seed, one that hangs, and one fresh result."""
    first, second = ids(ledger)
    for seed in (0, 1, FRESH, FRESH + 1):
        finish(ledger, first, seed, NEAR if seed == FRESH else FAR)
    ledger.give_verdict(first, Verdict(score=0.5, seeds=(0, 1)))
    ledger.give_verdict(first, Verdict(score=0.3, seeds=(FRESH, FRESH + 1), stage="confirm"))
    finish(ledger, second, 0, DIVERGED)
    fail(ledger, second, 1, "HANG", "no progress for 600 s")
    finish(ledger, second, FRESH, NEAR)


@pytest.fixture(scope="module")
def asked(tmp_path_factory, empty_store) -> tuple[Ledger, Projection]:
    """A sweep in a store beside another one, of the same settings and seeds."""
    folder = tmp_path_factory.mktemp("asked")
    shutil.copy(empty_store, folder)
    for name in ("demo", "other"):
        ledger = new_ledger(folder, name)
        fill(ledger)
        Projection(ledger, open_store(default_uri(folder))).sync(ledger.read(), status="KILLED")
    ledger = Ledger.open(folder, "demo")
    return ledger, Projection(ledger, open_store(default_uri(folder)))


def found(projection: Projection, text: str) -> list[Run]:
    return list(projection.runs.client.search_runs([projection.runs.experiment], text))


def run_of(projection: Projection, key: str) -> Run:
    [run] = found(projection, f"tags.`par.key` = '{key}'")
    return run


def documented() -> dict[str, str]:
    """The filters of docs/mlflow.md, by question."""
    rows = re.findall(r"^\| ([^|`]+) \| `` (.+) `` \|$", (REPOSITORY / "docs" / "mlflow.md").read_text(), re.MULTILINE)
    return dict(rows)


def test_each_question_is_one_filter(asked):
    """Every filter that docs/mlflow.md gives finds exactly the runs that answer its question."""
    ledger, projection = asked
    first, second = ids(ledger)
    configurations = {f"demo/{first}", f"demo/{second}"}
    searched = {f"demo/{first}/seed-{seed}" for seed in (0, 1)}
    sure = {f"demo/{first}/seed-{seed}" for seed in (FRESH, FRESH + 1)}
    fresh = sure | {f"demo/{second}/seed-{FRESH}"}
    other = {f"demo/{second}/seed-{seed}" for seed in (0, 1)}
    answers = {
        "all runs of a sweep": {"demo"} | configurations | searched | fresh | other,
        "the sweeps": {"demo"},
        "its configurations": configurations,
        "those of one backbone": configurations,
        "those that were confirmed": {f"demo/{first}"},
        "those of which at least half of the seeds reach 16 × d_train": {f"demo/{first}"},
        "those that the search flattered": {f"demo/{first}"},
        "the seeds of a configuration": searched | sure,
        "one seed in all configurations": {f"demo/{first}/seed-1", f"demo/{second}/seed-1"},
        "seeds of the search": searched | other,
        "seeds that the search never saw": fresh,
        "seeds that diverged": {f"demo/{second}/seed-0"},
        "seeds without a result": {f"demo/{second}/seed-1"},
        "seeds whose G is a lower bound": searched | {f"demo/{first}/seed-{FRESH + 1}"},
    }
    filters = documented()
    assert filters.keys() == answers.keys()
    for question, text in filters.items():
        runs = found(projection, text.replace("NAME", "demo").replace("CONFIG", first))
        keys = {run.data.tags["par.key"] for run in runs}
        assert {key for key in keys if key.startswith("demo")} == answers[question], question
        assert keys == answers[question] or question == "the sweeps"


def test_a_configuration_has_exactly_these_numbers(asked):
    """Aggregates over the search and, with a prefix of their own, over the fresh seeds, and what lies between (M12)."""
    ledger, projection = asked
    first, second = ids(ledger)
    metrics = run_of(projection, f"demo/{first}").data.metrics
    assert metrics.keys() == SCALARS | {f"confirm_{name}" for name in SCALARS} | {"optimism"}
    assert metrics["optimism"] == pytest.approx(0.8 - 0.5)
    assert (metrics["success_16x"], metrics["confirm_success_16x"]) == (1.0, 0.5)
    assert metrics["success_lo"] == pytest.approx(0.025**0.5)
    assert run_of(projection, f"demo/{second}").data.metrics == {}


def test_hours_are_those_of_all_attempts(beside_a_store):
    """A seed has the device-hours of its failed attempts, too, and its configuration those of the judged seeds."""
    [first, _] = ids(beside_a_store)
    for seed, seconds in ((0, (1800, 3600)), (1, (900,))):
        for life, devices_seconds in enumerate(seconds, start=1):
            begun = begin(beside_a_store, first, seed)
            if life == len(seconds):
                beside_a_store.finish(first, seed, NEAR)
            failure = None if life == len(seconds) else "HANG"
            ended = replace(begun, end=LATER, device_seconds=devices_seconds, failure=failure)
            beside_a_store.end_attempt(first, seed, ended)
    beside_a_store.give_verdict(first, Verdict(score=0.1, seeds=(0, 1)))
    projection = Projection(beside_a_store, open_store(default_uri(beside_a_store.storage)))
    projection.sync(beside_a_store.read(), status="KILLED")
    hours = {
        key: run_of(projection, f"demo/{first}{key}").data.metrics["gpu_hours"] for key in ("/seed-0", "/seed-1", "")
    }
    assert hours == {"/seed-0": 1.5, "/seed-1": 0.25, "": 1.75}


def test_the_number_of_metrics_does_not_grow_with_the_depths(beside_a_store):
    """A seed that was read at 500 depths has as many metrics as one that was read at three, and few (M12)."""
    first, _ = ids(beside_a_store)
    for seed in (0, 1):
        finish(beside_a_store, first, seed)
    grid = [{"depth": d, "single_query": 0.9, "full_state": 0.8, "sequences": 16} for d in range(1, 501)]
    beside_a_store.write_bytes(first, 1, ACCURACY, to_parquet(grid))
    projection = Projection(beside_a_store, open_store(default_uri(beside_a_store.storage)))
    projection.sync(beside_a_store.read(), status="KILLED")
    few, many = (run_of(projection, f"demo/{first}/seed-{seed}") for seed in (0, 1))
    assert few.data.metrics.keys() == many.data.metrics.keys()
    assert len(many.data.metrics) < 10
    points = MlflowClient(projection.runs.client.tracking_uri).get_metric_history(many.info.run_id, "eval/full_state")
    assert [point.step for point in points] == list(range(1, 501))


def test_a_run_says_how_it_went_worst_seed_first(asked):
    """The description names what was chosen, and lists every seed that has begun: open, failed, then by G."""
    ledger, projection = asked
    first, second = ids(ledger)
    texts = {
        key: run_of(projection, key).data.tags["mlflow.note.content"]
        for key in ("demo", f"demo/{first}", f"demo/{second}", f"demo/{second}/seed-1")
    }
    assert re.findall(r"- seed (\d+)", texts[f"demo/{first}"]) == ["1000", "0", "1", "1001"]
    assert "recurrence.gradient_window=2" in texts[f"demo/{first}"]
    assert "Search: score 0.500 over 2 seeds." in texts[f"demo/{first}"]
    assert "seed 1000, fresh: G = 4.00 (1 attempt, 0.00 device-hours)" in texts[f"demo/{first}"]
    assert re.findall(r"- (seed .*) \(", texts[f"demo/{second}"]) == [
        "seed 1: no result yet, HANG: no progress for 600 s",
        "seed 0: G = 0 (NUMERIC): loss=nan",
        "seed 1000, fresh: G = 4.00",
    ]
    assert "no progress for 600 s" in texts[f"demo/{second}/seed-1"]
    assert texts["demo"].startswith("**which?**\n\n2 configurations, 6 of 7 seeds done.")
    assert f"({first}): confirm 0.300 over 2 seeds, search 0.500 over 2 seeds" in texts["demo"]


def test_a_failure_that_is_past_is_no_answer(beside_a_store):
    """A seed that failed and then went through is no longer found by the kind of its failure."""
    first, _ = ids(beside_a_store)
    asked_for = f"tags.`par.failure` = 'HANG' AND tags.`par.config` = '{first}'"
    fail(beside_a_store, first, 0, "HANG")
    for expected in (1, 0):
        projection = Projection(beside_a_store, open_store(default_uri(beside_a_store.storage)))
        projection.sync(beside_a_store.read(), status="KILLED")
        assert len(found(projection, asked_for)) == expected
        if expected:
            finish(beside_a_store, first, 0)


def test_the_sweep_keeps_its_space_plan_and_environment(tmp_path, empty_store):
    """The sweep's run has the YAML, the plan as it was shown, and code and libraries as JSON."""
    shutil.copy(empty_store, tmp_path)
    record = SweepRecord(space="question: which?", plan="2 seeds", commit="abc", libraries={"ray": "2"})
    ledger = Ledger.create(tmp_path, "demo", record)
    projection = Projection(ledger, open_store(default_uri(tmp_path)))
    projection.sync(ledger.read(), status="FINISHED")
    run, client = projection.sweep_run(), projection.runs.client
    texts = {
        file.path: Path(client.download_artifacts(run.id, file.path, str(tmp_path))).read_text()
        for file in client.list_artifacts(run.id)
    }
    assert texts.keys() == {"space.yaml", "plan.txt", "environment.json"}
    assert (texts["space.yaml"], texts["plan.txt"]) == ("question: which?", "2 seeds")
    assert json.loads(texts["environment.json"]) == {
        "space_path": "space.yaml", "commit": "abc", "libraries": {"ray": "2"}, "format": 1,
    }  # fmt: skip

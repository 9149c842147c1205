"""MLflow is a projection of the ledger: running it again, from anywhere, changes nothing."""

import math
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
import pytest

from par.study.ledger import ACCURACY, HISTORY, ConfigRecord, Ledger, SeedResult, Verdict
from par.testing import tiny_run
from ray_jobs.store import default_uri, open_store
from ray_jobs.tracking import Projection, config_name
from ray_jobs.worker import to_parquet
from tests.ray_jobs.sweeps import REPOSITORY, runs

RECORDS = [{"step": step, "train/loss": 1.0 / step, "train/drift": 1.5} for step in (5, 10, 15)]
ACCURACIES = [{"depth": d, "single_query": 0.9, "full_state": 0.8, "sequences": 16} for d in (4, 8, 16)]


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory) -> Path:
    """A store with its tables made, which takes MLflow seconds."""
    folder = tmp_path_factory.mktemp("store")
    Projection(Ledger.create(folder, "none", {"space": ""}), open_store(default_uri(folder)))
    return folder / "mlflow.db"


@pytest.fixture
def ledger(tmp_path: Path, empty_store: Path) -> Ledger:
    shutil.copy(empty_store, tmp_path)
    ledger = Ledger.create(tmp_path, "demo", {"space": "question: which?"})
    for number, window in enumerate((2, 3)):
        run = tiny_run(recurrence__gradient_window=window)
        ledger.add_config(ConfigRecord.of(run, number=number, suggested={"recurrence.gradient_window": window}))
    return ledger


def finish(ledger: Ledger, config: str, seed: int, result: SeedResult) -> None:
    attempt = ledger.begin_attempt(config, seed, {"start": "now"})
    ledger.write_bytes(config, seed, HISTORY, to_parquet(RECORDS))
    ledger.write_bytes(config, seed, ACCURACY, to_parquet(ACCURACIES))
    ledger.finish(config, seed, result)
    ledger.end_attempt(config, seed, attempt, {"end": "later"})


def project(ledger: Ledger) -> Projection:
    """A new process would begin like this: nothing is remembered."""
    projection = Projection(ledger, open_store(default_uri(ledger.storage)))
    projection.sync(ledger.read(), status="RUNNING")
    return projection


def everything(ledger: Ledger) -> dict[str, object]:
    client = Projection(ledger, open_store(default_uri(ledger.storage))).client
    return {
        run.data.tags["par.key"]: (
            run.info.status,
            run.data.params,
            {
                name: [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            },
        )
        for run in runs(Path(ledger.storage))
    }


def test_projecting_again_changes_nothing(ledger):
    """A second projection by another process finds every run and logs no point again."""
    first, second = (config.id for config in ledger.read().configs)
    finish(ledger, first, 0, SeedResult(metrics={"G": 4.0}))
    finish(ledger, first, 1, SeedResult(metrics={"G": 0.0}, failure="NUMERIC", message="loss=nan"))
    ledger.give_verdict(first, Verdict(score=0.5, seeds=(0, 1), metrics={"G_mean": 2.0}))
    ledger.begin_attempt(second, 0, {"start": "now"})
    project(ledger)
    before = everything(ledger)
    project(ledger)
    assert everything(ledger) == before
    assert len(before) == 1 + 2 + 3
    assert before[f"demo/{first}/seed-0"][2]["train/loss"] == [(5, 1 / 5), (10, 1 / 10), (15, 1 / 15)]
    assert before[f"demo/{first}/seed-0"][2]["eval/full_state"] == [(4, 0.8), (8, 0.8), (16, 0.8)]


def test_a_diverged_seed_says_why(ledger):
    """Its run has the message and the step of the divergence; that of another seed has no message."""
    first = ledger.read().configs[0].id
    finish(
        ledger, first, 0, SeedResult(metrics={"G": 0.0, "diverged_step": 7.0}, failure="NUMERIC", message="loss=nan")
    )
    finish(ledger, first, 1, SeedResult(metrics={"G": 4.0}))
    project(ledger)
    found = {run.data.tags["par.key"]: run.data for run in runs(Path(ledger.storage))}
    diverged, other = (found[f"demo/{first}/seed-{seed}"] for seed in (0, 1))
    assert (diverged.tags["par.status"], diverged.tags["par.message"]) == ("NUMERIC", "loss=nan")
    assert diverged.metrics["diverged_step"] == 7
    assert "par.message" not in other.tags


def test_states_follow_the_ledger(ledger):
    """A done seed is FINISHED, a failed attempt FAILED, one that died without a word KILLED, a live one RUNNING."""
    first, second = (config.id for config in ledger.read().configs)
    finish(ledger, first, 0, SeedResult(metrics={"G": 4.0}))
    ledger.end_attempt(first, 1, ledger.begin_attempt(first, 1, {}), {"end": "later", "failure": "WORKER_DIED"})
    ledger.begin_attempt(second, 0, {})
    ledger.begin_attempt(second, 1, {})
    projection = Projection(ledger, open_store(default_uri(ledger.storage)))
    projection.sync(ledger.read(), status="RUNNING")
    projection.sync_seed(ledger.read_config(second), 1, running=True)
    projection.sync_config(ledger.read_config(second), running=True)
    found = {key: status for key, (status, _, _) in everything(ledger).items()}
    assert found == {
        "demo": "RUNNING",
        f"demo/{first}": "KILLED",
        f"demo/{first}/seed-0": "FINISHED",
        f"demo/{first}/seed-1": "FAILED",
        f"demo/{second}": "RUNNING",
        f"demo/{second}/seed-0": "KILLED",
        f"demo/{second}/seed-1": "RUNNING",
    }
    finish(ledger, second, 0, SeedResult(metrics={"G": 1.0}))
    project(ledger)
    assert everything(ledger)[f"demo/{second}/seed-0"][0] == "FINISHED"


def test_driver_that_died_while_logging(ledger):
    """Points that were logged before a driver died are not logged again, and the missing ones are."""
    config = ledger.read().configs[0]
    finish(ledger, config.id, 0, SeedResult(metrics={"G": 4.0}))
    config = ledger.read().configs[0]
    dying = Projection(ledger, open_store(default_uri(ledger.storage)))
    run_id = dying.seed_run(config.record, 0)
    dying.log_steps(run_id, RECORDS[:2])
    dying._log(run_id, [("eval/full_state", 0.8, 4)])
    project(ledger)
    _, _, points = everything(ledger)[f"demo/{config.id}/seed-0"]
    assert [step for step, _ in points["train/loss"]] == [5, 10, 15]
    assert sorted(step for step, _ in points["eval/full_state"]) == [4, 8, 16]


def test_non_finite_numbers_stay_out(ledger):
    """A diverging curve logs its finite points only: MLflow keeps infinity as 1.8e308 and cannot filter NaN."""
    config = ledger.read().configs[0]
    projection = Projection(ledger, open_store(default_uri(ledger.storage)))
    rows = [{"step": 5, "train/loss": math.nan, "train/drift": math.inf}, {"step": 10, "train/loss": 1.0}]
    projection.log_steps(projection.seed_run(config.record, 0), rows)
    _, _, points = everything(ledger)[f"demo/{config.id}/seed-0"]
    assert points == {"train/loss": [(10, 1.0)]}


def test_all_settings_are_parameters_and_the_space_an_artifact(ledger):
    """Every setting but the seed is a parameter of the configuration, in batches; the YAML is kept (M11)."""
    projection = project(ledger)
    config = ledger.read().configs[0]
    settings = tiny_run(recurrence__gradient_window=2).dotted()
    del settings["seed"]
    assert everything(ledger)[f"demo/{config.id}"][1] == {key: str(value) for key, value in settings.items()}
    [space] = projection.client.list_artifacts(projection.sweep_run())
    assert space.path == "space.yaml"


def test_a_variant_names_its_runs_and_is_a_parameter(ledger):
    """Configuration and seed runs are called by the variant's name, and can be filtered by it."""
    record = ConfigRecord.of(tiny_run(), number=2, suggested={"variant": "PAR hold"})
    assert config_name(record) == f"{record.backbone}·PAR hold"
    projection = Projection(ledger, open_store(default_uri(ledger.storage)))
    found = [projection.client.get_run(id) for id in (projection.config_run(record), projection.seed_run(record, 1))]
    assert [run.info.run_name for run in found] == [config_name(record), f"{config_name(record)}·seed1"]
    assert [run.data.params["variant"] for run in found] == ["PAR hold"] * 2


def test_trials_of_one_process_do_not_share_a_run(ledger):
    """Two trials that log at the same time from two threads write to their own runs, and no run is active (M15)."""
    config = ledger.read().configs[0]
    projection = Projection(ledger, open_store(default_uri(ledger.storage)))
    ids = [projection.seed_run(config.record, seed) for seed in (0, 1)]

    def log(seed: int) -> None:
        for step in range(1, 9):
            projection.log_steps(ids[seed], [{"step": step, "train/loss": float(seed)}])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(log, (0, 1)))
    for seed, run_id in enumerate(ids):
        points = projection.client.get_metric_history(run_id, "train/loss")
        assert [(point.step, point.value) for point in points] == [(step, float(seed)) for step in range(1, 9)]
    assert mlflow.active_run() is None


def test_first_use_by_five_processes(tmp_path):
    """Five drivers that open an empty embedded store at once all succeed (M2)."""
    code = (
        "import sys; from par.study.ledger import Ledger; from ray_jobs.tracking import Projection\n"
        "from ray_jobs.store import default_uri, open_store\n"
        "ledger = Ledger.create(sys.argv[1], sys.argv[2], {'space': 'question: which?'})\n"
        "Projection(ledger, open_store(default_uri(sys.argv[1]))).sync(ledger.read(), status='FINISHED')\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), f"sweep-{i}"], cwd=REPOSITORY) for i in range(5)
    ]
    assert [process.wait(timeout=200) for process in processes] == [0] * 5
    assert {run.info.run_name for run in runs(tmp_path)} == {f"sweep-{i}" for i in range(5)}

"""MLflow is a projection of the ledger: running it again, from anywhere, changes nothing."""

import math
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
import pytest

from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, SweepRecord, Verdict
from par.testing import tiny_run
from ray_jobs.mlflow_runs.projection import Projection, config_name
from ray_jobs.mlflow_runs.runs import KEY, Point
from ray_jobs.mlflow_runs.store import default_uri, open_store
from tests.ray_jobs.projected import (
    DIVERGED,
    LAST,
    NOON,
    RECORDS,
    SPACE,
    begin,
    dump,
    everything,
    everything_finished,
    fail,
    finish,
    ids,
    new_ledger,
)
from tests.ray_jobs.sweeps import REPOSITORY, runs


@pytest.fixture
def ledger(beside_a_store: Ledger) -> Ledger:
    return beside_a_store


def projection_of(ledger: Ledger) -> Projection:
    """A new process would begin like this: nothing is remembered."""
    return Projection(ledger, open_store(default_uri(ledger.storage)))


def project(ledger: Ledger, status: str = "KILLED") -> Projection:
    projection = projection_of(ledger)
    projection.sync(ledger.read(), status=status)
    return projection


def stored(ledger: Ledger) -> dict[str, tuple]:
    return everything(default_uri(ledger.storage))


def some_of_each(ledger: Ledger) -> None:
    """A good and a diverged seed, one that failed, and one that died without a word."""
    first, second = ids(ledger)
    finish(ledger, first, 0)
    finish(ledger, first, 1, DIVERGED)
    ledger.give_verdict(first, Verdict(score=0.5, seeds=(0, 1), metrics={"G_mean": 2.0}))
    fail(ledger, second, 0, "HANG")
    begin(ledger, second, 1)


def test_projecting_again_writes_nothing(ledger):
    """A second projection by another process leaves every row of the store as it is."""
    some_of_each(ledger)
    assert project(ledger).runs.written > 0
    database = Path(ledger.storage) / "mlflow.db"
    before = dump(database)
    assert project(ledger).runs.written == 0
    assert dump(database) == before
    first, _ = ids(ledger)
    found = stored(ledger)
    assert len(found) == 1 + 2 + 4
    *_, points = found[f"demo/{first}/seed-0"]
    assert points["train/loss"] == [(5, 1 / 5), (10, 1 / 10), (15, 1 / 15)]
    assert points["eval/full_state"] == [(4, 0.8), (8, 0.8), (16, 0.8)]


def test_a_lost_store_is_rebuilt(ledger, empty_store):
    """What was written while the sweep went on, in another order and in parts, is what one projection writes (M1)."""
    first, _ = ids(ledger)
    project(ledger, "RUNNING")
    live, config = projection_of(ledger), ledger.read().configs[0]
    live.sync_seed(config, 0, running=True)
    live.sync_config(config, running=True)
    live.log_steps(config.record, 0, [(1, RECORDS[1])])
    some_of_each(ledger)
    live.sync_seed(ledger.read_config(first), 0)
    project(ledger)
    before = stored(ledger)
    shutil.copy(empty_store, ledger.storage)
    project(ledger)
    assert stored(ledger) == before


def test_a_rebuilt_run_has_the_times_of_the_ledger(ledger):
    """A run begins with the first attempt of its seed and ends with the last, whenever it is written."""
    first, _ = ids(ledger)
    finish(ledger, first, 0)
    project(ledger)
    times = {run.data.tags[KEY]: (run.info.start_time, run.info.end_time) for run in runs(Path(ledger.storage))}
    assert times[f"demo/{first}/seed-0"] == (1767268800000, 1767272400000)


def test_a_diverged_seed_says_why(ledger):
    """Its run has the message and the step of the divergence; that of another seed has no message."""
    first, _ = ids(ledger)
    finish(ledger, first, 0, DIVERGED)
    finish(ledger, first, 1)
    project(ledger)
    _, diverged, _, points = stored(ledger)[f"demo/{first}/seed-0"]
    _, other, *_ = stored(ledger)[f"demo/{first}/seed-1"]
    assert (diverged["par.status"], diverged["par.message"]) == ("NUMERIC", "loss=nan")
    assert points["diverged_step"] == [(0, 7)]
    assert "par.message" not in other


@pytest.mark.parametrize(
    ("kind", "state"), [("WORKER_DIED", "FAILED"), ("HANG", "FAILED"), ("STOPPED", "KILLED"), ("PREEMPTED", "KILLED")]
)
def test_a_failed_seed_is_closed_with_its_kind(ledger, kind, state):
    """A failure of its own is FAILED, being taken down KILLED; the kind and the message stand in tags (M3)."""
    first, _ = ids(ledger)
    fail(ledger, first, 0, kind, "why")
    project(ledger)
    status, tags, *_ = stored(ledger)[f"demo/{first}/seed-0"]
    assert (status, tags["par.status"], tags["par.message"]) == (state, kind, "why")


def test_states_follow_the_ledger(ledger):
    """What a driver that died left RUNNING is closed: KILLED without a word, FINISHED with a result (M3)."""
    first, second = ids(ledger)
    finish(ledger, first, 0)
    begin(ledger, first, 1)
    begin(ledger, second, 0)
    dying = project(ledger, "RUNNING")
    for config in ledger.read().configs:
        for seed in config.seeds:
            dying.sync_seed(config, seed, running=True)
        dying.sync_config(config, running=True)
    assert {tags["par.status"] for _, tags, *_ in stored(ledger).values() if "par.status" in tags} == {"OK", "RUNNING"}
    finish(ledger, second, 0)
    project(ledger)
    found = {key: (status, tags.get("par.status")) for key, (status, tags, *_) in stored(ledger).items()}
    assert found == {
        "demo": ("KILLED", None),
        f"demo/{first}": ("KILLED", None),
        f"demo/{first}/seed-0": ("FINISHED", "OK"),
        f"demo/{first}/seed-1": ("KILLED", "KILLED"),
        f"demo/{second}": ("KILLED", None),
        f"demo/{second}/seed-0": ("FINISHED", "OK"),
    }


def test_a_configuration_is_finished_with_its_last_wanted_seed(tmp_path, empty_store):
    """It is FINISHED after the search, no more once its confirmation has begun, and again with the last fresh seed."""
    shutil.copy(empty_store, tmp_path)
    space = SPACE + "confirm: 1\nfresh_seeds: 2\n"
    ledger = Ledger.create(tmp_path, "demo", SweepRecord(space=space, space_path="demo.yaml", created=NOON))
    ledger.add_config(ConfigRecord.of(tiny_run(), number=0, suggested={}))
    [config] = ids(ledger)
    found = []
    for seed in (0, 1, 1000, 1001):
        finish(ledger, config, seed)
        if seed == 1:
            ledger.give_verdict(config, Verdict(score=0.5, seeds=(0, 1)))
        project(ledger)
        found.append(stored(ledger)[f"demo/{config}"][0])
    assert found == ["KILLED", "FINISHED", "KILLED", "FINISHED"]


def test_what_a_living_driver_runs_is_left_to_it(ledger):
    """While a driver lives, an attempt without an end is RUNNING, and a run that it is about to close stays open."""
    first, second = ids(ledger)
    begin(ledger, first, 0)
    projection = projection_of(ledger)
    projection.sync(ledger.read(), status="RUNNING", driven=True)
    assert {status for status, *_ in stored(ledger).values()} == {"RUNNING"}
    finish(ledger, first, 0)
    finish(ledger, second, 0)
    projection = projection_of(ledger)
    projection.sync(ledger.read(), status="RUNNING", driven=True)
    found = stored(ledger)
    assert (found[f"demo/{first}/seed-0"][0], found[f"demo/{first}/seed-0"][3]) == ("RUNNING", {})
    assert found[f"demo/{second}/seed-0"][0] == "FINISHED"


def test_driver_that_died_while_logging(ledger):
    """Points that were logged before a driver died are not logged again, and the missing ones are, also in between."""
    first, _ = ids(ledger)
    finish(ledger, first, 0)
    config = ledger.read().configs[0]
    dying = projection_of(ledger)
    dying.log_steps(config.record, 0, [(1, RECORDS[0]), (2, RECORDS[2])])
    dying.runs.log(dying.seed_run(config.record, 0), [Point("eval/full_state", 0.8, 4, 3)])
    project(ledger)
    *_, points = stored(ledger)[f"demo/{config.id}/seed-0"]
    assert [step for step, _ in points["train/loss"]] == [5, 10, 15]
    assert [step for step, _ in points["eval/full_state"]] == [4, 8, 16]


def test_steps_trained_twice_are_logged_once(ledger):
    """A step that comes again, in the same batch or a later one, stays as it came first."""
    config = ledger.read().configs[0]
    for _ in range(2):
        projection = projection_of(ledger)
        projection.log_steps(
            config.record, 0, [(1, {"step": 5, "train/loss": 1.0}), (2, {"step": 5, "train/loss": 2.0})]
        )
        projection.log_steps(config.record, 0, [(3, {"step": 5, "train/loss": 3.0})])
    *_, points = stored(ledger)[f"demo/{config.id}/seed-0"]
    assert points == {"train/loss": [(5, 1.0)]}


def test_a_driver_that_died_while_describing_a_run(ledger):
    """Parameters, tags and the space that a run lacks are added to it."""
    first, _ = ids(ledger)
    finish(ledger, first, 0)
    store = open_store(default_uri(ledger.storage))
    for key in ("demo", f"demo/{first}", f"demo/{first}/seed-0"):
        store.client.create_run(store.experiment, tags={"par.key": key, "par.sweep": "demo"})
    project(ledger)
    whole = Path(ledger.storage) / "whole"
    shutil.copytree(Path(ledger.storage) / "demo", whole / "demo")
    project(Ledger.open(whole, "demo"))
    halves, wholes = stored(ledger), everything(default_uri(whole))
    assert halves.keys() == wholes.keys()
    for key in halves:
        status, tags, params, points = wholes[key]
        del tags["mlflow.runName"]
        assert halves[key][0] == status
        assert tags.items() <= halves[key][1].items()
        assert halves[key][2:] == (params, points)


def test_a_deleted_run_is_created_again(ledger):
    """A run that a person deleted comes back with all that it had, and its children lie below the new one."""
    some_of_each(ledger)
    first, _ = ids(ledger)
    client = project(ledger).runs.client
    before = stored(ledger)
    for run in runs(Path(ledger.storage)):
        if run.data.tags[KEY] in ("demo", f"demo/{first}", f"demo/{first}/seed-0"):
            client.delete_run(run.info.run_id)
    assert len(stored(ledger)) == len(before) - 3
    project(ledger)
    assert stored(ledger) == before


def test_a_run_that_is_there_twice_is_kept_once(ledger):
    """Of two runs with one key, which two writers made at once, one stays with all points; the other is deleted."""
    some_of_each(ledger)
    first, _ = ids(ledger)
    store = open_store(default_uri(ledger.storage))
    for _ in range(2):
        store.client.create_run(store.experiment, tags={"par.key": f"demo/{first}/seed-0", "par.sweep": "demo"})
    project(ledger)
    found = stored(ledger)
    assert len(found) == 1 + 2 + 4
    assert [step for step, _ in found[f"demo/{first}/seed-0"][3]["train/loss"]] == [5, 10, 15]


def test_a_sweep_that_is_begun_anew_has_runs_of_its_own(ledger):
    """Another sweep of the same name, from elsewhere or after its folder was removed, takes over no run."""
    everything_finished(ledger)
    project(ledger)
    again = new_ledger(Path(ledger.storage) / "elsewhere", created=LAST)
    begin(again, ids(again)[0], 0)
    projection = Projection(again, open_store(default_uri(ledger.storage)))
    projection.sync(again.read(), status="KILLED")
    by_creation = {NOON: set(), LAST: set()}
    for run in runs(Path(ledger.storage)):
        by_creation[run.data.tags["par.created"]].add((run.data.tags[KEY], run.info.status))
    assert len(by_creation[NOON]) == 1 + 2 + 4
    assert {status for _, status in by_creation[LAST]} == {"KILLED"}
    assert len(by_creation[LAST]) == 1 + 2 + 1


def test_two_that_project_at_once_write_each_thing_once(ledger):
    """Two projections that both found the store empty leave one run for each key and each step once.

    A call to a run that the other one took away fails; begun again, the projection goes through.
    """
    everything_finished(ledger)
    alone = Path(ledger.storage) / "alone"
    shutil.copytree(Path(ledger.storage) / "demo", alone / "demo")

    def write(projection: Projection) -> None:
        for _ in range(5):
            try:
                return projection.sync(ledger.read(), status="FINISHED")
            except mlflow.MlflowException:
                projection = projection_of(ledger)
        raise AssertionError("the other one takes runs away without end")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, [projection_of(ledger), projection_of(ledger)]))
    project(ledger, "FINISHED")
    project(Ledger.open(alone, "demo"), "FINISHED")
    assert stored(ledger) == everything(default_uri(alone))


def test_parameters_never_change(ledger):
    """A retry with another micro-batch succeeds: the fact is a tag, and the parameters stay (M5)."""
    first, _ = ids(ledger)
    fail(ledger, first, 0, "OOM_GPU", "no memory", micro_batch=8)
    project(ledger)
    _, tags, params, _ = stored(ledger)[f"demo/{first}/seed-0"]
    assert (tags["par.micro_batch_effective"], tags["par.attempts"], tags["par.message"]) == ("8", "1", "no memory")
    finish(ledger, first, 0, micro_batch=4)
    project(ledger)
    status, tags, after, _ = stored(ledger)[f"demo/{first}/seed-0"]
    assert (status, after) == ("FINISHED", params)
    assert (tags["par.micro_batch_effective"], tags["par.attempts"], tags["par.message"]) == ("4", "2", "")


def test_a_setting_of_newer_code_joins_the_parameters(ledger):
    """A parameter that a run has keeps its value, also where the code has another one by now (M5)."""
    first, _ = ids(ledger)
    store = open_store(default_uri(ledger.storage))
    run = store.client.create_run(store.experiment, tags={"par.key": f"demo/{first}", "par.sweep": "demo"})
    store.client.log_param(run.info.run_id, "train.steps", "7")
    project(ledger)
    _, _, params, _ = stored(ledger)[f"demo/{first}"]
    assert params["train.steps"] == "7"
    assert params["recurrence.gradient_window"] == "2"


def test_non_finite_numbers_stay_out(ledger):
    """A diverging curve logs its finite points only: MLflow keeps infinity as 1.8e308 and cannot filter NaN."""
    config = ledger.read().configs[0]
    rows = [(1, {"step": 5, "train/loss": math.nan, "train/drift": math.inf}), (2, {"step": 10, "train/loss": 1.0})]
    projection_of(ledger).log_steps(config.record, 0, rows)
    *_, points = stored(ledger)[f"demo/{config.id}/seed-0"]
    assert points == {"train/loss": [(10, 1.0)]}


def test_a_long_message_is_cut_and_written_once(ledger):
    """What a failure said is kept as far as a tag goes, and a second projection finds it the same."""
    first, _ = ids(ledger)
    fail(ledger, first, 0, "WORKER_DIED", "x" * 20_000)
    project(ledger)
    assert project(ledger).runs.written == 0


def test_all_settings_are_parameters(ledger):
    """Every setting but the seed is a parameter of the configuration, in batches (M11)."""
    finish(ledger, ids(ledger)[0], 0)
    project(ledger)
    config = ledger.read().configs[0]
    settings = tiny_run(recurrence__gradient_window=2).dotted()
    del settings["seed"]
    assert stored(ledger)[f"demo/{config.id}"][2] == {key: str(value) for key, value in settings.items()}


def test_a_variant_names_its_runs_and_is_a_parameter(ledger):
    """Configuration and seed runs are called by the variant's name, and can be filtered by it."""
    record = ConfigRecord.of(tiny_run(), number=2, suggested={"variant": "PAR hold"})
    assert config_name(record) == f"{record.backbone}·PAR hold"
    projection = projection_of(ledger)
    known = (projection.config_run(record), projection.seed_run(record, 1))
    found = [projection.runs.client.get_run(run.id) for run in known]
    assert [run.info.run_name for run in found] == [config_name(record), f"{config_name(record)}·seed1"]
    assert [run.data.params["variant"] for run in found] == ["PAR hold"] * 2


def test_trials_of_one_process_do_not_share_a_run(ledger):
    """Two trials whose records come in turns are written to their own runs, and no run is active (M15)."""
    config, projection = ledger.read().configs[0], projection_of(ledger)
    for step in range(1, 9):
        for seed in (0, 1):
            projection.log_steps(config.record, seed, [(step, {"step": step, "train/loss": float(seed)})])
    for seed in (0, 1):
        *_, points = stored(ledger)[f"demo/{config.id}/seed-{seed}"]
        assert points["train/loss"] == [(step, float(seed)) for step in range(1, 9)]
    assert mlflow.active_run() is None


def test_first_use_by_five_processes(tmp_path):
    """Five drivers that open an empty embedded store at once all succeed (M2)."""
    code = (
        "import sys; from par.ledger.ledger import Ledger; from ray_jobs.mlflow_runs.projection import Projection\n"
        "from ray_jobs.mlflow_runs.store import default_uri, open_store\n"
        "from par.ledger.records import SweepRecord\n"
        "ledger = Ledger.create(sys.argv[1], sys.argv[2], SweepRecord(space='question: which?'))\n"
        "Projection(ledger, open_store(default_uri(sys.argv[1]))).sync(ledger.read(), status='FINISHED')\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), f"sweep-{i}"], cwd=REPOSITORY) for i in range(5)
    ]
    assert [process.wait(timeout=200) for process in processes] == [0] * 5
    assert {run.info.run_name for run in runs(tmp_path)} == {f"sweep-{i}" for i in range(5)}

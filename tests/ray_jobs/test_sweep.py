"""A sweep as a user runs it: real processes, a real Ray, a real MLflow store."""

import json
import math
import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient

from tests.ray_jobs.sweeps import attempts, files, results, runs, start, sweep, wait_until, write_space

pytestmark = pytest.mark.ray
CONFIGURATIONS, SEEDS = 2, 2


def test_every_seed_has_one_result(finished):
    """A sweep ends with a result for each (configuration, seed), each after one attempt that ended."""
    storage, _ = finished
    assert len(results(storage, "tiny")) == CONFIGURATIONS * SEEDS
    assert len(attempts(storage, "tiny")) == CONFIGURATIONS * SEEDS
    assert all("end" in attempt and "failure" not in attempt for attempt in attempts(storage, "tiny").values())


def test_mlflow_says_what_the_ledger_says(finished):
    """MLflow has 1 + C + C·S finished runs with unique names, finite metrics, and the ledger's numbers (M1 M13)."""
    storage, _ = finished
    found = runs(storage)
    assert len(found) == 1 + CONFIGURATIONS + CONFIGURATIONS * SEEDS
    assert {run.info.status for run in found} == {"FINISHED"}
    assert len({run.info.run_name for run in found}) == len(found)
    assert all(math.isfinite(value) for run in found for value in run.data.metrics.values())
    by_key = {run.data.tags["par.key"]: run for run in found}
    for path, data in results(storage, "tiny").items():
        _, config, seed, _ = path.split("/")
        run = by_key[f"tiny/{config}/{seed}"]
        measured = json.loads(data)["metrics"]
        assert {name: run.data.metrics[name] for name in measured} == measured
        assert {"acc_8x", "acc_16x", "full_state_16x", "drift_max"} <= measured.keys()
        assert min(run.data.metrics["tokens_per_s"], run.data.metrics["gpu_hours"]) > 0
        assert run.data.tags["mlflow.parentRunId"] == by_key[f"tiny/{config}"].info.run_id
        assert run.data.tags["par.backbone"] == "tiny-qwen2"
    for path, data in files(storage / "tiny", "configs/*/search-2.json").items():
        verdict, run = json.loads(data), by_key[f"tiny/{path.split('/')[1]}"]
        assert run.data.metrics == {"score": verdict["score"], **verdict["metrics"]}
        assert {"G_mean", "G_sd", "G_min", "success_16x", "n_seeds", "gpu_hours"} <= verdict["metrics"].keys()
        assert verdict["metrics"]["gpu_hours"] > 0


def test_curves_are_logged_once_per_step(finished):
    """Each training step and each depth is one point of its metric."""
    storage, _ = finished
    client = MlflowClient(f"sqlite:///{storage}/mlflow.db")
    for run in runs(storage):
        if "par.seed" in run.data.tags:
            steps = [point.step for point in client.get_metric_history(run.info.run_id, "train/loss")]
            depths = [point.step for point in client.get_metric_history(run.info.run_id, "eval/full_state")]
            assert steps == [5, 10, 15, 20]
            assert sorted(depths) == [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64]


def test_table_shows_the_ledgers_numbers(finished):
    """The table has a row per configuration with the G of each of its seeds, and plot and report are where it says."""
    storage, output = finished
    for path, data in results(storage, "tiny").items():
        row = next(line for line in output.splitlines() if line.startswith("│ " + path.split("/")[1]))
        assert f"{json.loads(data)['metrics']['G']:.2f}" in row
    assert (storage / "tiny" / "accuracy_by_depth.png").read_bytes().startswith(b"\x89PNG")
    assert (storage / "tiny" / "report.html").read_text().startswith("<!doctype html>")
    assert f"The whole report, for a browser: {storage / 'tiny' / 'report.html'}" in output
    [sweep_run] = [run for run in runs(storage) if run.data.tags["par.key"] == "tiny"]
    kept = {file.path for file in MlflowClient(f"sqlite:///{storage}/mlflow.db").list_artifacts(sweep_run.info.run_id)}
    assert kept == {"space.yaml", "plan.txt", "environment.json", "accuracy_by_depth.png", "report.html"}
    assert "make ui" in output


def test_workers_write_no_store_of_their_own(finished):
    """No MLflow store or database lies under the trials' folders (M7), and no path there is long (S11)."""
    storage, _ = finished
    below = list((storage / "tiny").rglob("*"))
    assert not [path for path in below if path.name in ("mlruns", "mlflow.db")]
    assert max(len(path.name) for path in below) < 100


def test_existing_name_is_refused(finished):
    """A second sweep of the same name exits with 2, names the way on, and changes nothing."""
    storage, _ = finished
    before = files(storage / "tiny", "**/*.json")
    code, output = sweep("--space", str(storage / "tiny.yaml"), "--storage", str(storage))
    assert code == 2
    assert "par resume tiny" in output
    assert "Traceback" not in output
    assert files(storage / "tiny", "**/*.json") == before


def test_resuming_a_finished_sweep_repeats_nothing(finished):
    """Resume of a finished sweep shows the table and leaves every object and run as it was."""
    storage, _ = finished
    before, runs_before = files(storage / "tiny", "configs/**/*.json"), {run.info.run_id for run in runs(storage)}
    code, output = sweep("--resume", "tiny", "--storage", str(storage))
    assert code == 0, output
    assert "Extrapolation factor G" in output
    assert files(storage / "tiny", "configs/**/*.json") == before
    assert {run.info.run_id for run in runs(storage)} == runs_before


def test_changed_space_is_refused(finished, tmp_path):
    """Resume with another space exits with 2 and shows what changed."""
    storage, _ = finished
    code, output = sweep(
        "--resume", "tiny", "--storage", str(storage), "--space", str(write_space(tmp_path / "s.yaml", steps=30))
    )
    assert code == 2
    assert "30" in output


def test_dry_run_creates_nothing(tmp_path):
    """--dry-run prints trials, workers, concurrency, FLOPs, storage, time and memory, and leaves no trace."""
    code, output = sweep("--space", str(write_space(tmp_path / "tiny.yaml")), "--storage", str(tmp_path), "--dry-run")
    assert code == 0, output
    words = ("configurations", "seeds", "worker", "at once", "FLOPs", "storage", "time")
    for word in (*words, "parameters", "checkpoint", "state", "training", "evaluation"):
        assert word in output
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--storage", "{there}/file"], "is no folder that can be written"),
        (["--storage", "s3://bucket/par"], "give --tracking-uri"),
        (["--storage", "{there}", "--kinds", "HANG"], "needs --failed"),
        (["--storage", "{there}", "--configurations", "3"], "have 2: leave it out"),
        (["--storage", "{there}", "--name", "ünïcode name"], "must be a plain name"),
        (["--storage", "{there}", "--name", "mlflow.db"], "give another --name"),
        (["--storage", "{there}", "--resume", "nothing"], "no sweep nothing"),
        (["--storage", "{there}", "--space", "{there}/absent.yaml"], "absent.yaml"),
        (["--storage", "{there}", "--tracking-uri", "foo://bar"], "--tracking-uri foo://bar"),
        (["--storage", "{there}", "--address", "nonsense"], "check --address"),
        (["--storage", "{there}", "--cpus-per-worker", "4000", "--max-concurrent", "2"], "a trial needs 4000 CPU"),
    ],
)
def test_refused_commands_leave_nothing(tmp_path, arguments, message):
    """Bad input exits with 2 and a message that says what is wrong, without a traceback, and begins no sweep."""
    (tmp_path / "file").write_text("")
    space = ["--space", str(write_space(tmp_path / "tiny.yaml"))] if "--resume" not in arguments else []
    code, output = sweep(*space, *(argument.format(there=tmp_path) for argument in arguments))
    assert code == 2, output
    assert message in " ".join(output.split())
    assert "Traceback" not in output
    assert not list(tmp_path.glob("*/sweep.json"))


def test_bad_space_lists_every_fault_before_ray_starts(tmp_path):
    """Five faults are listed with their lines, with exit code 2, in under 3 seconds and without a traceback."""
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "question: Is every fault named?\n"
        "backbones: [tiny-qwen3, qwen9]\n"
        "fixed:\n"
        "  train.stepz: 10\n"
        "  recurrence.step_size: 0\n"
        "search:\n"
        "  optim.lr: {float: [1.0e-2, 1.0e-4]}\n"
        "  stretch.s_max: {grid: [1, 2]}\n"
        "configurations: 4\n"
        "seeds: 2\n"
    )
    began = time.monotonic()
    code, output = sweep("--space", str(bad), "--storage", str(tmp_path))
    assert time.monotonic() - began < 3 * float(os.environ.get("PAR_SLOWNESS", 1))
    assert code == 2
    for line in (2, 4, 5, 7, 8):
        assert f"bad.yaml:{line}:" in output, output
    assert "Traceback" not in output


def committed(storage, name: str, step: int):
    return lambda: bool(list((storage / name).glob(f"configs/*/seed-*/checkpoints/step_{step:08d}/COMMIT.json")))


def test_killed_driver_resumes(tmp_path):
    """After kill -9 of the driver, --resume ends with the same runs, no seed twice, and the history of a whole run.

    The seed that was interrupted goes on from its checkpoint.
    """
    space = write_space(tmp_path / "tiny.yaml", steps=150, seeds=2)
    process = start("--space", str(space), "--storage", str(tmp_path), "--name", "killed")
    wait_until(committed(tmp_path, "killed", 40), process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = results(tmp_path, "killed")
    assert len(before) < CONFIGURATIONS * SEEDS
    code, output = sweep("--resume", "killed", "--storage", str(tmp_path))
    assert code == 0, output
    after = results(tmp_path, "killed")
    assert len(after) == CONFIGURATIONS * SEEDS
    assert before.items() <= after.items()
    assert len(runs(tmp_path)) == 1 + CONFIGURATIONS + CONFIGURATIONS * SEEDS
    assert {run.info.status for run in runs(tmp_path)} == {"FINISHED"}
    resumed = [a for path, a in attempts(tmp_path, "killed").items() if path.endswith("attempt-2.json")]
    assert resumed
    assert max(attempt["resumed_at"] for attempt in resumed) >= 40
    whole = start("--space", str(space), "--storage", str(tmp_path), "--name", "whole")
    assert whole.communicate(timeout=240)
    assert history(tmp_path, "killed") == history(tmp_path, "whole")
    assert after == results(tmp_path, "whole")


def test_a_seed_that_fails_waits_for_a_person(finished, tmp_path):
    """A seed with a checkpoint of another run shows its reason, without a traceback, and is given up, exit code 1.

    With --max-failed-share 0 that ends the sweep, and what was not begun runs once a resume allows more, as if nothing
    had been (R7); the seed itself waits until its kind is asked for, and then it alone runs again (R11 R15 R16). Only
    JSON and checkpoints are needed: the files that Tune and Train left are gone (R5 R6).
    """
    storage = Path(shutil.copytree(finished[0], tmp_path / "copy"))
    folders = (storage / "tiny" / "configs").glob("*/seed-1")
    failing, other = sorted(folders, key=lambda seed: json.loads((seed.parent / "config.json").read_text())["number"])
    (failing / "result.json").unlink()
    shutil.rmtree(other)
    for seed in (failing, other):
        (seed.parent / "search-2.json").unlink()
    shutil.rmtree(storage / "tiny" / "tune")
    manifests = {path: path.read_text() for path in failing.glob("checkpoints/*/COMMIT.json")}
    for path, right in manifests.items():
        path.write_text(right.replace('"seed": 1', '"seed": 99'))
    resume = ("--resume", "tiny", "--storage", str(storage), "--max-concurrent", "1")

    code, output = sweep(*resume, "--max-failed-share", "0")
    assert code == 1
    assert "use another folder" in output
    assert "--max-failed-share allows no more" in output
    assert "par resume tiny --failed" in output
    assert "Traceback" not in output
    assert len(results(storage, "tiny")) == CONFIGURATIONS * SEEDS - 2

    resume = (*resume, "--max-failed-share", "1")
    assert sweep(*resume, "--failed", "--kinds", "HANG,OOM_HOST")[0] == 1
    assert len(results(storage, "tiny")) == CONFIGURATIONS * SEEDS - 1
    lives = attempts(storage, "tiny")

    for path, right in manifests.items():
        path.write_text(right)
    code, output = sweep(*resume, "--failed", "--kinds", "DATA")
    assert code == 0, output
    assert results(storage, "tiny") == results(finished[0], "tiny")
    [again] = [life for path, life in attempts(storage, "tiny").items() if path not in lives]
    assert again["asked_for"]
    assert len(again["source"]) == 16


def test_a_budget_counts_what_was_used(tmp_path):
    """A sweep whose device-hours are used up has its seeds save and leave; with no more it begins nothing (R9)."""
    space = write_space(tmp_path / "tiny.yaml", steps=400, seeds=1)
    place = ("--storage", str(tmp_path))
    code, output = sweep("--space", str(space), *place, "--device-hours", "0.001")
    assert code == 1
    assert "BUDGET" in output
    lives = attempts(tmp_path, "tiny")
    assert {attempt["failure"] for attempt in lives.values()} == {"STOPPED"}
    assert {attempt["message"].split(":")[0] for attempt in lives.values()} == {"BUDGET"}
    assert max(attempt["saved_step"] for attempt in lives.values()) > 0
    code, output = sweep("--resume", "tiny", *place, "--device-hours", "0.0002")
    assert code == 1
    assert "BUDGET" in output
    assert attempts(tmp_path, "tiny") == lives
    assert "nothing is started" in output


def test_a_second_driver_is_refused(tmp_path):
    """While a driver lives another one ends with exit code 2 and says who drives; the first goes on (R13)."""
    space = write_space(tmp_path / "tiny.yaml", steps=800, seeds=1)
    first = start("--space", str(space), "--storage", str(tmp_path))
    wait_until(committed(tmp_path, "tiny", 10), first)
    code, output = sweep("--resume", "tiny", "--storage", str(tmp_path))
    assert code == 2
    assert "is driven by" in output
    assert f"pid {first.pid}" in output
    output, _ = first.communicate(timeout=240)
    assert first.returncode == 0, output
    assert len(attempts(tmp_path, "tiny")) == 2


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_stopped_sweep_saves_and_goes_on(tmp_path, number, code):
    """On a signal the trials save the step that they are at and leave, MLflow says KILLED, and the exit code tells the
    signal; resumed, the sweep ends as if it had never been stopped (M3), computed as it was told when it began."""
    space = write_space(tmp_path / "tiny.yaml", steps=150, seeds=1)
    process = start("--space", str(space), "--storage", str(tmp_path), "--cpus-per-worker", "0.5", "--grace", "50")
    wait_until(committed(tmp_path, "tiny", 10), process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code, output
    assert "go on with par resume tiny" in output
    lives = attempts(tmp_path, "tiny").values()
    assert {(attempt["failure"], attempt["message"]) for attempt in lives} == {("STOPPED", number.name)}
    assert "RUNNING" not in {run.info.status for run in runs(tmp_path)}
    resumed, output = sweep("--resume", "tiny", "--storage", str(tmp_path))
    assert resumed == 0, output
    assert "1 × worker: 0.5 CPU" in output
    assert json.loads((tmp_path / "tiny" / "computing.json").read_text()) == {"cpus_per_worker": 0.5, "grace_s": 50}
    assert {attempt["resumed_at"] for attempt in attempts(tmp_path, "tiny").values()} >= {
        attempt["saved_step"] for attempt in lives
    }
    assert len(runs(tmp_path)) == 1 + CONFIGURATIONS + CONFIGURATIONS


def history(storage, name: str) -> dict[str, list]:
    """Loss curve of every seed."""
    found = files(storage / name, "configs/*/seed-*/history.parquet")
    return {
        path: pq.read_table(pa.BufferReader(data)).select(["step", "train/loss"]).to_pydict()
        for path, data in found.items()
    }


def test_train_workers_and_own_process_agree(finished, tmp_path):
    """Two Ray Train workers give a seed the loss curve that it has in the trial's own process."""
    storage, _ = finished
    space = write_space(tmp_path / "tiny.yaml", workers=2, seeds=1)
    code, output = sweep("--space", str(space), "--storage", str(tmp_path))
    assert code == 0, output
    alone, together = history(storage, "tiny"), history(tmp_path, "tiny")
    assert len(together) == CONFIGURATIONS
    for path, curve in together.items():
        assert curve["step"] == alone[path]["step"]
        assert curve["train/loss"] == pytest.approx(alone[path]["train/loss"], abs=1e-5)

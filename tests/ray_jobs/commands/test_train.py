"""`par train`: one seed in one process, as a user runs it."""

import signal
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from par.config.run import RunConfig
from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, SweepRecord
from par.testing import TINY
from ray_jobs.cli import app
from ray_jobs.trial.spec import TrialSpec
from ray_jobs.trial.trial import supervised
from tests.ray_jobs.sweeps import REPOSITORY, files, plain_environment, results, runs, wait_until, write_space

SETTINGS = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def start(*arguments: object) -> subprocess.Popen[str]:
    """The script that a job submits, in a process of its own."""
    command = [sys.executable, str(REPOSITORY / "ray_jobs" / "train.py"), *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=plain_environment() | ONE_THREAD
    )


def train(*arguments: object) -> tuple[int, str]:
    """Exit code and output."""
    process = start(*arguments)
    output, _ = process.communicate(timeout=240)
    return process.returncode, output


def test_a_seed_alone_equals_one_of_a_sweep(tmp_path):
    """The metrics of `par train` are, bit by bit, those that the trial of a sweep has of the same seed."""
    code, output = train(*SETTINGS, "--seed", 3, "--storage", tmp_path / "a", "--name", "alone", "--no-mlflow")
    assert code == 0, output
    assert "step 20/20" in output
    run = RunConfig.from_dotted({**TINY, "seed": 3})
    ledger, record = (
        Ledger.create(tmp_path / "b", "sweep", SweepRecord(space="")),
        ConfigRecord.of(run, number=0, suggested={}),
    )
    ledger.add_config(record)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    supervised(TrialSpec.of(ledger, record, 3, gpus=0, cpus=1), lambda row: None)
    torch.set_num_threads(threads)
    assert list(results(tmp_path / "a", "alone").values()) == list(results(tmp_path / "b", "sweep").values())
    assert not (tmp_path / "a" / "mlflow.db").exists()


def test_a_stopped_seed_goes_on_with_the_same_command(tmp_path):
    """SIGTERM saves a checkpoint; the same command ends as if nothing had been; a third time nothing is repeated."""
    long = (*SETTINGS, "--set", "train.steps=200", "--set", "compute.checkpoint_every=50", "--name", "seed")
    process = start(*long, "--storage", tmp_path)
    wait_until(lambda: bool(files(tmp_path, "seed/configs/*/seed-0/checkpoints/*/COMMIT.json")), process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert "the same command goes on" in output
    assert "Traceback" not in output
    assert results(tmp_path, "seed") == {}
    code, output = train(*long, "--storage", tmp_path)
    assert code == 0, output
    found = results(tmp_path, "seed")
    code, _ = train(*long, "--storage", tmp_path / "whole", "--no-mlflow")
    assert list(found.values()) == list(results(tmp_path / "whole", "seed").values())
    before = files(tmp_path, "seed/**/*.json")
    code, output = train(*long, "--storage", tmp_path)
    assert (code, "is done" in output) == (0, True)
    assert files(tmp_path, "seed/**/*.json") == before
    assert [run.info.status for run in runs(tmp_path)] == ["FINISHED"] * 3
    done = CliRunner().invoke(app, ["status", "seed", "--storage", str(tmp_path)])
    assert "Every seed has a result" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "train.step=20"), "train.step does not exist: did you mean train.steps?"),
        (("--set", "train.steps"), "write KEY=VALUE"),
        (("--set", "train.steps=none"), "train.steps='none'"),
        (("--set", "seed=3"), "give --seed 3"),
        (("--set", "compute.workers=2"), "use par sweep"),
        (("--variant", "x"), "needs --space"),
        (("--space", "{space}", "--variant", "x"), "is none of space"),
        (("--space", "{space}"), "searches recurrence.anchor"),
        (("--space", "{space}", "--set", "recurrence.anchor=frist"), "recurrence.anchor='frist'"),
        (("--space", "nowhere.yaml"), "nowhere.yaml"),
        (("--name", "mlflow.db"), "MLflow"),
        (("--name", "../x"), "plain name"),
        (("--set", "optim.lr=2024-13-45"), "2024-13-45 cannot be read as a value"),
        (("--set", "optim.lr=!!int abc"), "cannot be read as a value"),
        (("--seed", "4294901761"), "4294901760"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path, arguments, message):
    """A bad key, value, variant or name ends with one message and exit code 2, and leaves nothing behind."""
    space = write_space(tmp_path / "space.yaml")
    given = [argument.format(space=space) for argument in arguments]
    done = CliRunner().invoke(app, ["train", *given, "--storage", str(tmp_path / "storage"), "--no-mlflow"])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert "Traceback" not in done.output
    assert not (tmp_path / "storage").exists()


def test_a_name_belongs_to_one_run(tmp_path):
    """Other settings under a name that is taken are refused; nothing of the result there changes."""
    place = ("--storage", tmp_path, "--name", "seed", "--no-mlflow")
    assert train(*SETTINGS, *place)[0] == 0
    before = files(tmp_path, "seed/**/*.json")
    done = CliRunner().invoke(app, ["train", *SETTINGS, "--set", "optim.lr=0.5", *map(str, place)])
    assert (done.exit_code, "taken by other settings" in done.output) == (2, True)
    done = CliRunner().invoke(app, ["train", *SETTINGS, "--seed", "1", *map(str, place)])
    assert (done.exit_code, "or another seed" in done.output) == (2, True)
    assert files(tmp_path, "seed/**/*.json") == before


def test_a_store_that_does_not_answer_costs_nothing(tmp_path):
    """It is found out before anything is written."""
    nowhere = ("--tracking-uri", "http://localhost:1", "--storage", str(tmp_path / "storage"))
    done = CliRunner().invoke(app, ["train", *SETTINGS, *nowhere])
    assert done.exit_code == 2
    assert "--tracking-uri" in done.output
    assert not (tmp_path / "storage").exists()


def test_the_name_of_a_space_may_hold_anything(tmp_path):
    """The result's folder gets what of it is plain."""
    space = write_space(tmp_path / "my first (space).yaml")
    chosen = [part for key in ("recurrence.anchor=none", "optim.lr=0.01") for part in ("--set", key)]
    done = CliRunner().invoke(app, ["train", "--space", str(space), *chosen, "--storage", str(tmp_path), "--no-mlflow"])
    assert done.exit_code == 0, done.output
    assert [path.parent.name[:15] for path in tmp_path.glob("*/sweep.json")] == ["my-first-space-"]

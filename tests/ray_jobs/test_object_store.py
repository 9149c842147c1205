"""A sweep whose storage is an object store."""

import os
import signal

import pytest
from mlflow import MlflowClient

from par.ledger.ledger import Ledger
from par.objects import Objects
from par.training.checkpoint import committed_step
from tests.ray_jobs.sweeps import start, sweep, wait_until, write_space

pytestmark = pytest.mark.ray


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_sweep_on_an_object_store_survives_its_driver(s3, tmp_path, workers):
    """On an S3 server a sweep trains, is killed, and goes on from its checkpoints to a result for every seed.

    No secret of the storage's address is printed.
    """
    storage, store = s3.format(f"sweeps-{workers}"), f"sqlite:///{tmp_path}/mlflow.db"
    places = ("--storage", storage, "--tracking-uri", store)
    space = write_space(tmp_path / "tiny.yaml", steps=60, workers=workers, seeds=1)
    process = start("--space", str(space), *places)

    def trained() -> bool:
        if not Objects.at(storage).exists("tiny/sweep.json"):
            return False
        ledger = Ledger.open(storage, "tiny")
        return any(committed_step(ledger.checkpoints(config.id, 0)) >= 10 for config in ledger.read().configs)

    wait_until(trained, process, limit_s=240)
    os.kill(process.pid, signal.SIGKILL)
    killed, _ = process.communicate()
    code, output = sweep("--resume", "tiny", *places)
    assert code == 0, output
    configs = Ledger.open(storage, "tiny").read().configs
    assert [set(config.results) for config in configs] == [{0}, {0}]
    assert [config.verdict is not None for config in configs] == [True, True]
    assert max(life.resumed_at for config in configs for life in config.attempts(0)) >= 10
    client = MlflowClient(store)
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len(runs) == 1 + 2 + 2
    assert "SECRET" not in killed + output


def test_an_object_store_needs_an_mlflow_store(s3):
    """Beside an object store there is no MLflow store: the command says what to give, and begins nothing."""
    code, output = sweep("--storage", s3.format("nothing"))
    assert code == 2
    assert "give --tracking-uri" in output
    assert "SECRET" not in output
    assert not Objects.at(s3.format("nothing")).walk(recursive=False)

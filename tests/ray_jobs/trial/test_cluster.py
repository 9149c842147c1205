"""What a trial takes, and how many fit."""

import os

import pytest

from par.errors import ConfigError
from ray_jobs.trial.cluster import concurrency, connected, demand, runtime_env

HEAD = {"CPU": 4.0, "PAR_DRIVER": 64.0}


@pytest.mark.parametrize(
    ("workers", "resources", "expected"),
    [
        (1, {"CPU": 2.0}, 2),
        (1, {"CPU": 128.0, "GPU": 64.0}, 64),
        (4, {"CPU": 64.0, "GPU": 8.0, "PAR_DRIVER": 64.0}, 2),
        (4, {"CPU": 64.0, "GPU": 8.0, "PAR_DRIVER": 1.0}, 1),
        (2, {"CPU": 2.0, "PAR_DRIVER": 64.0}, 1),
        (2, {"CPU": 9.0}, 3),
    ],
)
def test_s13_concurrency_follows_the_cluster(workers, resources, expected):
    """As many trials run at once as their workers and drivers fit, never one by accident (S13)."""
    assert concurrency(demand(workers, resources, cpus=1, gpus=None), resources) == expected


def test_trial_that_cannot_fit_is_refused():
    """A trial that the cluster cannot hold is refused with what it needs and what there is."""
    with pytest.raises(ConfigError, match=r"8 GPU.*2 GPU"):
        concurrency(demand(8, {"CPU": 16.0, "GPU": 2.0, **HEAD}, cpus=1, gpus=None), {"CPU": 16.0, "GPU": 2.0, **HEAD})


def test_one_worker_trains_in_the_trials_own_process():
    """A trial of one worker reserves its device itself; of several, only a driver, as Ray Train reserves the rest."""
    gpus = {"CPU": 8.0, "GPU": 8.0, **HEAD}
    assert demand(1, gpus, cpus=2, gpus=None).placement().required_resources == {"CPU": 2, "GPU": 1}
    assert demand(4, gpus, cpus=2, gpus=None).placement().required_resources == {"PAR_DRIVER": 1}


def test_the_jobs_own_variables_win(monkeypatch):
    """What `ray job submit` sets for the job is not set again, which Ray would refuse (J3)."""
    job = '{"runtime_env": {"env_vars": {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1", "NCCL_DEBUG": "INFO"}}}'
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", job)
    assert set(runtime_env()["env_vars"]) == {"MLFLOW_DISABLE_TELEMETRY"}


@pytest.mark.ray
def test_a_worker_asks_its_own_cluster():
    """A worker's lookups go to the cluster that it is in, not to the last one that was started on its machine.

    Ray Train asks so for its controller, and waits 12 s at the end of each seed when a dead cluster is asked.
    """
    import ray

    with connected(None):
        address = ray.remote(lambda: os.environ["RAY_ADDRESS"]).remote()
        assert ray.get(address) == ray.get_runtime_context().gcs_address

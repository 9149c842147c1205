"""The cluster: how to reach it, what a trial asks of it, and how many trials fit."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray import tune
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR

from par.errors import ConfigError
from ray_jobs import REPOSITORY

DRIVER = "PAR_DRIVER"
"""Custom resource of the head: the trial processes that only steer Train workers take it, and no CPU."""
LOCAL_DRIVERS = 64
TRAIN_POLL_S = 0.2
"""How often Ray Train looks for reports; its default of 2 s is added to every report."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one trial takes: its workers, and the process that steers them where there is more than one."""

    workers: int
    cpus_per_worker: float
    gpus_per_worker: float
    driver: Mapping[str, float]

    @property
    def total(self) -> dict[str, float]:
        """All resources of one trial."""
        total = {"CPU": self.workers * self.cpus_per_worker, "GPU": self.workers * self.gpus_per_worker}
        for name, amount in self.driver.items():
            total[name] = total.get(name, 0) + amount
        return {name: amount for name, amount in total.items() if amount}

    def placement(self) -> tune.PlacementGroupFactory:
        """What Tune reserves for the trial's own process; Train workers reserve their own."""
        if self.driver:
            return tune.PlacementGroupFactory([dict(self.driver)])
        return tune.PlacementGroupFactory([self.total])

    def __str__(self) -> str:
        return ", ".join(f"{amount:g} {name}" for name, amount in self.total.items())


def demand(workers: int, resources: Mapping[str, float], *, cpus: float, gpus: float | None) -> Demand:
    """What a trial of ``workers`` takes on a cluster with ``resources``.

    ``gpus`` per worker are 1 by default where the cluster has any, else 0. A trial of one worker is its own process.
    """
    gpus = gpus if gpus is not None else float(resources.get("GPU", 0) > 0)
    driver = {} if workers == 1 else {DRIVER: 1.0} if DRIVER in resources else {"CPU": 1.0}
    return Demand(workers, cpus, gpus, driver)


def concurrency(needs: Demand, resources: Mapping[str, float]) -> int:
    """How many such trials fit at once. Raises ConfigError with both numbers if not even one does."""
    fitting = min(int(resources.get(name, 0) / amount + 1e-9) for name, amount in needs.total.items())
    if fitting < 1:
        has = ", ".join(f"{resources.get(name, 0):g} {name}" for name in needs.total)
        raise ConfigError(
            f"a trial needs {needs}, the cluster has {has}: lower compute.workers or --cpus-per-worker, add nodes, or "
            "give --max-concurrent for a cluster that scales up by itself"
        )
    return fitting


@contextmanager
def connected(address: str | None) -> Iterator[Mapping[str, float]]:
    """Connect to the cluster at ``address`` or in RAY_ADDRESS, or start a local one; yield its resources.

    The repository's packages are shipped to the workers, so that nodes without par, or with another version of it,
    run the code of this driver.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    address = address or os.environ.get("RAY_ADDRESS")
    local = {} if address else {"resources": {DRIVER: LOCAL_DRIVERS}, "include_dashboard": False}
    try:
        ray.init(
            address=address or "local",
            runtime_env=runtime_env(),
            logging_level=logging.WARNING,
            log_to_driver=False,
            **local,
        )
    except (ConnectionError, ValueError, RuntimeError) as fault:
        raise ConfigError(f"Ray at {address or 'this machine'}: {fault}; check --address and RAY_ADDRESS") from None
    try:
        yield ray.cluster_resources()
    finally:
        ray.shutdown()


def runtime_env() -> dict[str, Any]:
    """Code and variables of the workers, less what `ray job submit` was given: the job's own word counts."""
    job = json.loads(os.environ.get(RAY_JOB_CONFIG_JSON_ENV_VAR, "{}")).get("runtime_env", {})
    ours = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": str(TRAIN_POLL_S), "MLFLOW_DISABLE_TELEMETRY": "true"}
    variables = {name: value for name, value in ours.items() if name not in job.get("env_vars", {})}
    modules = [str(REPOSITORY / package) for package in ("par", "ray_jobs")]
    found = {"env_vars": variables, "worker_process_setup_hook": name_cluster}
    return found | ({} if "py_modules" in job else {"py_modules": modules})


def name_cluster() -> None:
    """Tell a worker's own lookups which cluster it is in; else they ask the last one started here, perhaps dead."""
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address

"""One seed of a ledger in this process, without a cluster: its lease, its attempt, its progress, and MLflow."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from par.config.run import RunConfig
from par.errors import StoppedError, SupersededError
from par.ledger.current_space import current_space
from par.ledger.lease import hold
from par.ledger.ledger import Ledger, SeedFolder
from par.ledger.records import ConfigRecord, SeedResult
from par.race.verdicts import as_judged
from par.seed import run_seed
from ray_jobs.console import warn
from ray_jobs.driver.progress import Show, shown
from ray_jobs.driver.stopping import Stopping
from ray_jobs.mlflow_runs.background import BackgroundProjection
from ray_jobs.mlflow_runs.projection import sweep_status
from ray_jobs.mlflow_runs.store import Store
from ray_jobs.provenance import source_hash
from ray_jobs.trial.attempt import attempted


def train_seed(
    ledger: Ledger, record: ConfigRecord, run: RunConfig, stopping: Stopping, store: Store | None
) -> SeedResult:
    """Train and evaluate the seed, going on from its last checkpoint; MLflow follows in ``store``, if it is given.

    Raises StoppedError, with a checkpoint saved, once ``stopping`` has a reason, and LedgerError if another process
    trains the seed.
    """
    folder, source = SeedFolder(ledger, record.id, run.seed), source_hash()
    with (
        hold(ledger, code=source, on_lost=stopping.ask) as lease,
        _projected(ledger, record, run.seed, store) as log,
        shown(run.train.steps) as show,
        attempted(folder, run, driver=lease.record.owner, devices=1),
    ):

        def report(row: Mapping[str, Any]) -> None:
            show(row)
            log(row)

        def should_stop() -> StoppedError | None:
            return StoppedError(stopping.reason) if stopping.reason else None

        def check_owner() -> None:
            if lease.lost:
                raise SupersededError(f"{lease.lost}: nothing more is written")

        return run_seed(run, folder, report=report, should_stop=should_stop, check_owner=check_owner, source=source)


@contextmanager
def _projected(ledger: Ledger, record: ConfigRecord, seed: int, store: Store | None) -> Iterator[Show]:
    """Keep MLflow at the ledger's state, within and at the end; without ``store`` nothing is logged."""
    if store is None:
        yield lambda row: None
        return
    with BackgroundProjection(ledger, store, warn) as projection:
        projection.sync(ledger.read(), status="RUNNING")
        projection.sync_seed(ledger.read_config(record.id), seed, running=True)

        def log(row: Mapping[str, Any]) -> None:
            if row["phase"] == "train":
                projection.log_steps(record, seed, row)

        try:
            yield log
        finally:
            space = current_space(ledger)
            state = as_judged(ledger.read(), space)
            projection.sync(state, status=sweep_status(state, space))

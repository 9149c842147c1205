"""One seed of a ledger in this process, without a cluster: its lease, its attempt, its progress, and MLflow."""

import os
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console

from par.config.run import RunConfig
from par.errors import FailureKind, ParError, StoppedError, SupersededError
from par.ledger.current_space import current_space
from par.ledger.lease import Lease, hold
from par.ledger.ledger import Ledger, SeedFolder
from par.ledger.records import Attempt, ConfigRecord, SeedResult, now
from par.race.status import is_complete
from par.race.verdicts import as_judged
from par.seed import run_seed
from par.training.checkpoint import committed_step
from ray_jobs.driver.progress import shown
from ray_jobs.driver.stopping import Stopping
from ray_jobs.mlflow_runs.background import BackgroundProjection
from ray_jobs.mlflow_runs.store import open_store
from ray_jobs.provenance import source_hash


def train_seed(
    ledger: Ledger, record: ConfigRecord, run: RunConfig, console: Console, stopping: Stopping, uri: str | None
) -> SeedResult:
    """Train and evaluate the seed, going on from its last checkpoint; MLflow follows at ``uri``, if it is given.

    Raises StoppedError, with a checkpoint saved, once ``stopping`` has a reason, and LedgerError if another process
    trains the seed.
    """
    with (
        hold(ledger, code=source_hash(), on_lost=stopping.ask) as lease,
        _projected(ledger, record, run.seed, console, uri) as log,
        shown(console, run.train.steps) as show,
    ):

        def report(row: Mapping[str, Any]) -> None:
            show(row)
            log(row)

        return _attempt(SeedFolder(ledger, record.id, run.seed), run, report, stopping, lease)


@contextmanager
def _projected(
    ledger: Ledger, record: ConfigRecord, seed: int, console: Console, uri: str | None
) -> Iterator[Callable[[Mapping[str, Any]], object]]:
    """Keep MLflow at the ledger's state, within and at the end; without ``uri`` nothing is logged."""
    if uri is None:
        yield lambda row: None
        return
    warn = partial(console.print, style="yellow", markup=False, soft_wrap=True)
    with BackgroundProjection(ledger, open_store(uri), warn) as projection:
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
            projection.sync(state, status="FINISHED" if is_complete(state, space) else "KILLED")


def _attempt(
    folder: SeedFolder, run: RunConfig, report: Callable[[Mapping[str, Any]], None], stopping: Stopping, lease: Lease
) -> SeedResult:
    """Run the seed; the ledger has the attempt from its start to its end."""

    def should_stop() -> StoppedError | None:
        return StoppedError(stopping.reason) if stopping.reason else None

    def check_owner() -> None:
        if lease.lost:
            raise SupersededError(f"{lease.lost}: nothing more is written")

    ledger, config, source = folder.ledger, folder.config, source_hash()
    began = Attempt(
        node=socket.gethostname(), pid=os.getpid(), driver=lease.record.owner, source=source, start=now(), devices=1,
        resumed_at=committed_step(folder.checkpoints), micro_batch=run.prompts_per_pass,
    )  # fmt: skip
    attempt = ledger.begin_attempt(config, folder.seed, began)
    try:
        return run_seed(run, folder, report=report, should_stop=should_stop, check_owner=check_owner, source=source)
    except Exception as fault:
        kind = fault.kind if isinstance(fault, ParError) else FailureKind.WORKER_DIED
        attempt = replace(attempt, failure=kind, message=str(fault), traceback=traceback.format_exc())
        raise
    finally:
        ended = attempt.ended_at(now(), saved_step=committed_step(folder.checkpoints))
        ledger.end_attempt(config, folder.seed, ended)

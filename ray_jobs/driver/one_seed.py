"""One seed of a ledger in this process, without a cluster: its lease, its attempt, its progress, and MLflow."""

import os
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from par import metrics as m
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
from ray_jobs.console import PRINT_EVERY_S
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
        _shown(console, run) as show,
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


@contextmanager
def _shown(console: Console, run: RunConfig) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A bar in a terminal, elsewhere a line every few seconds and at each end."""
    if not console.is_terminal:
        yield _Lines(console, run.train.steps)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        tasks = {"train": progress.add_task("train", total=run.train.steps)}

        def show(row: Mapping[str, Any]) -> None:
            phase, (done, total, text) = row["phase"], _described(row, run.train.steps)
            if phase not in tasks:
                tasks[phase] = progress.add_task(phase, total=total)
            progress.update(tasks[phase], completed=done, description=text)

        yield show


class _Lines:
    """Progress as plain lines, at most one in PRINT_EVERY_S but for the last of a phase."""

    def __init__(self, console: Console, steps: int, clock: Callable[[], float] = monotonic) -> None:
        self.console, self.steps, self.clock, self.last = console, steps, clock, float("-inf")

    def __call__(self, row: Mapping[str, Any]) -> None:
        done, total, text = _described(row, self.steps)
        if done == total or self.clock() - self.last >= PRINT_EVERY_S:
            self.last = self.clock()
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _described(row: Mapping[str, Any], steps: int) -> tuple[int, int, str]:
    """How far a phase has come, of how much, and in words."""
    if row["phase"] == "train":
        speed = f"{row[m.STEPS_PER_S.name]:.1f} steps/s"
        return row["step"], steps, f"step {row['step']}/{steps}  loss {row[m.LOSS.name]:.4f}  {speed}"
    return row["prompts"], row["sequences"], f"evaluated {row['prompts']} of {row['sequences']} prompts"

"""What a driver tells the workers of its seeds."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from par.errors import FailureKind, StoppedError, SupersededError
from par.ledger.lease import Lease, break_lease, take
from par.ledger.ledger import HISTORY, Ledger
from par.ledger.records import Attempt, ConfigRecord, SweepRecord
from par.testing import run_processes, tiny_run
from par.training.checkpoint import committed_step
from ray_jobs.trial.spec import TrialSpec
from ray_jobs.trial.stop_signal import POLL_S, StopSignal
from ray_jobs.trial.trial import supervised


def sweep(folder: Path, **changes: object) -> tuple[TrialSpec, Lease]:
    """A seed of a sweep that this process drives."""
    ledger = Ledger.create(folder, "sweep", SweepRecord(space=""))
    record = ConfigRecord.of(tiny_run(**changes), number=0, suggested={})
    ledger.add_config(record)
    lease = take(ledger)
    return TrialSpec.of(ledger, record, 0, gpus=0, cpus=1, driver=lease.record.owner), lease


class Hurried(StopSignal):
    """Looks at every step, and has the driver ask for a stop at the step of the list."""

    def at(self, step: int, lease: Lease) -> "Hurried":
        self.steps, self.stop_at, self.lease = 0, step, lease
        return self

    def should_stop(self) -> StoppedError | None:
        self.steps += 1
        if self.steps == self.stop_at:
            self.lease.ask_to_stop("SIGTERM")
        self._looked = float("-inf")
        return super().should_stop()


def history(seed: TrialSpec) -> list[dict]:
    data = seed.ledger().read_bytes(seed.config, 0, HISTORY)
    table = pq.read_table(pa.BufferReader(data))
    return table.drop_columns(
        [n for n in table.column_names if "per_s" in n or "flop" in n or "util" in n or "memory" in n]
    ).to_pylist()


@pytest.mark.parametrize("step", [1, 7, 10, 20])
def test_a_seed_that_was_stopped_equals_one_that_was_not(tmp_path, step):
    """Asked to stop, a seed saves the step that it is at and leaves; history and result are those of a whole run."""
    (seed, lease), (whole, _) = (sweep(tmp_path / name, compute__report_every=4) for name in "ab")
    with pytest.raises(StoppedError, match="SIGTERM") as caught:
        supervised(seed, lambda record: None, Hurried(seed).at(step, lease))
    assert caught.value.kind is FailureKind.STOPPED
    assert committed_step(seed.folder.checkpoints) == step
    lease.release()
    again = take(seed.ledger())
    result = supervised(replace(seed, driver=again.record.owner), lambda record: None)
    assert result == supervised(whole, lambda record: None)
    assert history(seed) == history(whole)


@pytest.mark.parametrize("by_force", [True, False])
def test_a_seed_that_is_another_drivers_writes_nothing(tmp_path, by_force):
    """Once the lease is broken, or taken by another driver, no checkpoint and no result is written any more (R13)."""
    seed, lease = sweep(tmp_path, compute__checkpoint_every=5)
    if by_force:
        break_lease(seed.ledger(), "it hangs")
    else:
        lease.release()
        take(seed.ledger())
    with pytest.raises(SupersededError, match="has lost sweep"):
        supervised(seed, lambda record: None)
    assert committed_step(seed.folder.checkpoints) == 0
    assert seed.ledger().read_config(seed.config).results == {}


def test_an_attempt_that_has_a_successor_writes_nothing(tmp_path):
    """A worker that was taken for dead, and whose seed was started again, writes no checkpoint and no result."""
    seed, _ = sweep(tmp_path, compute__checkpoint_every=5)
    ledger = seed.ledger()
    numbers = [ledger.begin_attempt(seed.config, seed.seed, Attempt()).number for _ in range(2)]
    assert numbers == [1, 2]
    with pytest.raises(SupersededError, match="attempt 2 has followed attempt 1"):
        supervised(replace(seed, attempt=1), lambda record: None)
    assert committed_step(seed.folder.checkpoints) == 0
    assert supervised(replace(seed, attempt=2), lambda record: None).step == 20


def test_orders_are_looked_for_now_and_then(tmp_path):
    """A worker reads the storage once in a few seconds, not at every step."""
    seed, lease = sweep(tmp_path)
    now = [0.0]
    stop_signal = StopSignal(seed, clock=lambda: now[0])
    assert stop_signal.should_stop() is None
    lease.ask_to_stop("SIGTERM")
    now[0] += POLL_S / 2
    assert stop_signal.should_stop() is None
    now[0] += POLL_S
    assert stop_signal.should_stop() is not None


def test_a_seed_without_a_driver_hears_nothing(tmp_path):
    """A spec that names no driver is nobody's to stop."""
    seed, lease = sweep(tmp_path)
    lease.ask_to_stop("SIGTERM")
    assert StopSignal(replace(seed, driver=None)).should_stop() is None


def leave_together(rank: int, seed: TrialSpec) -> None:
    stop_signal = StopSignal(seed)
    if rank == 1:
        stop_signal.node_goes()
    with pytest.raises(StoppedError) as caught:
        supervised(seed, lambda record: None, stop_signal)
    assert caught.value.kind is (FailureKind.PREEMPTED if rank == 1 else FailureKind.STOPPED)


@pytest.mark.dist
def test_workers_leave_together(tmp_path):
    """A notice that one worker alone has heard makes both leave after the same step, with a checkpoint of it (T8)."""
    seed, _ = sweep(tmp_path, compute__workers=2)
    run_processes(2, leave_together, seed)
    assert committed_step(seed.folder.checkpoints) == 1

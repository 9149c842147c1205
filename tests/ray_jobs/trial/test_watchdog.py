"""A worker that makes no progress ends itself."""

import multiprocessing
import time
from dataclasses import replace

import pytest

from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, SweepRecord
from par.testing import tiny_run
from ray_jobs.trial.spec import TrialSpec
from ray_jobs.trial.watchdog import EXIT_CODE, hung, watched


@pytest.fixture
def spec(tmp_path):
    ledger = Ledger.create(tmp_path, "sweep", SweepRecord(space=""))
    record = ConfigRecord.of(tiny_run(), number=0, suggested={})
    ledger.add_config(record)
    return replace(TrialSpec.of(ledger, record, 0, gpus=0, cpus=1, hang_after_s=0.5), attempt=3)


def hang_in_here(spec: TrialSpec, beats: int) -> None:
    with watched(spec, 1) as beat:
        for _ in range(beats):
            time.sleep(0.2)
            beat()
        time.sleep(60)


def run(spec: TrialSpec, beats: int) -> tuple[int | None, float]:
    process = multiprocessing.get_context("spawn").Process(target=hang_in_here, args=(spec, beats))
    process.start()
    began = time.monotonic()
    process.join(60)
    return process.exitcode, time.monotonic() - began


def test_a_hang_ends_the_process_and_leaves_its_stacks(spec):
    """A real process without progress exits by itself; its stacks lie in the ledger and name the line (T7 T13)."""
    code, _ = run(spec, beats=0)
    assert code == EXIT_CODE
    ledger = spec.ledger()
    assert hung(ledger, spec.config, spec.seed, 3)
    assert not hung(ledger, spec.config, spec.seed, 1)
    stacks = ledger.read_bytes(spec.config, spec.seed, "stacks-attempt3-rank1.txt")
    assert b"hang_in_here" in stacks


def test_progress_keeps_a_process_alive(spec):
    """A process that gets on is left alone for as long as it does, and ends once it does not."""
    code, seconds = run(spec, beats=10)
    assert code == EXIT_CODE
    assert seconds > 10 * 0.2


def test_a_process_that_is_done_is_left_alone(spec):
    """After the end of the work no watchdog barks."""
    with watched(spec, 0) as beat:
        beat()
    time.sleep(1)
    assert not hung(spec.ledger(), spec.config, spec.seed, 3)

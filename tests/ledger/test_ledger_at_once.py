"""Processes write a ledger at once, in a local folder and in an object store, while others read it."""

import multiprocessing
import os
import signal
from dataclasses import replace

from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, SeedResult
from tests.ledger.ledgers import BULK, CONFIG, begun

LATER = "2026-01-01T13:00:00+00:00"


def write_seeds(ledger: Ledger, first: int, last: int) -> None:
    for seed in range(first, last):
        begun = ledger.begin_attempt(CONFIG.id, seed, Attempt(traceback=BULK))
        ledger.end_attempt(CONFIG.id, seed, replace(begun, end=LATER))
        ledger.finish(CONFIG.id, seed, SeedResult(metrics={"G": float(seed)}, message=BULK))


def write_for_ever(ledger: Ledger, seed: int) -> None:
    while True:
        begun = ledger.begin_attempt(CONFIG.id, seed, Attempt(traceback=BULK))
        ledger.end_attempt(CONFIG.id, seed, replace(begun, end=LATER))


def test_processes_write_at_once_while_others_read(new_storage):
    """Two processes write seeds of one configuration, a third is killed while it writes; every reading succeeds,
    results never go away, and in the end everything is there."""
    ledger = begun(new_storage())
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_seeds, args=(ledger, 3 * i, 3 * i + 3)) for i in range(2)]
    doomed = spawn.Process(target=write_for_ever, args=(ledger, 99))
    for process in (*writers, doomed):
        process.start()
    seen = {}
    while len(seen) < 6 or doomed.is_alive():
        (config,) = ledger.read().configs
        assert seen.items() <= config.results.items()
        seen = config.results
        if 99 in config.seeds and len(config.seeds[99].attempts) >= 3 and doomed.is_alive():
            os.kill(doomed.pid, signal.SIGKILL)
            doomed.join()
    for process in writers:
        process.join()
        assert process.exitcode == 0
    (config,) = ledger.read().configs
    assert {seed: result.metrics["G"] for seed, result in config.results.items()} == {i: i for i in range(6)}
    assert all(life.ended for seed in range(6) for life in config.seeds[seed].attempts)
    assert all(life.traceback == BULK for life in config.seeds[99].attempts)

"""Processes write a ledger at once, in a local folder and in an object store, while others read it."""

import multiprocessing
import os
import signal

from par.ledger.ledger import Ledger, SeedResult
from tests.ledger.ledgers import BULK, CONFIG, begun


def write_seeds(ledger: Ledger, first: int, last: int) -> None:
    for seed in range(first, last):
        k = ledger.begin_attempt(CONFIG.id, seed, {"bulk": BULK})
        ledger.end_attempt(CONFIG.id, seed, k, {"end": 1})
        ledger.finish(CONFIG.id, seed, SeedResult(metrics={"G": float(seed)}, message=BULK))


def write_for_ever(ledger: Ledger, seed: int) -> None:
    while True:
        ledger.end_attempt(CONFIG.id, seed, ledger.begin_attempt(CONFIG.id, seed, {"bulk": BULK}), {"end": 1})


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
    assert all(life.record["bulk"] == BULK for life in config.seeds[99].attempts)

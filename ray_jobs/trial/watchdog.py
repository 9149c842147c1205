"""A worker that makes no progress ends itself, and leaves the stacks of its threads in the ledger."""

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from par.ledger.ledger import Ledger
from ray_jobs.trial.spec import TrialSpec

EXIT_CODE = 75


@contextmanager
def watched(spec: TrialSpec, rank: int) -> Iterator[Callable[[], None]]:
    """End the process when nothing comes further for ``spec.hang_after_s`` seconds; yields what is called at progress.

    A process that hangs in a collective cannot be interrupted, only ended; the stacks then say where it was. In a hang
    of one worker its peers wait for it, so that each of them ends and leaves its stacks, too.
    """
    beat, over = threading.Event(), threading.Event()

    def watch() -> None:
        while beat.wait(spec.hang_after_s):
            if over.is_set():
                return
            beat.clear()
        try:
            spec.folder.write(f"{_stacks(spec.attempt, rank)}.txt", _all_stacks().encode())
        finally:
            os._exit(EXIT_CODE)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()
    try:
        yield beat.set
    finally:
        over.set()
        beat.set()


def hung(ledger: Ledger, config: str, seed: int, attempt: int) -> bool:
    """Whether a worker of this attempt ended itself because nothing came further."""
    return any(name.startswith(_stacks(attempt, "")) for name in ledger.files(config, seed))


def _stacks(attempt: int, rank: int | str) -> str:
    return f"stacks-attempt{attempt}-rank{rank}"


def _all_stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )

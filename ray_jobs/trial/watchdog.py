"""A worker that makes no progress ends itself, and leaves the stacks of its threads in the ledger."""

import os
import sys
import threading
import traceback
from types import TracebackType
from typing import Self

from par.ledger.ledger import Ledger
from ray_jobs.trial.spec import TrialSpec

EXIT_CODE = 75


class Watchdog:
    """Ends the process when nothing has come further for ``spec.hang_after_s`` seconds.

    A process that hangs in a collective cannot be interrupted, only ended; the stacks then say where it was. In a hang
    of one worker its peers wait for it, so that each of them ends and leaves its stacks, too.
    """

    def __init__(self, spec: TrialSpec, rank: int) -> None:
        self.spec, self.rank = spec, rank
        self._beat = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def beat(self) -> None:
        """Progress has been made."""
        self._beat.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._beat.set()

    def _watch(self) -> None:
        while self._beat.wait(self.spec.hang_after_s):
            if self._over:
                return
            self._beat.clear()
        try:
            name = f"{_stacks(self.spec.attempt, self.rank)}.txt"
            self.spec.folder.write(name, _all_stacks().encode())
        finally:
            os._exit(EXIT_CODE)


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

"""How a sweep ends before it is done: on a signal, when a budget is used up, or when too much fails."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from types import FrameType
from typing import Any

from ray import tune

SEEDS_MISSING = 1
"""Exit code when some seeds have no result yet."""


@dataclass(slots=True)
class Stopping:
    """Whether, why and since when the sweep is to end, and with which exit code."""

    clock: Callable[[], float] = monotonic
    reason: str | None = None
    exit_code: int = SEEDS_MISSING
    since: float = 0.0

    def ask(self, reason: str, exit_code: int = SEEDS_MISSING) -> None:
        """Have the sweep end; the first reason counts."""
        if self.reason is None:
            self.reason, self.exit_code, self.since = reason, exit_code, self.clock()

    def seconds(self) -> float:
        """Since it was asked for; 0 before."""
        return 0.0 if self.reason is None else self.clock() - self.since

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask for the end; a second one ends the process at once."""
        former = {number: signal.signal(number, self._hear) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.reason is not None:
            os._exit(128 + number)
        self.ask(signal.Signals(number).name, 128 + number)


class NotPickled:
    """What Tune pickles with its own state and par never reads back: of a sweep the ledger is the only state."""

    def __getstate__(self) -> dict[str, Any]:
        """Nothing."""
        return {}


class StopCallback(NotPickled, tune.Callback):
    """Carries the wish to stop to the search and to the workers, as Tune goes round."""

    def __init__(self, stopping: Stopping, look: Callable[[], None], begin: Callable[[str], None]) -> None:
        """``look`` may ask for the end; ``begin`` is called once with the reason when it begins."""
        self.stopping, self.look, self.begin = stopping, look, begin
        self.begun = False

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Look, and begin to stop when it is asked for."""
        if self.stopping.reason is None:
            self.look()
        if self.stopping.reason is not None and not self.begun:
            self.begun = True
            self.begin(self.stopping.reason)


class GraceOver(NotPickled, tune.Stopper):
    """Ends the trials that have not left by themselves within the grace period."""

    def __init__(self, stopping: Stopping, grace_s: float) -> None:
        self.stopping, self.grace_s = stopping, grace_s

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No trial is stopped for what it reports."""
        return False

    def stop_all(self) -> bool:
        """Whether the grace period is over."""
        return self.stopping.seconds() > self.grace_s

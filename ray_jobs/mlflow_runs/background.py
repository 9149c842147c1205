"""The projection while a sweep runs: one thread writes to MLflow, and the driver never waits for it."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Event, Thread
from time import time
from typing import Any, Self

from par import metrics as m
from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord
from par.ledger.state import ConfigState, SweepState
from ray_jobs.mlflow_runs.projection import Projection
from ray_jobs.mlflow_runs.store import Store, open_store, sync_command

TRIES = 3
"""How often what a store refuses while it answers is tried."""
RECORDED = {"step", *(metric.name for metric in m.TRAINING)}
"""What MLflow keeps of a training record."""
ROUND_S = 1.0
"""Between rounds of writing: what comes meanwhile goes in one batch."""
LONGEST_PAUSE_S = 30.0
"""Between tries while the store is away; the first one lasts ROUND_S, each further one twice as long."""
LAST_WAIT_S = 60.0
"""How long the end of a sweep waits for the store."""
LONGEST_REASON = 200
_SWEEP = "sweep"

Task = Callable[[Projection], None]


@dataclass(frozen=True, slots=True)
class _Steps:
    """Training records of a seed, each with the time at which it came."""

    record: ConfigRecord
    seed: int
    rows: tuple[tuple[int, Mapping[str, Any]], ...]

    def __call__(self, projection: Projection) -> None:
        projection.log_steps(self.record, self.seed, self.rows)


class BackgroundProjection:
    """A Projection whose calls return at once and never fail.

    What they ask for waits in memory, the latest state of each seed and all its training records, until MLflow takes
    it: while it is away nothing is lost but with the process, and that comes from the ledger once the seed is done.
    MLflow is looked for again with growing pauses; the console hears once that it went and once that it is back. What
    it refuses while it answers is left out after some tries. Use it as a context: its end waits for the rest.
    """

    def __init__(self, ledger: Ledger, store: Store, say: Callable[[str], object]) -> None:
        self.ledger, self.uri, self.say = ledger, store.uri, say
        self.store: Store | None = store
        self.projection: Projection | None = None
        self.tasks: dict[Hashable, Task] = {}
        self.refusals = Counter[Hashable]()
        self.away = self.lacking = False
        self.changed, self.closing, self.given_up = Condition(), Event(), Event()
        self.thread = Thread(target=self._run, name="mlflow", daemon=True)
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sync(self, state: SweepState, *, status: str) -> None:
        """Bring every run to the ledger's state."""
        self._submit(_SWEEP, lambda projection: projection.sync(state, status=status))

    def sync_seed(self, config: ConfigState, seed: int, *, running: bool = False) -> None:
        """Project one seed."""
        self._submit((config.id, seed), lambda projection: projection.sync_seed(config, seed, running=running))

    def sync_config(self, config: ConfigState, *, running: bool = False) -> None:
        """Project a configuration's verdict."""
        self._submit(config.id, lambda projection: projection.sync_config(config, running=running))

    def log_steps(self, record: ConfigRecord, seed: int, row: Mapping[str, Any]) -> None:
        """Log a training record of a seed: of all that it reports the step and the training metrics."""
        row = {name: value for name, value in row.items() if name in RECORDED}
        key = ("steps", record.id, seed)
        with self.changed:
            waiting = self.tasks.get(key)
            rows = waiting.rows if isinstance(waiting, _Steps) else ()
            self._submit(key, _Steps(record, seed, (*rows, (int(time() * 1000), row))))

    def log_file(self, path: Path) -> None:
        """Keep a file with the sweep's run."""
        self._submit(path, lambda projection: projection.log_file(path))

    def close(self, limit_s: float = LAST_WAIT_S) -> None:
        """Wait for what is left to be written; if MLflow does not take it in time, say who writes it later."""
        with self.changed:
            self.closing.set()
            self.changed.notify()
        self.thread.join(limit_s)
        self.given_up.set()
        if self.tasks or self.lacking:
            self.say(f"MLflow has not got everything: {sync_command(self.ledger, self.uri)} writes the rest")

    def _submit(self, key: Hashable, task: Task) -> None:
        with self.changed:
            self.tasks[key] = task
            self.changed.notify()

    def _run(self) -> None:
        """The thread: write what waits, until it is closed and nothing does."""
        pause = ROUND_S
        while self._something_waits():
            pause = ROUND_S if self._round() else min(2 * pause, LONGEST_PAUSE_S)
            self._rest(pause)

    def _something_waits(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.tasks or self.closing.is_set())
            return bool(self.tasks) and not self.given_up.is_set()

    def _rest(self, pause: float) -> None:
        if not self.closing.is_set():
            self.closing.wait(pause)
        elif self.tasks:
            self.given_up.wait(ROUND_S)

    def _round(self) -> bool:
        """Try what waits, in the order in which it came; False at the first that MLflow does not take."""
        with self.changed:
            tasks = list(self.tasks.items())
        return all(self._connected() and self._taken(key, task) for key, task in tasks)

    def _connected(self) -> bool:
        """Whether MLflow answers, asked anew after a call that failed."""
        if self.projection is not None:
            return True
        try:
            self.projection = Projection(self.ledger, self.store or open_store(self.uri))
        except Exception as fault:  # noqa: BLE001  # whatever it is, training goes on without MLflow
            if not self.away and not self.given_up.is_set():
                self.say(f"MLflow does not answer; the sweep goes on, and tells it later: {_reason(fault)}")
            self.away, self.store = True, None
            return False
        if self.away:
            self.away = False
            self.say("MLflow answers again")
        return True

    def _taken(self, key: Hashable, task: Task) -> bool:
        """Whether the task is done, or given up."""
        assert self.projection is not None
        try:
            task(self.projection)
        except Exception as fault:  # noqa: BLE001  # whatever it is, training goes on without MLflow
            self.projection = self.store = None
            self.refusals[key] += 1
            if self.refusals[key] < TRIES:
                return False
            if not self.lacking:
                self.say(f"MLflow refuses a part of what the sweep writes; the sweep goes on: {_reason(fault)}")
            self.lacking = True
        else:
            self.lacking &= key != _SWEEP
        del self.refusals[key]
        with self.changed:
            if self.tasks.get(key) is task:
                del self.tasks[key]
        return True


def _reason(fault: Exception) -> str:
    return (str(fault).splitlines() or [type(fault).__name__])[0][:LONGEST_REASON]

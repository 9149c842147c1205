"""The attempts at a sweep's seeds under one driver: how each attempt ended, and what follows."""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from par.errors import DiskFullError, FailureKind
from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, now
from par.ledger.state import ConfigState, SeedState, SweepState
from par.race.racing import Run
from par.race.retry import ADVICE, GiveUp, StartAgain, decide
from ray_jobs.trial.attempt import failure_of


@dataclass(slots=True)
class Attempts:
    """What became of the seeds that have no result.

    ``kinds`` are the failures that this driver was asked to start again; ``saved_step`` reads where a seed would go on.
    """

    ledger: Ledger
    seeds: Collection[int]
    """That a configuration may come to have."""
    saved_step: Callable[[str, int], int]
    kinds: Collection[FailureKind] = ()
    given_up: dict[Run, GiveUp] = field(default_factory=dict[Run, GiveUp])
    asked_for: set[Run] = field(default_factory=set[Run])
    """Given up before, and to be started by this driver all the same."""
    device_seconds: float = 0.0
    """What all attempts that have ended took."""

    def end_open(self, state: SweepState, end: str) -> SweepState:
        """End the attempts that nobody runs any more, as of ``end`` in ISO format; returns the state as it is then.

        One that began later, after the last sign of life of its driver, ends as it begins.
        """
        for config, seed, lived in _unfinished(state):
            if lived.attempts and not lived.attempts[-1].ended:
                last = lived.attempts[-1]
                ended = max(end, last.start or end)
                with suppress(DiskFullError):  # the next driver does it
                    self._end(config.id, seed, last, FailureKind.STOPPED, "its driver ended", ended)
        return self.ledger.read()

    def take_over(self, state: SweepState, last_seen: str) -> SweepState:
        """Take a sweep over from a driver that was last alive at ``last_seen``, and decide about its unfinished seeds.

        Returns the state as it is then.
        """
        state = self.end_open(state, last_seen)
        self.count(life for config in state.configs for lived in config.seeds.values() for life in lived.attempts)
        for config, seed, _ in _unfinished(state):
            self.decide(config, seed)
        self.asked_for = {seed for seed, fate in self.given_up.items() if fate.kind in self.kinds}
        self.given_up = {seed: fate for seed, fate in self.given_up.items() if seed not in self.asked_for}
        return state

    def decide(self, config: ConfigState, seed: int) -> StartAgain | GiveUp:
        """Decide what follows for a seed that has no result and does not run."""
        decision = decide(config.attempts(seed))
        if isinstance(decision, GiveUp):
            others = {*self.seeds, *config.seeds} if decision.whole_configuration else {seed}
            self.given_up |= {(config.id, other): decision for other in others if other not in config.results}
        return decision

    def without_room(self, config: str, seed: int) -> GiveUp:
        """Give a seed up, without a record of it, since the disk of the ledger is full."""
        self.given_up[config, seed] = GiveUp(f"{FailureKind.DISK}: {ADVICE[FailureKind.DISK]}", FailureKind.DISK)
        return self.given_up[config, seed]

    def close(self, config: str, seed: int, fault: BaseException, known: int) -> None:
        """Write the end of an attempt that could not do so itself, and of one that could not even begin.

        ``fault`` is what the cluster says of the process that died; ``known`` are the attempts from before the trial.
        """
        attempts = self.ledger.read_config(config).attempts(seed)
        if len(attempts) == known:
            begun = Attempt(start=now(), resumed_at=self.saved_step(config, seed))
            attempts = (*attempts, self.ledger.begin_attempt(config, seed, begun))
        if not attempts[-1].ended:
            kind = failure_of(self.ledger, config, seed, attempts[-1], fault)
            self._end(config, seed, attempts[-1], kind, str(fault), now())

    def count(self, attempts: Iterable[Attempt]) -> None:
        """Add what attempts that have ended took."""
        self.device_seconds += sum(attempt.device_seconds for attempt in attempts)

    def _end(self, config: str, seed: int, attempt: Attempt, kind: FailureKind, message: str, end: str) -> None:
        failed = replace(attempt, failure=kind, message=message)
        self.ledger.end_attempt(config, seed, failed.ended_at(end, saved_step=self.saved_step(config, seed)))


def _unfinished(state: SweepState) -> list[tuple[ConfigState, int, SeedState]]:
    return [
        (config, seed, lived) for config in state.configs for seed, lived in config.seeds.items() if not lived.result
    ]

"""Where a seed stands: what its attempts and its result say about it."""

from collections import Counter, defaultdict
from enum import StrEnum

from par.errors import FROM_OUTSIDE
from par.ledger.records import Attempt
from par.ledger.state import ConfigState, SeedState, SweepState
from par.race.racing import Finished, Race, next_run
from par.space.space import Space


class Status(StrEnum):
    """Where one seed stands."""

    DONE = "done"
    """It has a result; a diverged seed has one, too."""
    RUNNING = "running"
    FAILED = "failed"
    """Its last attempt ended with a failure of its own."""
    KILLED = "killed"
    """Its last attempt was stopped, or ended without a word."""
    WAITING = "waiting"
    """It has not begun."""


def seed_status(config: ConfigState, seed: int, *, driven: bool) -> Status:
    """Where a seed stands; ``driven`` says whether a driver is alive, without which nothing runs."""
    state = config.seeds.get(seed, SeedState((), None))
    if state.result is not None:
        return Status.DONE
    if not state.attempts:
        return Status.WAITING
    if not state.attempts[-1].ended:
        return Status.RUNNING if driven else Status.KILLED
    failure = state.attempts[-1].failure
    return Status.KILLED if failure is None or failure in FROM_OUTSIDE else Status.FAILED


def last_word(config: ConfigState, seed: int) -> tuple[str, str]:
    """Kind and message of the failure that the seed, or else its last attempt, ended with; empty if there is none."""
    state = config.seeds.get(seed, SeedState((), None))
    if state.result is not None:
        return state.result.failure or "", state.result.message
    last = state.attempts[-1] if state.attempts else Attempt()
    return last.failure or "", last.message or ""


def in_a_word(config: ConfigState, seed: int, *, driven: bool) -> str:
    """The kind of failure that a seed, or else its last attempt, ended with; where there is none where it stands."""
    return last_word(config, seed)[0] or seed_status(config, seed, driven=driven).value


def failures(state: SweepState) -> dict[str, list[tuple[str, str]]]:
    """By kind the seeds that ended so, or whose last attempt did: configuration and number, and the message."""
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for config in state.configs:
        for seed in config.seeds:
            kind, message = last_word(config, seed)
            if kind:
                found[kind].append((f"{config.id} seed {seed}", message.strip()))
    return found


def status_counts(state: SweepState, space: Space, *, driven: bool) -> Counter[Status]:
    """How many seeds of the whole sweep stand where; of configurations that are not proposed yet the first ones wait.

    Seeds that a race may still come to are not among them.
    """
    race = Race(space.stages, space.score, state.configs)
    found = Counter(
        seed_status(config, seed, driven=driven) for config in state.configs for seed in race.seeds_of(config.id)
    )
    found[Status.WAITING] += unproposed(state, space) * space.stages.rungs[0]
    return found


def unproposed(state: SweepState, space: Space) -> int:
    """Configurations that the sweep is to have and that are not proposed yet."""
    return max(0, space.total - len(state.configs))


def is_complete(state: SweepState, space: Space) -> bool:
    """Whether every wanted seed of every configuration has a result, and no stage is left."""
    race = Race(space.stages, space.score, state.configs)
    return isinstance(next_run(race, configurations=space.shares(), running=()), Finished)

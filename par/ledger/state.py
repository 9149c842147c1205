"""The state of a sweep at one time, rebuilt from the ledger's objects."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from par.errors import LedgerError
from par.ledger.records import Attempt, ConfigRecord, Record, SeedResult, Stage, SweepRecord, Verdict
from par.space.stages import FRESH


@dataclass(frozen=True, slots=True)
class SeedState:
    """A seed that has begun."""

    attempts: tuple[Attempt, ...]
    """In order of number."""
    result: SeedResult | None


@dataclass(frozen=True, slots=True)
class ConfigState:
    """A configuration, its seeds by number, and what they were judged to be worth."""

    record: ConfigRecord
    seeds: Mapping[int, SeedState]
    verdicts: tuple[Verdict, ...] = ()
    """Of every stage, by number of seeds: one for each rung that was completed, and the confirmation."""

    @property
    def id(self) -> str:
        """First 8 hex digits of the fingerprint."""
        return self.record.id

    @property
    def verdict(self) -> Verdict | None:
        """What the search was last told, over the most seeds; None before the first rung is complete."""
        return next((verdict for verdict in reversed(self.verdicts) if verdict.stage == "search"), None)

    @property
    def confirmation(self) -> Verdict | None:
        """What its fresh seeds say; None before all of them have a result."""
        return next((verdict for verdict in reversed(self.verdicts) if verdict.stage == "confirm"), None)

    @property
    def results(self) -> dict[int, SeedResult]:
        """Results of the seeds that are done, by seed."""
        return {seed: state.result for seed, state in self.seeds.items() if state.result is not None}

    def judged(self, verdict: Verdict) -> Self:
        """The configuration with one more verdict."""
        return replace(self, verdicts=tuple(sorted((*self.verdicts, verdict), key=_seeds_of)))

    def attempts(self, seed: int) -> tuple[Attempt, ...]:
        """The attempts at a seed so far, in order; none if it has not begun."""
        return self.seeds[seed].attempts if seed in self.seeds else ()

    def device_hours(self, seed: int) -> float:
        """What all attempts of a seed took that have ended: hours times devices (GPUs, or workers without any)."""
        return sum(attempt.device_seconds for attempt in self.attempts(seed)) / 3600

    def stage(self, seed: int) -> Stage:
        """Which stage a seed that has begun belongs to: the first seed of a search begins before any fresh one."""
        return "search" if seed < min(self.seeds, default=seed) + FRESH else "confirm"


@dataclass(frozen=True, slots=True)
class SweepState:
    """The sweep at the time of reading. Configurations are in order of their number."""

    sweep: SweepRecord
    configs: tuple[ConfigState, ...]


_RECORDS: Mapping[str, type[Record]] = {
    "config": ConfigRecord, "result": SeedResult, "search": Verdict, "confirm": Verdict,
}  # fmt: skip
"""What an object holds, by the first word of its name."""


def snapshot(sweep: SweepRecord, objects: Mapping[str, Mapping[str, Any]]) -> SweepState:
    """Build the state of a sweep from its objects by path, in whatever order they come.

    Raises LedgerError that names an object which lacks a field.
    """
    tree: dict[str, dict[str, Any]] = {}
    for path, values in objects.items():
        _, config, *folders, name = path.split("/")
        node = tree.setdefault(config, {})
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = _parse(path, name, values)
    configs = sorted(map(_config_state, tree.values()), key=lambda config: (config.record.number, config.id))
    return SweepState(sweep, tuple(configs))


def _parse(path: str, name: str, values: Mapping[str, Any]) -> Record:
    word, _, number = name.removesuffix(".json").partition("-")
    if word == "attempt":
        return Attempt.of(int(number), values)
    try:
        return _RECORDS[word].from_dict(values)
    except LedgerError as fault:
        raise LedgerError(f"{path}: {fault}") from None


def _config_state(folder: Mapping[str, Any]) -> ConfigState:
    seeds = {int(name.removeprefix("seed-")): _seed_state(sub) for name, sub in folder.items() if "seed-" in name}
    verdicts = [record for record in folder.values() if isinstance(record, Verdict)]
    return ConfigState(folder["config.json"], dict(sorted(seeds.items())), tuple(sorted(verdicts, key=_seeds_of)))


def _seeds_of(verdict: Verdict) -> int:
    return len(verdict.seeds)


def _seed_state(folder: Mapping[str, Any]) -> SeedState:
    attempts = [record for record in folder.values() if isinstance(record, Attempt)]
    return SeedState(tuple(sorted(attempts, key=lambda attempt: attempt.number)), folder.get("result.json"))

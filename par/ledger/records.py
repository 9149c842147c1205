"""What the ledger's objects hold, and the state of a sweep that is rebuilt from them."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, Self

from par.config.keys import renamed, renamed_run
from par.config.run import RunConfig
from par.errors import LedgerError
from par.space.stages import FRESH
from par.space.variants import VARIANT

Stage = Literal["search", "confirm"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one JSON object holds. Fields that only a newer version knows are ignored."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, as written."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from what was read. Raises LedgerError that names the fields that are missing."""
        needed, known = _names(cls)
        if missing := needed - values.keys():
            raise LedgerError(f"{cls.__name__} lacks {', '.join(sorted(missing))}: restore the object from a copy")
        return cls(**{name: values[name] for name in known if name in values})


@cache
def _names(record: type[Record]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The fields that have no default, and all fields."""
    needed = {f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING}
    return frozenset(needed), tuple(f.name for f in fields(record))


@dataclass(frozen=True, kw_only=True)
class ConfigRecord(Record):
    """One proposal of the search."""

    id: str
    """First 8 hex digits of RunConfig.fingerprint()."""
    number: int
    """Position in the order of proposals."""
    backbone: str
    suggested: Mapping[str, Any]
    """Dotted keys that the search chose, with their values; or ``variant`` with the name of one."""
    run: Mapping[str, Any]
    """The whole RunConfig without its seed, nested."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from what was read, by this version or an earlier one, under the keys of this version."""
        record = super().from_dict(values)
        return replace(record, suggested=renamed(record.suggested), run=renamed_run(record.run))

    @classmethod
    def of(cls, run: RunConfig, *, number: int, suggested: Mapping[str, Any]) -> Self:
        """Record ``run`` under the id that its fingerprint gives."""
        plain = run.model_dump(mode="json", exclude={"seed"})
        return cls(id=run.fingerprint()[:8], number=number, backbone=run.backbone, suggested=suggested, run=plain)

    def choices(self, *, short: bool = False) -> list[str]:
        """What the search chose, for a person: ``optim.lr=0.00125``, or ``lr=0.00125``; a variant is its name alone."""
        return [_choice(key.rpartition(".")[2] if short else key, value) for key, value in self.suggested.items()]


def _choice(name: str, value: object) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if name == VARIANT else f"{name}={text}"


@dataclass(frozen=True, kw_only=True)
class SeedResult(Record):
    """How a seed ended: with metrics, or with a final failure, which is a result, too."""

    metrics: Mapping[str, float]
    """Finite numbers by metric name."""
    failure: str | None = None
    """A FailureKind."""
    message: str = ""
    """What the failure said."""
    step: int = 0
    """Optimizer steps taken."""
    evaluation_set: str = ""
    """Hash of the frozen test prompts that were read; empty if none were."""

    def score(self, metric: str) -> float:
        """Value of ``metric``; 0 for a failed seed. Raises LedgerError if it was not measured."""
        if self.failure is not None:
            return 0.0
        if metric not in self.metrics:
            raise LedgerError(f"the result has no metric {metric}: choose one of {', '.join(sorted(self.metrics))}")
        return self.metrics[metric]


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """What the search was told about a configuration."""

    score: float
    seeds: tuple[int, ...]
    """Seeds that the score aggregates."""
    stage: Stage = "search"
    """Which stage they belong to."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Other aggregates over these seeds, by metric name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", tuple(self.seeds))


@dataclass(frozen=True, kw_only=True)
class Computing(Record):
    """How the seeds of a sweep are computed, which changes no result. None: nothing was said, the default holds."""

    cpus_per_worker: float | None = None
    gpus_per_worker: float | None = None
    max_concurrent: int | None = None
    """Trials at once."""
    max_failed_share: float | None = None
    hang_after_s: float | None = None
    grace_s: float | None = None
    tracking_uri: str | None = None
    """Of MLflow, with *** in the place of a password."""

    def given(self) -> dict[str, Any]:
        """What was said, by field."""
        return {name: value for name, value in self.to_dict().items() if value is not None}

    def over(self, before: Self) -> Self:
        """What is said here, and what was said before where nothing is."""
        return replace(before, **self.given())


@dataclass(frozen=True, slots=True)
class Attempt:
    """One life of a seed."""

    number: int
    record: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """False while it runs, and until somebody writes its end if it died without a word."""
        return "end" in self.record

    @property
    def failure(self) -> str | None:
        """A FailureKind; None while it runs, and if it ended with the seed's result."""
        return self.record.get("failure")

    @property
    def resumed_at(self) -> int:
        """Step of the checkpoint that it began from."""
        return self.record.get("resumed_at", 0)

    @property
    def saved_step(self) -> int:
        """Step of the last checkpoint that it left."""
        return self.record.get("saved_step", self.resumed_at)

    @property
    def device_seconds(self) -> float:
        """Seconds times devices (GPUs, or workers without any); 0 until it has ended."""
        return self.record.get("device_seconds", 0.0)

    @property
    def asked_for(self) -> bool:
        """Whether a person had the seed started again after it had been given up."""
        return self.record.get("asked_for", False)


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
        """The lives of a seed so far, in order; none if it has not begun."""
        return self.seeds[seed].attempts if seed in self.seeds else ()

    def device_hours(self, seed: int) -> float:
        """What all attempts of a seed took that have ended: hours times devices (GPUs, or workers without any)."""
        return sum(life.device_seconds for life in self.attempts(seed)) / 3600

    def stage(self, seed: int) -> Stage:
        """Which stage a seed that has begun belongs to: the first seed of a search begins before any fresh one."""
        return "search" if seed < min(self.seeds, default=seed) + FRESH else "confirm"


@dataclass(frozen=True, slots=True)
class SweepState:
    """The sweep at the time of reading. Configurations are in order of their number."""

    sweep: Mapping[str, Any]
    configs: tuple[ConfigState, ...]


_RECORDS = {"config": ConfigRecord, "result": SeedResult, "search": Verdict, "confirm": Verdict}
"""What an object holds, by the first word of its name."""


def snapshot(sweep: Mapping[str, Any], objects: Mapping[str, Mapping[str, Any]]) -> SweepState:
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


def _parse(path: str, name: str, values: Mapping[str, Any]) -> Record | Attempt:
    word, _, number = name.removesuffix(".json").partition("-")
    if word == "attempt":
        return Attempt(int(number), values)
    try:
        return _RECORDS[word].from_dict(values)
    except LedgerError as fault:
        raise LedgerError(f"{path}: {fault}") from None


def _config_state(folder: Mapping[str, Any]) -> ConfigState:
    seeds = {int(name.removeprefix("seed-")): sub for name, sub in folder.items() if name.startswith("seed-")}
    verdicts = [record for record in folder.values() if isinstance(record, Verdict)]
    return ConfigState(
        record=folder["config.json"],
        seeds={seed: _seed_state(seeds[seed]) for seed in sorted(seeds)},
        verdicts=tuple(sorted(verdicts, key=_seeds_of)),
    )


def _seeds_of(verdict: Verdict) -> int:
    return len(verdict.seeds)


def _seed_state(folder: Mapping[str, Any]) -> SeedState:
    attempts = [record for record in folder.values() if isinstance(record, Attempt)]
    return SeedState(tuple(sorted(attempts, key=lambda attempt: attempt.number)), folder.get("result.json"))


def ended_record(begun: Mapping[str, Any], *, end: str, saved_step: int) -> dict[str, Any]:
    """What every end of an attempt says: when, how far it came, and the device-seconds that it took."""
    start = datetime.fromisoformat(begun.get("start", end))
    seconds = max(0.0, (datetime.fromisoformat(end) - start).total_seconds())
    return {"end": end, "saved_step": saved_step, "device_seconds": seconds * begun.get("devices", 0)}


def now() -> str:
    """The time, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")

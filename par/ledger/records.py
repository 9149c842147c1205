"""What each of the ledger's objects holds."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, Self

from par import metrics as m
from par.config.keys import renamed, renamed_run
from par.config.run import RunConfig
from par.errors import LedgerError
from par.space.parse import VARIANT

FORMAT = 1
"""Layout of a sweep written here. One with a higher number is refused."""
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


class SparseRecord(Record):
    """A record that leaves out what is not known, None."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are known by name, as written."""
        return {name: value for name, value in super().to_dict().items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class SweepRecord(SparseRecord):
    """What a sweep began with."""

    space: str
    """Text of its search space."""
    space_path: str = "space.yaml"
    """How messages name the space's file."""
    space_fingerprint: str | None = None
    plan: str | None = None
    """What it was to run and take, as shown when it began."""
    warm_start: Mapping[str, Any] | None = None
    """The sweep whose points its search began with, and these points."""
    created: str | None = None
    commit: str | None = None
    source: str | None = None
    """Hash of the code."""
    python: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict[str, str])
    """Versions by name."""
    format: int = FORMAT


@dataclass(frozen=True, kw_only=True)
class SweepTotals(SparseRecord):
    """What a sweep is to have in the end, where that is not what it began with (None)."""

    space: str | None = None
    """Text of its search space."""
    configurations: int | None = None
    seeds: tuple[int, ...] | None = None
    """Of each rung."""
    exhausted: Mapping[str, Sequence[int]] | None = None
    """By backbone the fields of Exhausted: it has no further configurations."""

    def __post_init__(self) -> None:
        if self.seeds is not None:
            rungs = (self.seeds,) if isinstance(self.seeds, int) else tuple(self.seeds)
            object.__setattr__(self, "seeds", rungs)


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

    def outcome(self) -> str:
        """How it ended, for a person: its G, or the kind of its failure."""
        return self.failure or f"G = {self.metrics[m.G.name]:.2f}"

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
class Computing(SparseRecord):
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

    def over(self, before: Self) -> Self:
        """What is said here, and what was said before where nothing is."""
        return replace(before, **self.to_dict())


@dataclass(frozen=True, kw_only=True)
class Attempt(SparseRecord):
    """One try at a seed. While it has no end it runs, or has died without a word."""

    number: int = 0
    """Counted from 1 for each seed; part of the object's name, not of what it holds."""
    node: str | None = None
    pid: int | None = None
    log: str | None = None
    """Where its process wrote, on its node."""
    driver: str | None = None
    """Owner of the lease under which it began."""
    source: str | None = None
    """Hash of the code that it runs."""
    start: str | None = None
    """ISO 8601, as all times here."""
    devices: float | None = None
    """GPUs, or workers without any."""
    resumed_at: int = 0
    """Step of the checkpoint that it began from."""
    micro_batch: int | None = None
    """Prompts of one pass of one worker."""
    asked_for: bool = False
    """Whether a person had the seed started again after it had been given up."""
    end: str | None = None
    saved_step: int = 0
    """Step of the last checkpoint that it left; that of ``resumed_at`` while it runs."""
    device_seconds: float = 0.0
    """Seconds times devices; 0 until it has ended."""
    failure: str | None = None
    """A FailureKind; None while it runs, and if it ended with the seed's result."""
    message: str | None = None
    """What the failure said."""
    traceback: str | None = None
    next_micro_batch: int | None = None
    """Prompts per pass that the next attempt is to try, as this one's did not fit into memory."""

    @classmethod
    def of(cls, number: int, values: Mapping[str, Any]) -> Self:
        """Build from what was read under a number."""
        return cls.from_dict({"saved_step": values.get("resumed_at", 0), **values, "number": number})

    @property
    def ended(self) -> bool:
        """False while it runs, and until somebody writes its end if it died without a word."""
        return self.end is not None

    def to_dict(self) -> dict[str, Any]:
        """Return what is known, as written: before the end nothing of it, and never the number."""
        hidden = ("number",) if self.ended else ("number", "saved_step", "device_seconds")
        return {name: value for name, value in super().to_dict().items() if name not in hidden and value is not False}

    def ended_at(self, end: str, *, saved_step: int) -> Self:
        """The attempt with its end, how far it came, and the device-seconds that it took."""
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(self.start or end)).total_seconds()
        taken = max(0.0, seconds) * (self.devices or 0)
        return replace(self, end=end, saved_step=saved_step, device_seconds=taken)


def now() -> str:
    """The time, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")

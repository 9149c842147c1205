"""What a trial is told: which seed of which configuration, where its truth lives, and what it may use."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from par.config.run import RunConfig
from par.ledger.ledger import Ledger, SeedFolder
from par.ledger.records import ConfigRecord

HANG_AFTER_S = 1800.0
"""Without any progress for as long, a worker counts as hanging."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSpec:
    """One (configuration, seed), as plain data that travels to the workers."""

    storage: str
    sweep: str
    config: str
    """Id of the configuration."""
    seed: int
    settings: Mapping[str, Any]
    """The whole RunConfig, nested."""
    gpus_per_worker: float
    cpus_per_worker: float
    driver: str | None = None
    """Owner of the sweep's lease, who may stop the seed; nobody where a seed runs without a sweep."""
    asked_for: bool = False
    """Whether a person had the seed started again after it had been given up."""
    hang_after_s: float = HANG_AFTER_S
    attempt: int = 0
    """Number of the attempt; 0 before it has begun."""

    @classmethod
    def of(cls, ledger: Ledger, record: ConfigRecord, seed: int, *, gpus: float, cpus: float, **more: Any) -> Self:
        """Write the spec of one seed; ``more`` are further fields."""
        return cls(
            storage=ledger.storage, sweep=ledger.name, config=record.id, seed=seed,
            settings={**record.run, "seed": seed}, gpus_per_worker=gpus, cpus_per_worker=cpus, **more,
        )  # fmt: skip

    @classmethod
    def of_trial(cls, config: Mapping[str, Any]) -> Self:
        """Read the spec that the configuration of a Tune trial carries."""
        return cls(**config["spec"])

    @property
    def run(self) -> RunConfig:
        """The settings, checked again."""
        return RunConfig.model_validate(dict(self.settings))

    @property
    def devices(self) -> float:
        """GPUs that the seed takes, or workers where it has none."""
        return self.run.compute.workers * (self.gpus_per_worker or 1)

    @property
    def trial_name(self) -> str:
        """A short name for folders and lists; the settings are inside them."""
        return f"cfg-{self.config}_seed-{self.seed}"

    @property
    def run_name(self) -> str:
        """Name of the Ray Train run: a later attempt finds it again, another sweep never does."""
        return hashlib.sha256(f"{self.storage}/{self.sweep}/{self.config}/{self.seed}".encode()).hexdigest()[:16]

    @property
    def folder(self) -> SeedFolder:
        """Where the seed lies; every worker of it sees the folder."""
        return SeedFolder(self.ledger(), self.config, self.seed)

    def ledger(self) -> Ledger:
        """Open the ledger that this seed belongs to."""
        return Ledger.open(self.storage, self.sweep)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for Ray."""
        return asdict(self)

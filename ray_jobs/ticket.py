"""What a trial is told: which seed of which configuration, where its truth lives, and what it may use."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from par.config import RunConfig
from par.objects import Objects
from par.study.ledger import Ledger
from par.study.records import ConfigRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
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

    @classmethod
    def of(cls, ledger: Ledger, record: ConfigRecord, seed: int, *, gpus: float, cpus: float) -> Self:
        """Write the ticket of one seed."""
        return cls(
            storage=ledger.storage, sweep=ledger.name, config=record.id, seed=seed,
            settings={**record.run, "seed": seed}, gpus_per_worker=gpus, cpus_per_worker=cpus,
        )  # fmt: skip

    @classmethod
    def of_trial(cls, config: Mapping[str, Any]) -> Self:
        """Read the ticket that the configuration of a Tune trial carries."""
        return cls(**config["ticket"])

    @property
    def run(self) -> RunConfig:
        """The settings, checked again."""
        return RunConfig.model_validate(dict(self.settings))

    def with_micro_batch(self, prompts: int) -> "Ticket":
        """The same seed with this many prompts per pass: nothing that comes out depends on it."""
        train = {**self.settings["train"], "micro_batch": prompts}
        return replace(self, settings={**self.settings, "train": train})

    @property
    def trial_name(self) -> str:
        """A short name for folders and lists; the settings are inside them."""
        return f"cfg-{self.config}_seed-{self.seed}"

    @property
    def run_name(self) -> str:
        """Name of the Ray Train run: a later attempt finds it again, another sweep never does."""
        return hashlib.sha256(f"{self.storage}/{self.sweep}/{self.config}/{self.seed}".encode()).hexdigest()[:16]

    @property
    def checkpoints(self) -> Objects:
        """Where the seed's checkpoints lie; every worker of it sees the folder."""
        return self.ledger().checkpoints(self.config, self.seed)

    def ledger(self) -> Ledger:
        """Open the ledger that this seed belongs to."""
        return Ledger.open(self.storage, self.sweep)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for Ray."""
        return asdict(self)

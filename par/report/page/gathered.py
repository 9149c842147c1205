"""What a report shows, gathered from a ledger: every seed that has a result, with its curves."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from math import ceil
from typing import Any

from par import metrics as m
from par.ledger.ledger import ACCURACY, HISTORY, READERS, Ledger
from par.ledger.records import SeedResult
from par.ledger.state import ConfigState
from par.race.racing import Race
from par.report.overview import Overview
from par.report.table import rank
from par.statistics.success import SUCCESS

SEARCH, FRESH = "search", "fresh"
"""The stages that seeds belong to, as charts and tables call them."""
COURSE_POINTS = 24
"""Most points of a drift curve: the largest drift of each of so many equal parts of training."""


class Outcome(StrEnum):
    """How a seed ended."""

    REACHED = f"G ≥ {SUCCESS:g}"
    BELOW = f"G < {SUCCESS:g}"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Curve:
    """Accuracy by depth; empty for a seed that failed before it was evaluated."""

    depths: Sequence[int] = ()
    single_query: Sequence[float] = ()
    full_state: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Course:
    """A training metric by step."""

    steps: Sequence[int] = ()
    values: Sequence[float] = ()

    def until(self, step: float) -> Sequence[float]:
        """The values up to a step."""
        return [value for at, value in zip(self.steps, self.values, strict=True) if at <= step]

    def peaks(self) -> "Course":
        """At most COURSE_POINTS of its points: the largest value of each part of training, so that no peak is lost."""
        if len(self.steps) <= COURSE_POINTS:
            return self
        size = ceil(len(self.steps) / COURSE_POINTS)
        parts = [range(start, min(start + size, len(self.steps))) for start in range(0, len(self.steps), size)]
        kept = [max(part, key=self.values.__getitem__) for part in parts]
        return Course([self.steps[place] for place in kept], [self.values[place] for place in kept])


@dataclass(frozen=True, kw_only=True)
class Seed:
    """One seed with a result."""

    config: ConfigState
    number: int
    stage: str
    paired: bool
    """Whether every configuration has it: one of the first rung."""
    result: SeedResult
    curve: Curve
    drift: Course
    on_the_way: Course
    """Single-query accuracy at d_train, during training."""
    grad_norm: Course
    """The largest gradient norm of each record."""

    @property
    def backbone(self) -> str:
        """The backbone of its configuration."""
        return self.config.record.backbone

    @property
    def G(self) -> float:
        """0 for a failed seed."""
        return self.result.score(m.G.name)

    @property
    def censored(self) -> bool:
        """Whether G is a lower bound."""
        return self.result.failure is None and bool(self.result.metrics.get(m.CENSORED.name))

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        if self.result.failure is not None:
            return Outcome.FAILED
        return Outcome.REACHED if self.G >= SUCCESS else Outcome.BELOW


@dataclass(frozen=True)
class Gathered:
    """A sweep at one time."""

    overview: Overview
    seeds: tuple[Seed, ...]
    """Those with a result, in order of configuration and number."""
    race: Race = field(repr=False)

    @property
    def configs(self) -> tuple[ConfigState, ...]:
        """All configurations, in order of number."""
        return self.overview.state.configs

    @property
    def backbones(self) -> tuple[str, ...]:
        """Those that have a result, in the order of the space."""
        there = {seed.backbone for seed in self.seeds}
        return tuple(
            dict.fromkeys([*(name for name in self.overview.space.backbones if name in there), *sorted(there)])
        )

    @cached_property
    def by_config(self) -> dict[str, list[Seed]]:
        """The seeds of each configuration that has any."""
        return {config: list(seeds) for config, seeds in groupby(self.seeds, key=lambda seed: seed.config.id)}

    @property
    def missing(self) -> dict[str, tuple[int, ...]]:
        """Seeds that a configuration is to have, as far as it has come, and that have no result, by configuration."""
        return {config.id: self.race.missing[config.id] for config in self.configs if config.id in self.race.missing}

    def of(self, config: ConfigState, stage: str) -> list[Seed]:
        """The seeds of a configuration in one stage."""
        return [seed for seed in self.by_config.get(config.id, []) if seed.stage == stage]

    def ranked(self) -> list[ConfigState]:
        """Best first: the confirmed ones by what was confirmed, then by search score, then those that wait."""
        return sorted(self.configs, key=rank)

    def leaders(self) -> dict[str, list[Seed]]:
        """For each backbone the seeds of its best configuration: the fresh ones if it is confirmed."""
        found = {
            config.record.backbone: seeds
            for config in reversed(self.ranked())
            if (seeds := self.of(config, FRESH if config.confirmation else SEARCH))
        }
        return {backbone: found[backbone] for backbone in self.backbones if backbone in found}


def gather(overview: Overview, ledger: Ledger) -> Gathered:
    """Read the curves of every seed that has a result. Raises LedgerError for a file that is damaged."""
    stages = overview.space.stages
    found = [(config, number, result) for config in overview.state.configs for number, result in config.results.items()]

    def read(seed: tuple[ConfigState, int, SeedResult]) -> Seed:
        config, number, result = seed
        courses = (m.DRIFT.name, m.ON_THE_WAY.name, m.GRAD_NORM.name)
        steps, *values = _columns(ledger, config.id, number, HISTORY, "step", *courses)
        drift, on_the_way, grad_norm = (_course(steps, column) for column in values)
        return Seed(
            config=config,
            number=number,
            stage=FRESH if number in stages.fresh_seeds else SEARCH,
            paired=number in stages.rung(0),
            result=result,
            curve=read_curve(ledger, config.id, number),
            drift=drift,
            on_the_way=on_the_way,
            grad_norm=grad_norm,
        )

    with ThreadPoolExecutor(READERS) as pool:  # in an object store each read is a round trip
        seeds = tuple(pool.map(read, found))
    return Gathered(overview, seeds, Race(stages, overview.space.score, overview.state.configs))


def read_curve(ledger: Ledger, config: str, seed: int) -> Curve:
    """The accuracies of a seed. Raises LedgerError if their file is damaged."""
    return Curve(*_columns(ledger, config, seed, ACCURACY, "depth", "single_query", "full_state"))


def label(config: ConfigState) -> str:
    """Id and choices of a configuration, in one line."""
    return " ".join([config.id, *config.record.choices(short=True)])


def _course(steps: Sequence[int], values: Sequence[float | None]) -> Course:
    there = [(step, value) for step, value in zip(steps, values, strict=False) if value is not None]
    return Course([step for step, _ in there], [value for _, value in there])


def _columns(ledger: Ledger, config: str, seed: int, name: str, *columns: str) -> list[list[Any]]:
    """Columns of a Parquet file of a seed; empty ones where the file, or one of them, is not there."""
    found = ledger.read_table(config, seed, name).to_pydict()
    return [found.get(column, []) for column in columns]

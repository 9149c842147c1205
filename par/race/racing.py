"""What runs next: a race of configurations over seeds. Pure: what is known goes in, one decision comes out.

Every configuration begins with the seeds of the first rung. Of those that have come to a rung with all their seeds, the
better half, by the lower confidence bound of the score, climbs to the next one as soon as a device is free
(asynchronous successive halving, Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", with seeds
in the place of training steps). When nothing of the search is left, the best configurations of each backbone are
confirmed on fresh seeds, so that no lucky seed decides.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from par.ledger.records import Stage
from par.ledger.state import ConfigState
from par.space.stages import Stages
from par.statistics.scores import lower_bound

CLIMBING = 2
"""One in so many climbs."""
Run = tuple[str, int]
"""Configuration and seed."""


@dataclass(frozen=True, slots=True)
class RunSeed:
    """Start, or continue, this seed of a known configuration."""

    config: str
    seed: int


@dataclass(frozen=True, slots=True)
class NewConfiguration:
    """Ask the search of this backbone for a proposal and add it to the ledger."""

    backbone: str


@dataclass(frozen=True, slots=True)
class Wait:
    """All that is left is running, or depends on what is."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Every seed that the race has come to has a result and nothing is running."""


class Race:
    """How far the configurations have come, kept up to date one by one.

    That a configuration has climbed, or is confirmed, shows in its seeds that have begun: nothing else records it.
    """

    def __init__(self, stages: Stages, score: str, configs: Iterable[ConfigState] = ()) -> None:
        """Take what was read, in order of configuration number; ``score`` is the metric that ranks seeds."""
        self.stages, self.score = stages, score
        self.configs: dict[str, ConfigState] = {}
        self.levels: dict[str, int] = {}
        """The rung that each configuration has come to."""
        self.finalists: set[str] = set()
        """Configurations whose confirmation has begun."""
        self.missing: dict[str, tuple[int, ...]] = {}
        """Seeds of theirs without a result, of the configurations that have such seeds."""
        self.known = Counter[str]()
        """Configurations of each backbone."""
        self._bounds: dict[tuple[str, int], float] = {}
        for config in configs:
            self.put(config)

    def put(self, config: ConfigState) -> None:
        """Take a configuration as it is now: a new one, or one whose seeds have come further."""
        self.known[config.record.backbone] += config.id not in self.configs
        self.configs[config.id] = config
        self.levels[config.id] = max(self.levels.get(config.id, 0), self.stages.level(config.seeds))
        if any(seed in self.stages.fresh_seeds for seed in config.seeds):
            self.finalists.add(config.id)
        self._note_missing(config)

    def enter(self, config: str, seed: int) -> None:
        """Take note that a seed begins, which may be the first above its configuration's rung, or a fresh one."""
        if seed in self.stages.fresh_seeds:
            self.finalists.add(config)
        else:
            self.levels[config] = max(self.levels[config], self.stages.level([seed]))
        self._note_missing(self.configs[config])

    def seeds_of(self, config: str) -> tuple[int, ...]:
        """The seeds that a configuration is to have, as far as it has come."""
        fresh = self.stages.fresh_seeds if config in self.finalists else ()
        return (*self.stages.rung(self.levels[config]), *fresh)

    def is_done(self, config: str, seed: int) -> bool:
        """Whether the seed has a result."""
        return config in self.configs and seed in self.configs[config].results

    def bound(self, config: str, level: int) -> float | None:
        """Lower confidence bound of the score over the seeds of a rung; None while some have no result."""
        if (config, level) not in self._bounds:
            results, rung = self.configs[config].results, self.stages.rung(level)
            if not results.keys() >= set(rung):
                return None
            self._bounds[config, level] = lower_bound([results[seed].score(self.score) for seed in rung], self.score)
        return self._bounds[config, level]

    def next_seed(self, config: str) -> int | None:
        """The first seed above the rung that a configuration has come to, if it has all of that rung and may climb."""
        level = self.levels[config]
        if level + 1 == len(self.stages.rungs) or self.bound(config, level) is None:
            return None
        return self.stages.rung(level).stop

    def climber(self, backbone: str) -> str | None:
        """The best configuration that climbs now, on the highest rung that has one: one of the better half there."""
        for level in reversed(range(len(self.stages.rungs) - 1)):
            ranked = self._ranked(backbone, level)
            for config in ranked[: len(ranked) // CLIMBING]:
                if self.levels[config] == level:
                    return config
        return None

    def best(self, backbone: str, given_up: Collection[Run] = ()) -> list[str]:
        """The configurations to confirm, best first: by the bound over all seeds of the highest rung they completed.

        One whose first fresh seed is given up cannot be confirmed.
        """
        barred = {config for config, seed in given_up if seed == self.stages.fresh_seeds[0]}
        finalists = [config for config in self._of(backbone) if config not in barred] if self.stages.confirmed else []
        bounds = {config: self._last_bound(config) for config in finalists}
        ranked = sorted(bounds, key=lambda config: -bounds[config])
        return [config for config in ranked if bounds[config] > float("-inf")][: self.stages.confirmed]

    def is_searched(self, backbone: str, given_up: Collection[Run]) -> bool:
        """Whether no seed of the search is open."""
        return all(
            seed in self.stages.fresh_seeds or (config, seed) in given_up
            for config in self._of(backbone)
            for seed in self.missing.get(config, ())
        )

    def due(self, config: str) -> Iterator[tuple[Stage, range]]:
        """The stages, and their seeds, that a configuration has completed and is not judged for yet."""
        state = self.configs[config]
        results, judged = state.results.keys(), {(verdict.stage, verdict.seeds) for verdict in state.verdicts}
        levels = range(self.levels[config] + 1)
        rungs: list[tuple[Stage, range]] = [("search", self.stages.rung(level)) for level in levels]
        for stage, seeds in [*rungs, ("confirm", self.stages.fresh_seeds)]:
            if results >= set(seeds) and (stage, tuple(seeds)) not in judged:
                yield stage, seeds

    def _note_missing(self, config: ConfigState) -> None:
        results = config.results
        if missing := tuple(seed for seed in self.seeds_of(config.id) if seed not in results):
            self.missing[config.id] = missing
        else:
            self.missing.pop(config.id, None)

    def _of(self, backbone: str) -> list[str]:
        return [config for config, state in self.configs.items() if state.record.backbone == backbone]

    def _ranked(self, backbone: str, level: int) -> list[str]:
        """Configurations of a backbone with all seeds of a rung, best first, the older one first of two equals."""
        bounds = {config: bound for config in self._of(backbone) if (bound := self.bound(config, level)) is not None}
        return sorted(bounds, key=lambda config: -bounds[config])

    def _last_bound(self, config: str) -> float:
        levels = reversed(range(self.levels[config] + 1))
        return next((bound for level in levels if (bound := self.bound(config, level)) is not None), float("-inf"))


def next_run(
    race: Race, *, configurations: Mapping[str, int], running: Collection[Run], given_up: Collection[Run] = ()
) -> RunSeed | NewConfiguration | Wait | Finished:
    """Choose what a free device does next; runs in ``running`` are taken, those ``given_up`` are not tried again.

    Missing seeds of known configurations come first, in order of configuration number; then the seeds of a
    configuration that climbs; then new configurations, until every backbone has its own number of them; then, backbone
    by backbone, the confirmation. ``configurations``, and the stages of the ``race``, are those of the whole sweep,
    however often it is resumed: raising them adds the difference. Whoever obeys a RunSeed enters it in the race.
    """
    return (
        _missing(race, {*running, *given_up})
        or _climbing(race, configurations)
        or _new(race, configurations)
        or _confirming(race, configurations, given_up)
        or (Finished() if all(race.is_done(*run) for run in running) else Wait())
    )


def _missing(race: Race, taken: Collection[Run]) -> RunSeed | None:
    for config in sorted(race.missing, key=lambda config: race.configs[config].record.number):
        for seed in race.missing[config]:
            if (config, seed) not in taken:
                return RunSeed(config, seed)
    return None


def _climbing(race: Race, backbones: Iterable[str]) -> RunSeed | None:
    for backbone in backbones:
        if (config := race.climber(backbone)) is not None and (seed := race.next_seed(config)) is not None:
            return RunSeed(config, seed)
    return None


def _new(race: Race, configurations: Mapping[str, int]) -> NewConfiguration | None:
    """Choose the backbone with the fewest configurations among those below their total, so that they take turns."""
    short = [backbone for backbone, total in configurations.items() if race.known[backbone] < total]
    return NewConfiguration(min(short, key=lambda backbone: race.known[backbone])) if short else None


def _confirming(race: Race, backbones: Iterable[str], given_up: Collection[Run]) -> RunSeed | None:
    for backbone in backbones:
        if race.is_searched(backbone, given_up):
            for config in race.best(backbone, given_up):
                if config not in race.finalists:
                    return RunSeed(config, race.stages.fresh_seeds[0])
    return None

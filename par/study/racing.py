"""What runs next. Pure: the standing of the sweep goes in, one decision comes out."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from par.study.ledger import ConfigState


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
    """All that is left is running."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Every wanted seed has a result and nothing is running."""


class Standing:
    """How far a sweep has come, kept up to date by configuration: a decision costs what is open, not what is done."""

    def __init__(self, seeds: Sequence[int], configs: Iterable[ConfigState] = ()) -> None:
        """Take what was read, in order of configuration number; ``seeds`` are those of every configuration."""
        self.seeds = seeds
        self.configs: dict[str, ConfigState] = {}
        self.missing: dict[str, tuple[int, ...]] = {}
        """Seeds without a result, of the configurations that have such seeds."""
        self.known = Counter[str]()
        """Configurations of each backbone."""
        for config in configs:
            self.put(config)

    def put(self, config: ConfigState) -> None:
        """Take a configuration as it is now: a new one, or one whose seeds have come further."""
        self.known[config.record.backbone] += config.id not in self.configs
        self.configs[config.id] = config
        results = config.results
        if missing := tuple(seed for seed in self.seeds if seed not in results):
            self.missing[config.id] = missing
        else:
            self.missing.pop(config.id, None)

    def is_done(self, config: str, seed: int) -> bool:
        """Whether the seed has a result."""
        return config in self.configs and seed in self.configs[config].results


def next_run(
    standing: Standing, *, configurations: Mapping[str, int], running: Collection[tuple[str, int]]
) -> RunSeed | NewConfiguration | Wait | Finished:
    """Choose what a free device does next; (configuration, seed) pairs in ``running`` are taken.

    Missing seeds of known configurations come first, in order of configuration number; then new configurations, until
    every backbone has its own number of them. ``configurations``, and the seeds of ``standing``, are those of the whole
    sweep, however often it is resumed: lowering them drops nothing that is known, raising them adds the difference.
    Every configuration has the same seeds. This is the place where promotion of configurations to more seeds will be
    decided.
    """
    for config, seeds in standing.missing.items():
        for seed in seeds:
            if (config, seed) not in running:
                return RunSeed(config, seed)
    backbone = _next_backbone(standing, configurations)
    if backbone is not None:
        return NewConfiguration(backbone)
    return Finished() if all(standing.is_done(*run) for run in running) else Wait()


def verdict_due(config: ConfigState, seeds: Collection[int]) -> bool:
    """Whether these seeds all have a result, failures included, and the search has not been told yet."""
    return config.verdict is None and config.results.keys() >= set(seeds)


def _next_backbone(standing: Standing, configurations: Mapping[str, int]) -> str | None:
    """Return the backbone with the fewest configurations among those below their total, so that they take turns."""
    short = [backbone for backbone, total in configurations.items() if standing.known[backbone] < total]
    return min(short, key=lambda backbone: standing.known[backbone], default=None)

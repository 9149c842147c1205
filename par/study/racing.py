"""What runs next. Pure: the state of the sweep goes in, one decision comes out."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from par.study.ledger import ConfigState, SweepState


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


def next_run(
    state: SweepState, *, configurations: Mapping[str, int], seeds: Sequence[int], running: Collection[tuple[str, int]]
) -> RunSeed | NewConfiguration | Wait | Finished:
    """Choose what a free device does next; (configuration, seed) pairs in ``running`` are taken.

    Missing seeds of known configurations come first, in order of configuration number; then new configurations, until
    every backbone has its own number of them. ``configurations`` and ``seeds`` are those of the whole sweep, however
    often it is resumed: lowering them drops nothing that is known, raising them adds the difference. Every
    configuration has the same seeds. This is the place where promotion of configurations to more seeds will be decided.
    """
    for run in _missing(state, seeds):
        if (run.config, run.seed) not in running:
            return run
    backbone = _next_backbone(state, configurations)
    if backbone is not None:
        return NewConfiguration(backbone)
    done = {(config.id, seed) for config in state.configs for seed in config.results}
    return Finished() if done.issuperset(running) else Wait()


def verdict_due(config: ConfigState, seeds: Collection[int]) -> bool:
    """Whether these seeds all have a result, failures included, and the search has not been told yet."""
    return config.verdict is None and config.results.keys() >= set(seeds)


def _missing(state: SweepState, seeds: Sequence[int]) -> Iterator[RunSeed]:
    for config in state.configs:
        for seed in seeds:
            if seed not in config.results:
                yield RunSeed(config.id, seed)


def _next_backbone(state: SweepState, configurations: Mapping[str, int]) -> str | None:
    """Return the backbone with the fewest configurations among those below their total, so that they take turns."""
    known = Counter(config.record.backbone for config in state.configs)
    short = [backbone for backbone, total in configurations.items() if known[backbone] < total]
    return min(short, key=lambda backbone: known[backbone], default=None)

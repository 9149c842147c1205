"""The tables that charts read, by name: one for seeds, one for what is said about groups of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from par import metrics as m
from par.ledger.state import ConfigState
from par.race.status import in_a_word
from par.race.verdicts import optimism
from par.report.page.blocks import Columns, rounded, share_cells, transposed
from par.report.page.gathered import FRESH, SEARCH, Gathered, Seed, label
from par.report.table import shown
from par.statistics.success import SUCCESS, performance_profile, success_rate

PROFILE_POINTS = 80
"""Most steps of a performance profile that are drawn."""
GOLDEN = 0.618034
"""Steps of this size, modulo 1, spread points evenly."""

Row = Mapping[str, Any]


def groups(gathered: Gathered) -> Iterator[tuple[str, str, list[Seed]]]:
    """Backbone, stage and seeds of every group that has any."""
    for backbone in gathered.backbones:
        for stage in (SEARCH, FRESH):
            if seeds := [seed for seed in gathered.seeds if (seed.backbone, seed.stage) == (backbone, stage)]:
                yield backbone, stage, seeds


def seeds(gathered: Gathered) -> Columns:
    """One row per seed with a result; its curves are lists."""

    def row(place: int, seed: Seed) -> Row:
        drift = seed.drift.peaks()
        return {
            "run": place,
            "backbone": seed.backbone,
            "configuration": label(seed.config),
            "seed": seed.number,
            "stage": seed.stage,
            "G": rounded(seed.G),
            "shown": shown(seed.result),
            "outcome": str(seed.outcome),
            "sign": "failed" if seed.result.failure else "lower bound" if seed.censored else "G",
            "failure": seed.result.failure,
            "train_depth": seed.config.record.run["task"]["train_depth"],
            "aside": round(place * GOLDEN % 1, 3),
            "depth": list(seed.curve.depths),
            "accuracy": [rounded(value, 3) for value in seed.curve.single_query],
            "step": list(drift.steps),
            "drift": [rounded(value, 3) for value in drift.values],
        }

    return transposed([row(place, seed) for place, seed in enumerate(gathered.seeds)])


def cells(gathered: Gathered) -> Columns:
    """One row per (configuration, seed) that has begun or is to come: G, a kind of failure, or where it stands."""

    def row(order: int, config: ConfigState, seed: int) -> Row:
        result = config.results.get(seed)
        done = result is not None and result.failure is None
        said = shown(result) if result and done else in_a_word(config, seed, driven=gathered.overview.driven)
        return {
            "backbone": config.record.backbone,
            "configuration": label(config),
            "order": order,
            "seed": str(seed),
            "G": rounded(result.score(m.G.name)) if result else None,
            "kind": "G" if done else "failed" if result else "open",
            "said": said,
        }

    found = [
        row(order, config, seed)
        for order, config in enumerate(gathered.ranked())
        for seed in sorted({*config.seeds, *gathered.race.seeds_of(config.id)})
    ]
    return transposed(found)


def success(gathered: Gathered) -> Columns:
    """One row per group: share of seeds that reach G >= SUCCESS, and its interval."""
    return transposed(
        [
            {"backbone": backbone, "stage": stage, **share_cells(success_rate([seed.G for seed in group], SUCCESS))}
            for backbone, stage, group in groups(gathered)
        ]
    )


def profiles(gathered: Gathered) -> Columns:
    """P(G >= g) of every group: the levels of g where it steps, or so many of them."""
    rows: list[Row] = []
    for backbone, stage, group in groups(gathered):
        Gs = [seed.G for seed in group]
        for g, found in performance_profile(Gs, _thinned(sorted({0.0, *Gs}))):
            rows.append({"backbone": backbone, "stage": stage, "g": rounded(g), **share_cells(found)})
    return transposed(rows)


def confirmed(gathered: Gathered) -> Columns:
    """One row per confirmed configuration: its mean score over the seeds of the search, and over fresh ones."""
    found = [
        {
            "backbone": config.record.backbone,
            "configuration": label(config),
            "search": rounded(means.search),
            "fresh": rounded(means.fresh),
            "optimism": rounded(means.difference),
        }
        for config in gathered.configs
        if (means := optimism(config, gathered.overview.space.score))
    ]
    return transposed(found)


def _thinned(levels: Sequence[float]) -> Sequence[float]:
    """All levels, or PROFILE_POINTS of them, the ends among them."""
    if len(levels) <= PROFILE_POINTS:
        return levels
    last = len(levels) - 1
    return [levels[round(place * last / (PROFILE_POINTS - 1))] for place in range(PROFILE_POINTS)]

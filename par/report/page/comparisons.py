"""Tables that set backbones against each other: the seeds of the best configuration of each."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from par import metrics as m
from par.report.page.blocks import Table, p_text, text
from par.report.page.gathered import Gathered, Seed
from par.statistics.comparison import paired_improvement, probability_of_improvement
from par.statistics.groups import compare_groups
from par.statistics.seeds import Degenerate, Significance, TooFew
from par.statistics.spread import DIP_SEEDS, dip_test, variance_split
from par.statistics.success import SUCCESS

Leaders = Mapping[str, Sequence[Seed]]
"""The seeds of the best configuration of each backbone."""


def comparison_tables(gathered: Gathered) -> Iterator[Table]:
    """The best configurations one by one, then in pairs: seed by seed as far as both have a seed, and all seeds."""
    leaders = gathered.leaders()
    yield _hump_table(leaders)
    yield _variance_table(leaders)
    if len(leaders) > 1:
        yield _paired_table(leaders)
        yield from _unpaired_tables(leaders)


def _hump_table(leaders: Leaders) -> Table:
    """Which configuration it is, and whether its seeds fall into humps."""
    rows = [
        [backbone, seeds[0].config.id, seeds[0].stage, str(len(seeds)), _test(dip_test([seed.G for seed in seeds]))]
        for backbone, seeds in leaders.items()
    ]
    columns = ("backbone", "configuration", "seeds", "n", f"more than one hump? (dip test, from {DIP_SEEDS} seeds)")
    return Table(title="Best configuration of each backbone", columns=columns, rows=rows, names=3)


def _variance_table(leaders: Leaders) -> Table:
    """How much of what differs between seeds is due to them, and how much to the number of test prompts."""
    rows = [[backbone, str(len(seeds)), *_variance(seeds)] for backbone, seeds in leaders.items()]
    columns = ("backbone", "n", "prompts", "mean", "variance over seeds", "between seeds", "binomial")
    return Table(title="Full-state accuracy at 16 × d_train: its variance", columns=columns, rows=rows)


def _variance(seeds: Sequence[Seed]) -> list[str]:
    """Prompts of each seed, and mean and variances of the share that is right on them; 0 of a failed seed."""
    prompts = seeds[0].config.record.run["evaluation"]["sequences"]
    if any(seed.result.failure is None and m.FULL_STATE_16X.name not in seed.result.metrics for seed in seeds):
        return [str(prompts), "not measured", "–", "–", "–"]
    shares = [seed.result.score(m.FULL_STATE_16X.name) for seed in seeds]
    found = variance_split(shares, [prompts] * len(shares)) if prompts > 1 else TooFew(prompts, 2, of="prompts")
    mean = text(sum(shares) / len(shares))
    if isinstance(found, TooFew):
        return [str(prompts), mean, str(found), "–", "–"]
    share = f" ({found.between / found.total:.0%})" if found.total else ""
    return [str(prompts), mean, text(found.total, 4), text(found.between, 4) + share, text(found.binomial, 4)]


def _paired_table(leaders: Leaders) -> Table:
    """How likely the first is better on a seed that both have, and which seeds only one of them has."""
    by_seed = {backbone: {seed.number: seed.G for seed in seeds} for backbone, seeds in leaders.items()}
    rows = [
        [one, other, str(paired_improvement(by_seed[one], by_seed[other]))] for one, other in combinations(by_seed, 2)
    ]
    columns = ("backbone", "against", "on one seed the first is better")
    return Table(title="In pairs, seed by seed", columns=columns, rows=rows, names=3)


def _unpaired_tables(leaders: Leaders) -> Iterator[Table]:
    """All seeds of each: how likely one is better than one of the other, and tests of success and of spread."""
    Gs = {backbone: [seed.G for seed in seeds] for backbone, seeds in leaders.items()}
    found = compare_groups(Gs)
    rows = [
        [
            pair.first, pair.second, f"{len(Gs[pair.first])}, {len(Gs[pair.second])}",
            str(probability_of_improvement(Gs[pair.first], Gs[pair.second])),
            _test(pair.success), p_text(pair.success_adjusted), _test(pair.spread), p_text(pair.spread_adjusted),
        ]
        for pair in found.pairs
    ]  # fmt: skip
    columns = ("backbone", "against", "n", "the first is better", f"G ≥ {SUCCESS:g}", "Holm", "spread", "Holm")
    yield Table(title="In pairs, all seeds of each, unpaired", columns=columns, rows=rows, names=2)
    overall = [["all backbones", _test(found.spread)]]
    yield Table(title="Equal spread?", columns=("", "Brown–Forsythe test"), rows=overall)


def _test(found: Significance | TooFew | Degenerate) -> str:
    return p_text(found.p) if isinstance(found, Significance) else str(found)

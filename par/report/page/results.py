"""Tables over seeds, the worst one and the success rate first, the IQM last, and of backbones against each other."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from par import metrics as m
from par.ledger.state import ConfigState
from par.race.verdicts import optimism
from par.report.page.blocks import Table, p_text, text
from par.report.page.datasets import groups
from par.report.page.gathered import FRESH, SEARCH, Course, Gathered, Seed
from par.statistics.comparison import compare_groups, paired_improvement, probability_of_improvement
from par.statistics.description import censored_share, describe
from par.statistics.seeds import Degenerate, Significance, TooFew
from par.statistics.spread import DIP_SEEDS, dip_test, variance_split
from par.statistics.success import SUCCESS, THRESHOLDS, performance_profile
from par.statistics.trends import SIGNAL_SEEDS, early_signal, spikes

NUMBERS = (
    "n", "worst", f"G ≥ {SUCCESS:g}", "mean G", f"mean of G ≥ {SUCCESS:g}", "median G", "sd", "IQM",
)  # fmt: skip
SCORES = ("search score", "confirmed score", "mean score, search", "mean score, fresh", "optimism")
SIGNALS = (
    "accuracy at d_train, halfway through training", "largest drift, first half of training",
    "gradient spikes, first half of training",
)  # fmt: skip
Leaders = Mapping[str, Sequence[Seed]]
"""The seeds of the best configuration of each backbone."""


def backbone_table(gathered: Gathered) -> Table:
    """Success at every threshold, with exact intervals, of each backbone in each stage."""
    rows: list[list[str]] = []
    for backbone, stage, seeds in groups(gathered):
        Gs = [seed.G for seed in seeds]
        failed = sum(seed.result.failure is not None for seed in seeds)
        bounds = censored_share([seed.censored for seed in seeds])
        levels = [str(found) for _, found in performance_profile(Gs, THRESHOLDS)]
        rows.append([backbone, stage, str(len(Gs)), str(failed), f"{bounds:.0%}", *levels])
    columns = ("backbone", "seeds", "n", "failed", "censored", *(f"G ≥ {g:g}" for g in THRESHOLDS))
    return Table(title="Success rates, with exact 95 % intervals", columns=columns, rows=rows, names=2)


def configuration_tables(gathered: Gathered) -> Iterator[Table]:
    """A row per configuration, best first: what its fresh seeds say, then what those of the search say."""
    for stage, title in ((FRESH, "Confirmed, on fresh seeds"), (SEARCH, "On the seeds of the search")):
        rows: list[list[str]] = []
        for config in gathered.ranked():
            if seeds := gathered.of(config, stage):
                name = " ".join([config.id, *config.record.choices()])
                scores = (text(score, 3) for score in _scores(config, gathered.overview.space.score))
                rows.append([name, config.record.backbone, *_numbers(seeds), *scores])
        if rows:
            yield Table(title=title, columns=("configuration", "backbone", *NUMBERS, *SCORES), rows=rows, names=2)


def signal_table(gathered: Gathered) -> Table:
    """Rank correlation, within a backbone, of what is seen early in training with the final G; and who is not in it."""
    rows: list[list[str]] = []
    for place, name in enumerate(SIGNALS):
        signals = [(seed, _signals(seed)[place]) for seed in gathered.seeds]
        for backbone in gathered.backbones if any(signal is not None for _, signal in signals) else ():
            rows.append([name, backbone, *_correlation([pair for pair in signals if pair[0].backbone == backbone])])
    columns = ("signal", "backbone", "seeds", "seeds without it", "of these failed", "Spearman's ρ with G", "p")
    return Table(title="Early signals", columns=columns, rows=rows, names=2)


def _numbers(seeds: Sequence[Seed]) -> list[str]:
    found = describe([seed.G for seed in seeds], [seed.censored for seed in seeds])
    success = next(rate for level, rate in found.success if level == SUCCESS)
    return [
        str(found.n), text(found.worst), str(success), f"{found.mean:.2f} {found.interval}",
        text(found.conditional_mean),
        "not reached" if found.median is None else text(found.median), text(found.sd), text(found.iqm),
    ]  # fmt: skip


def _scores(config: ConfigState, score: str) -> list[float | None]:
    """The values of SCORES, as far as there are any."""
    bounds = [verdict and verdict.score for verdict in (config.verdict, config.confirmation)]
    means = optimism(config, score)
    return [*bounds, *((means.search, means.fresh, means.difference) if means else (None, None, None))]


def _correlation(signals: Sequence[tuple[Seed, float | None]]) -> list[str]:
    """How many seeds have the signal, lack it, and lack it and failed; rho and p over those that have it."""
    pairs = [(signal, seed.G) for seed, signal in signals if signal is not None]
    without = [seed for seed, signal in signals if signal is None]
    counts = (len(pairs), len(without), sum(seed.result.failure is not None for seed in without))
    found = early_signal(*zip(*pairs, strict=True)) if pairs else TooFew(0, SIGNAL_SEEDS)
    said = (text(found.statistic), p_text(found.p)) if isinstance(found, Significance) else (str(found), "–")
    return [*map(str, counts), *said]


def _signals(seed: Seed) -> tuple[float | None, float | None, float | None]:
    """The values of SIGNALS, as far as they were recorded."""

    def first_half(course: Course) -> Sequence[float]:
        return course.until(seed.config.record.run["train"]["steps"] / 2)

    accuracies, drifts, norms = map(first_half, (seed.on_the_way, seed.drift, seed.grad_norm))
    return (accuracies[-1] if accuracies else None, max(drifts, default=None), spikes(norms) if norms else None)


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

"""Tables of numbers over seeds. The worst seed and the success rate come first, the IQM last."""

from collections.abc import Iterator, Sequence

from par.evaluation.spikes import spikes
from par.ledger.state import ConfigState
from par.race.selection import optimism
from par.report.page.blocks import Table, p_text, text
from par.report.page.datasets import groups
from par.report.page.gathered import FRESH, SEARCH, Course, Gathered, Seed
from par.statistics.censoring import censored_share
from par.statistics.description import describe
from par.statistics.seeds import Significance, TooFew
from par.statistics.success import SUCCESS, THRESHOLDS, performance_profile
from par.statistics.trends import SIGNAL_SEEDS, early_signal

NUMBERS = (
    "n", "worst", f"G ≥ {SUCCESS:g}", "mean G", f"mean of G ≥ {SUCCESS:g}", "median G", "sd", "IQM",
)  # fmt: skip
SCORES = ("search score", "confirmed score", "mean score, search", "mean score, fresh", "optimism")
SIGNALS = (
    "accuracy at d_train, halfway through training", "largest drift, first half of training",
    "gradient spikes, first half of training",
)  # fmt: skip


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

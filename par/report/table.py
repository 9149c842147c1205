"""The table that ends a sweep: one row per configuration, every seed in it."""

from rich.table import Table

from par import metrics as m
from par.ledger.records import SeedResult, Stage, Verdict
from par.ledger.state import ConfigState, SweepState
from par.race.racing import Race
from par.space.space import Space
from par.statistics.description import summary
from par.statistics.success import SUCCESS, success_rate

LEFT = ("configuration", "backbone", "G per seed")
"""Columns of names and lists; the others are numbers, to the right."""


def results_table(state: SweepState, space: Space) -> Table:
    """Configurations by score, best first; those that wait for seeds last."""
    race = Race(space.stages, space.score, state.configs)
    confirming = space.stages.confirmed > 0
    table = Table(title="Extrapolation factor G by configuration", title_justify="left", caption_justify="left")
    columns = ["configuration", "backbone", "seeds", "G per seed", "worst", f"P(G ≥ {SUCCESS:g})", "score"]
    for name in [*columns, *(["confirmed"] if confirming else [])]:
        left, wraps = name in LEFT, name in ("configuration", "G per seed", "score")
        table.add_column(name, justify="left" if left else "right", no_wrap=not wraps, overflow="fold")
    for config in sorted(state.configs, key=rank):
        row = _row(config, len(race.seeds_of(config.id)), narrow=confirming)
        table.add_row(*row, *([_score(config.confirmation, "-")] if confirming else []))
    table.caption = (
        "+ marks a G that is a lower bound: accuracy never fell below 50 % on the grid. Success rates carry exact 95 % "
        "intervals. Score is a lower confidence bound over the seeds; a failed seed counts as 0."
    )
    if confirming:
        table.caption += (
            " Confirmed is that bound over fresh seeds, which the search never saw: their G stand behind the |, and "
            "worst and P of what is confirmed are of these seeds alone."
        )
    return table


def counted(number: int, noun: str) -> str:
    """A number of things in words, e.g. ``1 seed`` and ``2 seeds``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def rank(config: ConfigState) -> tuple[bool, float, int]:
    """The order of configurations, best first: confirmed ones before the others, by what was confirmed."""
    best = config.confirmation or config.verdict
    return (config.confirmation is None, -best.score if best else float("inf"), config.record.number)


def _row(config: ConfigState, seeds: int, *, narrow: bool) -> list[str]:
    """The cells of a configuration; ``narrow`` ones have short names, and the interval of a share below it."""
    suggested = ", ".join(config.record.choices(short=narrow)) or "-"
    head = [f"{config.id}  {suggested}", config.record.backbone, f"{len(config.results)}/{seeds}"]
    search, fresh = _of_stage(config, "search"), _of_stage(config, "confirm")
    if not search:
        return [*head, "-", "-", "-", "-"]
    factors = [result.score(m.G.name) for result in (fresh if config.confirmation else search)]
    success, gap = success_rate(factors, SUCCESS), "\n" if narrow else " "
    return [
        *head,
        "\n| ".join("  ".join(map(shown, results)) for results in (search, fresh) if results),
        f"{summary(factors).worst:.2f}",
        f"{success.rate:.0%}{gap}[{success.low:.0%}, {success.high:.0%}]",
        _score(config.verdict, "waits for seeds"),
    ]


def _of_stage(config: ConfigState, stage: Stage) -> list[SeedResult]:
    """Its results of the search, or those of fresh seeds, by number of the seed."""
    return [config.results[seed] for seed in sorted(config.results) if config.stage(seed) == stage]


def _score(verdict: Verdict | None, otherwise: str) -> str:
    return otherwise if verdict is None else f"{verdict.score:.3f}"


def shown(result: SeedResult) -> str:
    """The G of one seed; + behind it where it is a lower bound, 0 and the kind of failure where the seed failed."""
    if result.failure is not None:
        return f"0 ({result.failure})"
    return f"{result.metrics[m.G.name]:.2f}" + ("+" if result.metrics[m.CENSORED.name] else "")

"""The table that ends a sweep: one row per configuration, every seed in it."""

from rich.table import Table

from par import metrics as m
from par.study.racing import Race
from par.study.records import ConfigState, SeedResult, SweepState, Verdict
from par.study.space import Space
from par.study.statistics.location import summary
from par.study.statistics.success import SUCCESS, success_rate


def results_table(state: SweepState, space: Space) -> Table:
    """Configurations by score, best first; those that wait for seeds last."""
    race = Race(space.stages, space.score, state.configs)
    table = Table(title="Extrapolation factor G by configuration", title_justify="left", caption_justify="left")
    confirmed = ["confirmed"] if space.stages.confirmed else []
    columns = ("configuration", "backbone", "seeds", "G per seed", "worst", f"P(G ≥ {SUCCESS:g})", "score", *confirmed)
    for name in columns:
        table.add_column(name, justify="left" if name in ("configuration", "backbone", "G per seed") else "right")
    for config in sorted(state.configs, key=rank):
        row = _row(config, len(race.wanted(config.id)))
        table.add_row(*row, *(_score(config.confirmation, "-") for _ in confirmed))
    table.caption = (
        "+ marks a G that is a lower bound: accuracy never fell below 50 % on the grid. Success rates carry exact 95 % "
        "intervals. Score is a lower confidence bound over the seeds; a failed seed counts as 0."
        + (" Confirmed is that bound over fresh seeds, which the search never saw." if confirmed else "")
    )
    return table


def rank(config: ConfigState) -> tuple[bool, float, int]:
    """The order of configurations, best first: confirmed ones before the others, by what was confirmed."""
    best = config.confirmation or config.verdict
    return (config.confirmation is None, -best.score if best else float("inf"), config.record.number)


def _row(config: ConfigState, seeds: int) -> list[str]:
    results = [config.results[seed] for seed in sorted(config.results)]
    factors = [result.score(m.G.name) for result in results]
    suggested = ", ".join(config.record.choices()) or "-"
    head = [f"{config.id}  {suggested}", config.record.backbone, f"{len(results)}/{seeds}"]
    if not results:
        return [*head, "-", "-", "-", "-"]
    success = success_rate(factors, SUCCESS)
    return [
        *head,
        "  ".join(shown(result) for result in results),
        f"{summary(factors).worst:.2f}",
        f"{success.rate:.0%} [{success.low:.0%}, {success.high:.0%}]",
        _score(config.verdict, "waits for seeds"),
    ]


def _score(verdict: Verdict | None, otherwise: str) -> str:
    return otherwise if verdict is None else f"{verdict.score:.3f}"


def shown(result: SeedResult) -> str:
    """The G of one seed; + behind it where it is a lower bound, 0 and the kind of failure where the seed failed."""
    if result.failure is not None:
        return f"0 ({result.failure})"
    return f"{result.metrics[m.G.name]:.2f}" + ("+" if result.metrics[m.CENSORED.name] else "")

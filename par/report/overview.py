"""How sweeps stand, from their ledgers: all of them in short, or one seed by seed."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from par.ledger.current_space import current_space
from par.ledger.lease import LeaseRecord, holder
from par.ledger.ledger import Ledger
from par.ledger.state import ConfigState, SweepState
from par.race.status import Status, failures, in_a_word, seed_status, status_counts, unproposed
from par.race.verdicts import as_judged
from par.report.table import shown
from par.space.space import Space

LONGEST_MESSAGE = 300
_STYLES = {Status.WAITING: "dim", Status.FAILED: "red", Status.KILLED: "yellow", Status.RUNNING: "green"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """One sweep at one time."""

    name: str
    space: Space
    state: SweepState
    driver: LeaseRecord | None
    """Who drives it; None if nobody does, and then nothing runs."""
    now: datetime

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        """The sweep as its ledger stands now. Raises ParError if it is damaged."""
        space, driver, now = current_space(ledger), holder(ledger), datetime.now(UTC)
        return cls(name=ledger.name, space=space, state=as_judged(ledger.read(), space), driver=driver, now=now)

    @property
    def driven(self) -> bool:
        """Whether a driver is alive."""
        return self.driver is not None

    def activity(self) -> datetime | None:
        """When an attempt last began or ended, or its driver gave a sign of life; or else the sweep was created."""
        attempts = (one for config in self.state.configs for seed in config.seeds for one in config.attempts(seed))
        times = [time for one in attempts for time in (one.start, one.end)]
        times += [self.driver.renewed if self.driver else None, self.state.sweep.created]
        return max((datetime.fromisoformat(time) for time in times if time), default=None)


def sweeps_table(overviews: Iterable[Overview]) -> Table:
    """One row per sweep."""
    table = Table(title="Sweeps", title_justify="left", caption_justify="left")
    for column in ("sweep", "configurations", "done", "failed", "running", "to do", "best score", "activity", "driver"):
        table.add_column(column, justify="left" if column in ("sweep", "driver") else "right")
    for overview in overviews:
        found = status_counts(overview.state, overview.space, driven=overview.driven)
        scores = [config.verdict.score for config in overview.state.configs if config.verdict]
        active = overview.activity()
        table.add_row(
            overview.name,
            f"{len(overview.state.configs)}/{overview.space.total}",
            *(str(found[which]) for which in (Status.DONE, Status.FAILED, Status.RUNNING)),
            str(found[Status.KILLED] + found[Status.WAITING]),
            f"{max(scores):.3f}" if scores else "-",
            f"{age(overview.now, active)} ago" if active else "-",
            f"{overview.driver.user}@{overview.driver.host}" if overview.driver else "-",
        )
    table.caption = "Figures are seeds. A diverged seed is done; what was interrupted is still to do."
    return table


def sweep_tables(overview: Overview) -> RenderableType:
    """A row per configuration with the state of each seed, and below it what the failed ones said."""
    found = failures(overview.state)
    return Group(_seeds_table(overview), *([_failures_table(found)] if found else []))


def age(now: datetime, then: datetime) -> str:
    """Time since ``then``, in the unit that suits it."""
    seconds = max(0, int((now - then).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _seeds_table(overview: Overview) -> Table:
    title = f"{overview.name}: {overview.space.question}"
    table = Table(title=Text(title), title_justify="left", caption_justify="left")
    table.add_column("configuration")
    seeds = sorted({seed for config in overview.state.configs for seed in config.seeds})
    for seed in seeds:
        table.add_column(f"seed {seed}", justify="right")
    table.add_column("score", justify="right")
    for config in overview.state.configs:
        cells = (_cell(overview, config, seed) for seed in seeds)
        name = f"{config.id}  {config.record.backbone} {', '.join(config.record.choices())}"
        table.add_row(Text(name), *cells, f"{config.verdict.score:.3f}" if config.verdict else "-")
    further = unproposed(overview.state, overview.space)
    table.caption = "A number is G, + if it is a lower bound; ×2 is the second attempt." + (
        f" {further} further configurations are not proposed yet." if further else ""
    )
    return table


def _cell(overview: Overview, config: ConfigState, seed: int) -> Text:
    stands, attempts = seed_status(config, seed, driven=overview.driven), config.attempts(seed)
    times = f" ×{len(attempts)}" if len(attempts) > 1 else ""
    if stands is Status.DONE:
        return Text(shown(config.results[seed]) + times)
    text = in_a_word(config, seed, driven=overview.driven)
    if stands is Status.RUNNING and attempts and (start := attempts[-1].start):
        text = f"running {age(overview.now, datetime.fromisoformat(start))}"
    return Text(text + times, style=_STYLES[stands])


def _failures_table(found: dict[str, list[tuple[str, str]]]) -> Table:
    table = Table(title="Failures", title_justify="left")
    for column in ("kind", "seeds", "the last one", "said"):
        table.add_column(column, justify="right" if column == "seeds" else "left")
    for kind, seeds in found.items():
        place, message = seeds[-1]
        table.add_row(kind, str(len(seeds)), place, Text(message[:LONGEST_MESSAGE]))
    return table

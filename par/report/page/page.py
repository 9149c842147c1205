"""One HTML file from a sweep's ledger: it loads nothing, and nothing of it is trusted as markup."""

from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined

from par.ledger.ledger import Ledger
from par.race.status import Status, is_complete, status_counts
from par.report.overview import Overview
from par.report.page.blocks import Columns, Section, compact
from par.report.page.caveats import caveats
from par.report.page.charts import unrecorded
from par.report.page.datasets import cells, confirmed, profiles, seeds, success
from par.report.page.gathered import Gathered, gather
from par.report.page.parameters import parameters
from par.report.page.sections import sections


def page(overview: Overview, ledger: Ledger) -> str:
    """The report of a sweep as it stands, as HTML. Raises LedgerError for a result that is damaged."""
    gathered = gather(overview, ledger)
    tables = datasets(gathered)
    found = sections(gathered, tables)
    return _template().render(
        overview=overview,
        standing=_standing(gathered),
        limits=caveats(gathered),
        sections=found,
        space=ledger.totals().space or ledger.sweep.space,
        data=_read_by(found, tables),
        specs=[{"spec": chart.spec, "datasets": chart.datasets} for section in found for chart in section.charts],
        bundle=_bundle(),
    )


def write_page(overview: Overview, ledger: Ledger, path: Path) -> Path:
    """Write the report of a sweep as it stands. Raises OSError if it cannot be written, LedgerError as ``page``."""
    path.write_text(page(overview, ledger), encoding="utf-8")
    return path


def datasets(gathered: Gathered) -> dict[str, Columns]:
    """Every table that a chart may read, by name."""
    return {
        "seeds": seeds(gathered),
        "cells": cells(gathered),
        "success": success(gathered),
        "profiles": profiles(gathered),
        "confirmed": confirmed(gathered),
        "parameters": parameters(gathered),
        "unrecorded": unrecorded(gathered),
    }


def _read_by(found: list[Section], tables: dict[str, Columns]) -> dict[str, Any]:
    """The tables that charts do read."""
    names = {name for section in found for chart in section.charts for name in chart.datasets}
    return {name: compact(tables[name]) for name in sorted(names)}


def _standing(gathered: Gathered) -> str:
    """One sentence on how far the sweep has come."""
    overview = gathered.overview
    found = status_counts(overview.state, overview.space, driven=overview.driven)
    failed = sum(seed.result.failure is not None for seed in gathered.seeds)
    counts = f"{found[Status.DONE]} seeds have a result, {failed} of them a final failure"
    if overview.driver is not None:
        return f"Still running, driven by {overview.driver.user} on {overview.driver.host}: {counts}."
    return f"{'Complete' if is_complete(overview.state, overview.space) else 'Not complete'}: {counts}."


@cache
def _template() -> Any:
    loader = PackageLoader("par.report.page", "")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.jinja")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which no text in it can end."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed").replace("</script", "<\\/script")

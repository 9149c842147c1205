"""`par status`: how sweeps stand, from their ledgers alone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ray_jobs.terminal import out, refusing

if TYPE_CHECKING:
    from par.study.report.overview import Overview


def status(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The sweep; all of them by default.")] = None,
    storage: Annotated[str, typer.Option(help="Folder of all sweeps.")] = "results",
) -> None:
    """Show how the sweeps of a storage stand, or one of them seed by seed; it may be running.

    Nothing but the ledger is read: no cluster, no MLflow.

    Exit code: 0, or 2 for a sweep that does not exist.
    """
    from par.study.report.overview import sweep_tables

    with refusing():
        if name is None:
            _show_all(storage)
        else:
            overview = _overview(storage, name)
            out.print(sweep_tables(overview))
            out.print(_next_step(overview, storage), soft_wrap=True, highlight=False)


def _show_all(storage: str) -> None:
    """A sweep that cannot be read hides no other one."""
    from par.errors import ParError
    from par.study.ledger import sweeps
    from par.study.report.overview import sweeps_table

    readable: list[Overview] = []
    faults: list[str] = []
    for name in sweeps(storage):
        try:
            readable.append(_overview(storage, name))
        except ParError as fault:
            faults.append(f"{name}: {fault}")
    out.print(sweeps_table(readable) if readable or faults else f"no sweep in {storage}")
    for fault in faults:
        out.print(fault, style="red", markup=False, soft_wrap=True)


def _overview(storage: str, name: str) -> "Overview":
    from par.study.lease import holder
    from par.study.ledger import Ledger
    from par.study.report.overview import Overview
    from par.study.space import parse_space

    ledger = Ledger.open(storage, name)
    space = parse_space(ledger.sweep["space"], Path(ledger.sweep["space_path"]))
    return Overview(name=name, space=space, driver=holder(ledger), state=ledger.read(), now=datetime.now(UTC))


def _next_step(overview: "Overview", storage: str) -> str:
    from par.study.standing import is_complete

    if is_complete(overview.state, overview.space):
        return "Every seed has a result."
    if overview.driver is not None:
        who = overview.driver
        return f"{who.user} drives it on {who.host}, pid {who.pid}, since {who.since}."
    return f"Nobody drives it: go on with python ray_jobs/sweep.py --resume {overview.name} --storage {storage}"

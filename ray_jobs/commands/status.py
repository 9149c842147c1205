"""`par status`: how sweeps stand, from their ledgers alone."""

from collections import Counter
from typing import Annotated

import typer

from par.errors import ParError
from par.ledger.ledger import Ledger, sweeps
from par.objects import public
from par.race.retry import fates
from par.race.status import is_complete
from par.report.overview import Overview, sweep_tables, sweeps_table
from ray_jobs import options as o
from ray_jobs.console import out, refusing, say
from ray_jobs.driver.resolve import default_storage


def status(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The sweep; all of them by default.")] = None,
    storage: o.Storage = None,
) -> None:
    """Show how the sweeps of a storage stand, or one of them seed by seed; it may be running.

    Nothing but the ledger is read: no cluster, no MLflow.

    Exit code: 0, or 2 for a sweep that does not exist.
    """
    with refusing():
        storage = storage or default_storage()
        if name is None:
            _show_all(storage)
        else:
            overview = Overview.of(Ledger.open(storage, name))
            out.print(sweep_tables(overview))
            out.print(_next_step(overview, storage), soft_wrap=True, highlight=False)


def _show_all(storage: str) -> None:
    """A sweep that cannot be read hides no other one."""
    readable: list[Overview] = []
    faults: list[str] = []
    for name in sweeps(storage):
        try:
            readable.append(Overview.of(Ledger.open(storage, name)))
        except ParError as fault:
            faults.append(f"{name}: {fault}")
    out.print(sweeps_table(readable) if readable or faults else f"no sweep in {public(storage)}")
    for fault in faults:
        say(fault, "red")


def _next_step(overview: Overview, storage: str) -> str:
    if is_complete(overview.state, overview.space):
        return "Every seed has a result."
    if overview.driver is not None:
        who = overview.driver
        return f"{who.user} drives it on {who.host}, pid {who.pid}, since {who.since}."
    sweep = f"{overview.name} --storage {public(storage)}"
    given_up = Counter(fate.kind for config in overview.state.configs for fate in fates(config))
    if not given_up:
        return f"Nobody drives it: go on with par resume {sweep}"
    counted = ", ".join(f"{kind} {count}" for kind, count in given_up.items())
    return (
        f"Nobody drives it: go on with par resume {sweep}; those that were given up ({counted}) start again with "
        f"par resume {sweep} --failed"
    )

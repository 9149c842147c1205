"""`par sync`: MLflow from the ledger, at any time."""

from typing import TYPE_CHECKING, Annotated

import typer

from par.errors import ConfigError
from par.ledger.current_space import current_space
from par.ledger.lease import holder
from par.ledger.ledger import Ledger
from par.race.verdicts import as_judged
from ray_jobs import options as o
from ray_jobs.console import out, refusing
from ray_jobs.driver.resolve import storage_of

if TYPE_CHECKING:
    from ray_jobs.mlflow_runs.projection import Projection

TRIES = 3
"""How often a store that fails in between is begun with: another writer may have taken a run away."""


def sync(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The sweep.")],
    storage: o.Storage = None,
    tracking_uri: o.TrackingUri = None,
) -> None:
    """Write to MLflow what it lacks of a sweep, from the ledger alone: all of it where the store is empty.

    Runs that are missing or were deleted are created; what is not logged is logged, and nothing twice; runs that say
    RUNNING since their driver died are closed with what the ledger knows. Parameters never change. A second call finds
    nothing to do. While a driver is at work, what it runs stays RUNNING.

    Exit code: 0, or 2 for a sweep that does not exist or a store that does not answer.
    """
    with refusing():
        ledger = Ledger.open(storage_of(storage, tracking_uri), name)
        projection = synced(ledger, tracking_uri)
    changes = projection.runs.written
    what = f"{changes} change{'s' * (changes != 1)} written" if changes else "nothing to do"
    out.print(f"{name}: {len(projection.runs.known)} runs in MLflow, {what}", highlight=False)


def synced(ledger: Ledger, tracking_uri: str | None = None) -> "Projection":
    """Bring MLflow to the ledger's state. Raises ConfigError if the store does not take it."""
    from mlflow.exceptions import MlflowException

    from ray_jobs.mlflow_runs.projection import Projection, sweep_status
    from ray_jobs.mlflow_runs.store import default_uri, open_store

    space = current_space(ledger)
    uri = tracking_uri or default_uri(ledger.storage)
    fault: Exception | None = None
    for _ in range(TRIES):
        try:
            projection = Projection(ledger, open_store(uri))
            driven, state = holder(ledger) is not None, as_judged(ledger.read(), space)
            projection.sync(state, status=sweep_status(state, space, driven=driven), driven=driven)
        except (MlflowException, OSError) as failed:
            fault = failed
        else:
            return projection
    raise ConfigError(f"--tracking-uri {uri} stopped taking the sweep: {str(fault).splitlines()[0]}; call again")

"""The MLflow store that a sweep is projected into: a server, or an embedded database beside the sweeps."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from urllib.parse import urlsplit

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from par.errors import ConfigError
from par.ledger.ledger import Ledger
from par.objects import public

EXPERIMENT = "par"
DATABASE = "mlflow.db"
ARTIFACTS = "artifacts"
FOREIGN_HOST = "Invalid Host header"
"""What a server answers, with status 403, where the request's host is none that it was started for."""
_EMBEDDED = "sqlite:///"


@dataclass(frozen=True, slots=True)
class Store:
    """A store that answers, and the experiment in it that holds all sweeps."""

    uri: str
    client: MlflowClient
    experiment: str


def default_uri(storage: str | Path) -> str:
    """The embedded store beside the sweeps of a storage."""
    return f"{_EMBEDDED}{Path(storage).resolve()}/{DATABASE}"


def sync_command(ledger: Ledger, uri: str) -> str:
    """What a person types to bring this store to the ledger's state."""
    place = "" if uri == default_uri(ledger.storage) else f" --tracking-uri {uri}"
    return f"par sync {ledger.name} --storage {public(ledger.storage)}{place}"


def open_store(uri: str) -> Store:
    """Connect, and find or create the experiment. Raises ConfigError if the store does not answer."""
    folder = _folder(uri)
    try:
        with _alone(folder):
            client = MlflowClient(uri)
            return Store(uri, client, _experiment(client, folder))
    except (MlflowException, OSError) as fault:
        raise ConfigError(f"--tracking-uri {uri}: {_remedy(uri, str(fault))}") from None


def _remedy(uri: str, fault: str) -> str:
    """What is wrong with a store, and what to do; a server refuses names that it was not told are its own."""
    if FOREIGN_HOST in fault:
        host = urlsplit(uri).netloc
        return (
            f"the MLflow server refuses the name {host} ({FOREIGN_HOST}): start it with --allowed-hosts {host}, or "
            "with all its names, separated by commas"
        )
    return f"{fault.splitlines()[0]}; give http://HOST:PORT of an MLflow server, or sqlite:////PATH/{DATABASE}"


def _experiment(client: MlflowClient, folder: Path | None) -> str:
    """Artifacts of an embedded store lie beside its database."""
    if found := client.get_experiment_by_name(EXPERIMENT):
        return found.experiment_id
    place = None if folder is None else (folder / ARTIFACTS).as_uri()
    return client.create_experiment(EXPERIMENT, artifact_location=place)


def _folder(uri: str) -> Path | None:
    """Where an embedded store lies; None for a server."""
    return Path(uri.removeprefix(_EMBEDDED)).resolve().parent if uri.startswith(_EMBEDDED) else None


@contextmanager
def _alone(folder: Path | None) -> Iterator[None]:
    """Hold an embedded store's lock: MLflow's first use of one creates its tables, and two at once would clash."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".mlflow.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield

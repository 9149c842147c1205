"""A small sweep beside an MLflow store of its own."""

import shutil
from pathlib import Path

import pytest

from par.ledger.ledger import Ledger
from ray_jobs.mlflow_runs.store import default_uri, open_store
from tests.ray_jobs.projected import new_ledger


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory) -> Path:
    """A store with its tables made, which takes MLflow seconds."""
    folder = tmp_path_factory.mktemp("store")
    open_store(default_uri(folder))
    return folder / "mlflow.db"


@pytest.fixture
def beside_a_store(tmp_path: Path, empty_store: Path) -> Ledger:
    """Two configurations of which no seed has begun, and an empty store where a sweep looks for it."""
    shutil.copy(empty_store, tmp_path)
    return new_ledger(tmp_path)

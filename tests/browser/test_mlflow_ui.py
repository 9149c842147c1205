"""A finished sweep in the MLflow UI, in a browser: its configurations as rows, and two seeds side by side."""

import json

import pytest

from tests.ray_jobs.mlflow_server import Server
from tests.ray_jobs.sweeps import runs

pytestmark = pytest.mark.browser
LIMIT_MS = 60_000


@pytest.fixture(scope="session")
def ui(chromium, finished):
    """A server over the store of a sweep that ran, and the sweep's runs by their key."""
    storage, _ = finished
    server = Server(storage, database="mlflow.db").start()
    yield server.uri, {run.data.tags["par.key"]: run for run in runs(storage)}
    server.kill()


def test_configurations_are_rows(window, ui):
    """The filter that docs/mlflow.md names leaves the sweep with its configurations, which open beneath it."""
    uri, found = ui
    configurations = [run for key, run in found.items() if key.count("/") == 1]
    experiment = configurations[0].info.experiment_id
    view = window()
    view.page.goto(f"{uri}/#/experiments/{experiment}/runs?searchFilter=tags.`par.kind` %3D 'configuration'")
    view.page.locator(".ag-row button").first.click(timeout=LIMIT_MS)
    for run in configurations:
        view.page.get_by_text(run.info.run_name, exact=True).first.wait_for(timeout=LIMIT_MS)
    assert view.page.get_by_text("seed0").count() == 0
    view.picture("mlflow-configurations", whole=False)


def test_two_seeds_are_compared(window, ui):
    """The comparison of two seeds shows both names and G of each."""
    uri, found = ui
    seeds = [run for key, run in sorted(found.items()) if key.count("/") == 2][:2]
    ids = json.dumps([run.info.run_id for run in seeds])
    view = window()
    view.page.goto(f"{uri}/#/compare-runs?runs={ids}&experiments={json.dumps([seeds[0].info.experiment_id])}")
    for run in seeds:
        view.page.get_by_text(run.info.run_name, exact=True).first.wait_for(timeout=LIMIT_MS)
    view.page.get_by_text("G", exact=True).first.scroll_into_view_if_needed(timeout=LIMIT_MS)
    for run in seeds:
        view.page.get_by_text(f"{round(run.data.metrics['G'], 3):g}", exact=True).first.wait_for(timeout=LIMIT_MS)
    view.picture("mlflow-seeds", whole=False)

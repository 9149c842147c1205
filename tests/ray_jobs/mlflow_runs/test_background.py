"""Training never fails, and the driver never waits, because of MLflow: a real server that is killed meanwhile."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from par.errors import ConfigError
from ray_jobs.commands.sync import synced
from ray_jobs.mlflow_runs import background
from ray_jobs.mlflow_runs.background import BackgroundProjection
from ray_jobs.mlflow_runs.store import Store, default_uri, open_store, sync_command
from tests.ray_jobs.mlflow_server import Server
from tests.ray_jobs.projected import RECORDS, begin, everything, everything_finished, finish, ids, new_ledger

SLOW = 300.0


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server")).start()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch) -> None:
    monkeypatch.setattr(background, "ROUND_S", 0.05)
    monkeypatch.setattr(background, "LONGEST_PAUSE_S", 0.5)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SLOW
    while not condition():
        assert time.monotonic() < deadline, "the awaited state did not come"
        time.sleep(0.02)


@pytest.mark.timeout(900)
def test_a_server_that_does_not_know_its_name(server):
    """A server that refuses the host of the address is told apart from one that is down: the error names the option and
    the value to start it with (M8)."""
    other_name = f"127.1:{server.port}"  # the same machine under a name that no server has by default
    with pytest.raises(ConfigError) as refused:
        open_store(f"http://{other_name}")
    assert f"start it with --allowed-hosts {other_name}," in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.timeout(900)
def test_a_server_that_goes_and_comes_back(server, tmp_path):
    """What came before, while and after the server was down is there once; the console hears of it twice (M10)."""
    ledger, said = new_ledger(tmp_path), list[str]()
    first, _ = ids(ledger)
    config = ledger.read().configs[0]
    with BackgroundProjection(ledger, open_store(server.uri), said.append) as projection:
        projection.sync(ledger.read(), status="RUNNING")
        begin(ledger, first, 0)
        projection.sync_seed(ledger.read_config(first), 0, running=True)
        projection.log_steps(config.record, 0, RECORDS[0])
        wait_until(lambda: not projection.tasks)
        server.kill()
        started = time.monotonic()
        projection.log_steps(config.record, 0, RECORDS[1])
        finish(ledger, first, 1)
        projection.sync_seed(ledger.read_config(first), 1)
        assert time.monotonic() - started < 1
        wait_until(lambda: bool(said))
        projection.log_steps(config.record, 0, RECORDS[2])
        server.start()
        wait_until(lambda: not projection.tasks)
        found = everything(server.uri)
    assert [message.partition(";")[0] for message in said] == ["MLflow does not answer", "MLflow answers again"]
    assert found[f"demo/{first}/seed-0"][0] == "RUNNING"
    for seed in (0, 1):
        assert [step for step, _ in found[f"demo/{first}/seed-{seed}"][3]["train/loss"]] == [5, 10, 15]
    assert found[f"demo/{first}/seed-1"][0] == "FINISHED"


@pytest.mark.timeout(900)
def test_a_server_that_stays_away(server, tmp_path):
    """The end waits a bounded time and says in one line what writes the rest, which is then all there (M10)."""
    ledger, said = new_ledger(tmp_path, "away"), list[str]()
    projection = BackgroundProjection(ledger, open_store(server.uri), said.append)
    projection.sync(ledger.read(), status="RUNNING")
    wait_until(lambda: not projection.tasks)
    server.kill()
    everything_finished(ledger)
    projection.sync(ledger.read(), status="FINISHED")
    started = time.monotonic()
    projection.close(limit_s=2)
    assert time.monotonic() - started < 3
    assert len(said) == 2
    assert f"{sync_command(ledger, server.uri)} writes the rest" in said[-1]
    wait_until(lambda: not projection.thread.is_alive())
    server.start()
    synced(ledger, server.uri)
    synced(ledger)
    assert of_sweep("away", server.uri) == everything(default_uri(tmp_path))
    assert synced(ledger, server.uri).runs.written == 0


def of_sweep(name: str, uri: str) -> dict[str, tuple]:
    return {key: run for key, run in everything(uri).items() if key.partition("/")[0] == name}


def test_a_server_that_never_answers(tmp_path):
    """Calls return at once and the end comes in time where a server takes a connection and then says nothing (M10)."""
    ledger, said = new_ledger(tmp_path), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        projection = BackgroundProjection(ledger, Store(uri, MlflowClient(uri), "1"), said.append)
        started = time.monotonic()
        for row in RECORDS * 100:
            projection.log_steps(ledger.read().configs[0].record, 0, row)
        projection.sync(ledger.read(), status="KILLED")
        projection.close(limit_s=0.5)
        assert time.monotonic() - started < 10
    assert any("par sync demo" in line for line in said)


def test_what_is_refused_holds_nothing_else_up(beside_a_store):
    """What MLflow refuses is left out and said once; all that came after it is written."""
    said = list[str]()
    everything_finished(beside_a_store)
    with BackgroundProjection(
        beside_a_store, open_store(default_uri(beside_a_store.storage)), said.append
    ) as projection:
        projection.log_file(Path("absent.png"))
        projection.log_file(Path("absent too.png"))
        projection.sync(beside_a_store.read(), status="FINISHED")
    assert {status for status, *_ in everything(default_uri(beside_a_store.storage)).values()} == {"FINISHED"}
    assert [message.partition(";")[0] for message in said] == ["MLflow refuses a part of what the sweep writes"]


def test_records_that_come_meanwhile_go_together(beside_a_store):
    """A thousand training records of a seed take a few calls, in the order in which they came."""
    record = beside_a_store.read().configs[0].record
    with BackgroundProjection(beside_a_store, open_store(default_uri(beside_a_store.storage)), print) as projection:
        for step in range(1, 1001):
            projection.log_steps(record, 0, {"step": step, "train/loss": 1.0 / step})
    assert projection.projection.runs.written < 20
    *_, points = everything(default_uri(beside_a_store.storage))[f"demo/{record.id}/seed-0"]
    assert points["train/loss"] == [(step, 1.0 / step) for step in range(1, 1001)]

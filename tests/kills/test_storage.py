"""What a sweep writes to goes away for a while: the MLflow server, the room on the disk."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.disks import mounted
from tests.kills.scene import output_of
from tests.ray_jobs.mlflow_server import Server

pytestmark = [pytest.mark.kill, pytest.mark.timeout(900)]


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server").start()
    yield server
    server.kill()


def test_the_mlflow_server(scene, judged, server):
    """Training goes on while the server is dead; what it missed it has in the end (M10)."""
    sweep = scene(options=("--tracking-uri", server.uri))
    driver = sweep.start()
    attempt = sweep.await_halfway(driver)
    sweep.note_kill()
    server.kill()
    sweep.await_next_commit(driver)
    server.start()
    assert "MLflow answers again" in output_of(driver)
    assert judged("MLflow server", sweep, attempt).lives == ("done",)


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A disk of 64 MiB, on which a sweep has room."""
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "64m"):
        yield tmp_path / "disk"


WITHOUT_A_RECORD = ("STOPPED", "done")
"""The lives of a seed for the end of whose attempt there was no room either."""


def filled(disk: Path) -> Path:
    """A file that takes what room there is."""
    with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))
    return disk / "filler"


def test_a_full_disk(disk, scene, judged, tmp_path):
    """The disk fills up: the seeds are given up with advice; with room again `--failed` goes on."""
    sweep = scene(storage=disk / "storage", options=("--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"))
    driver = sweep.start()
    attempt = sweep.await_halfway(driver)
    sweep.note_kill()
    filler = filled(disk)
    output = output_of(driver, expected=1)
    assert "DISK" in output
    assert "--failed" in output
    filler.unlink()
    driver = sweep.resume("--failed")
    sweep.await_training(driver)
    output_of(driver)
    assert judged("room on the disk", sweep, attempt).lives in (("DISK", "done"), WITHOUT_A_RECORD)

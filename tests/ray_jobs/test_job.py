"""`ray job submit -- python ray_jobs/sweep.py`, exactly so typed, on a real head."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray_jobs.sweeps import REPOSITORY, attempts, results, runs, write_space

pytestmark = pytest.mark.ray
BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that differs from the installed par, with a default space that takes seconds."""
    for folder in ("par", "ray_jobs", "search_spaces"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "par" / "__init__.py").open("a") as file:
        file.write("\n# this copy is not the installed one\n")
    write_space(tmp_path / "search_spaces" / "smoke.yaml", seeds=1)
    return tmp_path


@pytest.fixture
def head(checkout: Path, tmp_path_factory) -> Iterator[dict[str, str]]:
    """A head started from the checkout, stopped by its own process group; yields the client's environment."""
    dashboard = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_"))}
    environment |= {"PATH": f"{BIN}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [
        "ray", "start", "--head", "--block", "--port", str(free_port()), "--dashboard-port", str(dashboard),
        "--num-cpus", "2", "--resources", json.dumps({"PAR_DRIVER": 8}),
    ]  # fmt: skip
    with (tmp_path_factory.mktemp("head") / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    client = environment | {"RAY_ADDRESS": f"http://127.0.0.1:{dashboard}"}
    try:
        _await_dashboard(dashboard, process)
        yield client
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def _await_dashboard(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, "the head ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the dashboard did not come up")


def submit(checkout: Path, environment: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    command = ["ray", "job", "submit", *more, "--", "python", "ray_jobs/sweep.py"]
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_job_submit_exactly_as_typed(checkout, head):
    """The job runs the default sweep with the checkout's own code on driver and workers (J1), variables of the job
    included (J3); a second submission is refused and fails.
    """
    first = submit(
        checkout, head, "--runtime-env-json", json.dumps({"env_vars": {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.3"}})
    )
    assert first.returncode == 0, first.stdout + first.stderr
    storage = checkout / "results"
    assert len(results(storage, "smoke")) == 2
    assert len(runs(storage)) == 1 + 2 + 2
    recorded = json.loads((storage / "smoke" / "sweep.json").read_text())["source"]
    assert {attempt["source"] for attempt in attempts(storage, "smoke").values()} == {recorded}
    assert recorded == source_of(checkout)
    assert recorded != source_of(REPOSITORY)
    second = submit(checkout, head)
    assert second.returncode == 1
    assert "--resume smoke" in second.stdout + second.stderr


def source_of(repository: Path) -> str:
    code = "from ray_jobs.provenance import source_hash; print(source_hash())"
    environment = os.environ | {"PYTHONPATH": str(repository)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()

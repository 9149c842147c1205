"""A Ray head as a person starts it, in a process group of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ray_jobs.mlflow_server import free_port
from tests.ray_jobs.sweeps import plain_environment

BIN = Path(sys.executable).parent
LIMIT_S = 180


@dataclass(frozen=True)
class Head:
    """Where a head listens, and its process."""

    process: subprocess.Popen
    address: str
    """For a driver."""
    client: Mapping[str, str]
    """The environment of whoever submits jobs."""


@contextmanager
def ray_head(folder: Path, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Head]:
    """Start a head in ``folder``, with 2 CPUs; stop it, unless it is dead by then, by its own process group."""
    port, dashboard = free_port(), free_port()
    variables = plain_environment() | {
        "PATH": f"{BIN}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0",
    } | dict(environment or {})  # fmt: skip
    command = [
        "ray", "start", "--head", "--block", "--port", str(port), "--dashboard-port", str(dashboard),
        "--dashboard-agent-listen-port", str(free_port()), "--num-cpus", "2",
        "--resources", json.dumps({"PAR_DRIVER": 8}),
    ]  # fmt: skip
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=file, stderr=file, start_new_session=True)
    try:
        _await(dashboard, process)
        address = f"http://127.0.0.1:{dashboard}"
        yield Head(process, f"127.0.0.1:{port}", variables | {"RAY_ADDRESS": address})
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def _await(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the head ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the dashboard did not come up")

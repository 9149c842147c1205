"""A real MLflow server on loopback, which tests kill and start again."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from ray_jobs.mlflow_runs.store import open_store

LIMIT_S = 300
"""A server imports for half a minute on two busy cores."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """One server over one database; its port stays the same."""

    def __init__(self, folder: Path, database: str = "server.db") -> None:
        self.folder, self.port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.database = folder / database
        self.process: subprocess.Popen | None = None
        open_store(f"sqlite:///{self.database}")

    def start(self) -> "Server":
        command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
            "--backend-store-uri", f"sqlite:///{self.database}", "--artifacts-destination", str(self.folder / "files"),
        ]  # fmt: skip
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
        deadline = time.monotonic() + LIMIT_S
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "server.log").read_text()
            time.sleep(0.2)
        return self

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            return urlopen(f"{self.uri}/health", timeout=5).status == 200
        except (URLError, OSError):
            return False

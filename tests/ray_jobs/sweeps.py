"""How the tests run sweeps: as a user does, in a process of their own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

REPOSITORY = Path(__file__).resolve().parent.parent.parent

SPACE = """
question: Does every part of a sweep work together?
backbones: [tiny-qwen2]
fixed:
  task.name: swap-s3
  task.rendering: compact
  task.train_depth: 4
  recurrence.gradient_window: 3
  train.steps: {steps}
  train.batch_size: 8
  compute.checkpoint_every: 5
  compute.report_every: 5
  compute.workers: {workers}
  optim.warmup_steps: 2
  optim.lr: 1.0e-3
  evaluation.sequences: 16
  evaluation.batch_size: 8
search:
  recurrence.anchor: {{choice: [first, none]}}
sampler: grid
seeds: {seeds}
"""


def write_space(path: Path, *, steps: int = 20, workers: int = 1, seeds: int = 2) -> Path:
    path.write_text(SPACE.format(steps=steps, workers=workers, seeds=seeds))
    return path


def plain_environment() -> dict[str, str]:
    """This process's, without what steers Ray or MLflow."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_"))}


def start(
    *arguments: str, repository: Path = REPOSITORY, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a sweep, with ``environment`` beside what is there."""
    command, pipe = [sys.executable, str(repository / "ray_jobs" / "sweep.py"), *arguments], subprocess.PIPE
    variables = plain_environment() | dict(environment or {})
    return subprocess.Popen(
        command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=variables, start_new_session=True
    )


def sweep(*arguments: str) -> tuple[int, str]:
    """Exit code and output."""
    process = start(*arguments)
    output, _ = process.communicate(timeout=240)
    return process.returncode, output


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], limit_s: float = 120) -> None:
    """Poll, since the sweep is another process; fail, and end it, when it ends or the limit passes first."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"the awaited state did not come: {process.communicate()[0]}")
        time.sleep(0.05)


def files(storage: Path, pattern: str) -> dict[str, bytes]:
    return {str(path.relative_to(storage)): path.read_bytes() for path in sorted(storage.glob(pattern))}


def results(storage: Path, name: str) -> dict[str, bytes]:
    """Result of every finished seed, as written."""
    return files(storage / name, "configs/*/seed-*/result.json")


def attempts(storage: Path, name: str) -> dict[str, dict]:
    return {path: json.loads(data) for path, data in files(storage / name, "configs/*/seed-*/attempt-*.json").items()}


def runs(storage: Path | str) -> list[Run]:
    """All runs of a storage's own MLflow store, or of the one at a URI."""
    client = MlflowClient(storage if isinstance(storage, str) else f"sqlite:///{storage}/mlflow.db")
    return list(client.search_runs([e.experiment_id for e in client.search_experiments()], max_results=1000))

"""`ray job submit -- python ray_jobs/sweep.py`, exactly so typed, on a real head."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.ray_jobs.heads import ray_head
from tests.ray_jobs.sweeps import REPOSITORY, attempts, results, runs, write_space

pytestmark = pytest.mark.ray


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
def head(checkout: Path, tmp_path_factory) -> Iterator[Mapping[str, str]]:
    """A head started from the checkout; yields the client's environment."""
    with ray_head(checkout, tmp_path_factory.mktemp("head") / "log") as started:
        yield started.client


def submit(checkout: Path, environment: Mapping[str, str], *more: str) -> subprocess.CompletedProcess[str]:
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
    assert "par resume smoke" in second.stdout + second.stderr


def source_of(repository: Path) -> str:
    code = "from ray_jobs.provenance import source_hash; print(source_hash())"
    environment = os.environ | {"PYTHONPATH": str(repository)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()

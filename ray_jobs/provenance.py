"""Which code and which libraries made a result."""

import hashlib
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import par
import ray_jobs
from ray_jobs import REPOSITORY

LIBRARIES = ("torch", "transformers", "ray", "optuna", "mlflow", "numpy")


def source_hash() -> str:
    """Sixteen hex digits over the Python files of par and ray_jobs that this process runs: equal means equal code."""
    digest = hashlib.sha256()
    for package in (Path(par.__file__).parent, Path(ray_jobs.__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package.parent).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str | None:
    """The repository's commit; None outside a checkout."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def provenance() -> dict[str, Any]:
    """Time, code and library versions."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "source": source_hash(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }

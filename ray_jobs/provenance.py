"""Which code and which libraries made a result."""

import hashlib
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version

from ray_jobs.cluster import REPOSITORY

LIBRARIES = ("torch", "transformers", "ray", "optuna", "mlflow", "numpy")


def source_hash() -> str:
    """Sixteen hex digits over the Python files of par and ray_jobs: equal hashes mean equal code."""
    digest = hashlib.sha256()
    for package in ("par", "ray_jobs"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            digest.update(path.relative_to(REPOSITORY).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str | None:
    """The repository's commit; None outside a checkout."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def provenance() -> dict[str, object]:
    """Time, code and library versions."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "source": source_hash(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }

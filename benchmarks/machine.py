"""Where and with what a measurement was taken."""

import platform
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import torch

from par.training.parallel import device_of_this_worker
from par.training.speed import finish

LIBRARIES = ("torch", "transformers", "numpy")
CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """What times depend on, and what a file of results is named after."""

    cpu: str
    cores: int
    """Logical cores."""
    ram_gib: float
    gpu: str | None

    @classmethod
    def here(cls) -> "Hardware":
        """This machine."""
        return cls(
            cpu=_cpu_name(),
            cores=psutil.cpu_count() or 1,
            ram_gib=round(psutil.virtual_memory().total / 2**30, 1),
            gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        )

    @property
    def slug(self) -> str:
        """Lower-case letters, digits and dashes: the name of this hardware's file of results."""
        words = f"{self.cpu} {self.cores} cores {self.gpu or ''}".lower()
        return re.sub(r"[^a-z0-9]+", "-", words).strip("-")

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, {self.ram_gib} GiB, {self.gpu or 'no GPU'}"


def device_clock() -> float:
    """Seconds, once the GPU (if there is one) has finished what it was given."""
    finish(device_of_this_worker())
    return perf_counter()


def provenance() -> dict[str, Any]:
    """Date, commit, library versions and torch threads of a measurement taken now."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        "threads": torch.get_num_threads(),
    }


def _cpu_name() -> str:
    named = re.search(r"model name\s*: (.+)", CPUINFO.read_text()) if CPUINFO.exists() else None
    return " ".join(named[1].split()) if named else platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit that is checked out, with ``+`` behind it if the tree differs; None outside git."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() or None

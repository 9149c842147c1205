"""Small disks that tests fill."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(place: Path, size: str) -> Iterator[Path]:
    """A disk of this size; skips the test where mounting is refused."""
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is refused here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path, leaving: int) -> Path:
    """Write a file that leaves so many bytes of a disk."""
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - leaving))
    return filler

"""A process as another one can recognise it: its number alone says little, as numbers are given again."""

import getpass
import os
import socket
from pathlib import Path

import psutil

SAME_START_S = 2.0
"""Most that two readings of the time at which a process started differ by."""


def pids() -> str:
    """Name the space in which a process number has a meaning: a boot of a machine, and a namespace on it."""
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    return f"{boot.read_text().strip()} {namespace.readlink()}" if boot.exists() else socket.gethostname()


def own_start() -> float:
    """When this process started, in seconds since 1970."""
    return psutil.Process().create_time()


def runs(pid: int, started: float) -> bool:
    """Whether the process with this number that started then is alive, on this machine."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started) < SAME_START_S
    except psutil.NoSuchProcess:
        return False


def user_name() -> str:
    """Who runs this process; a number in a container whose user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())

"""How fast the device could be, and what the process holds in memory."""

import gc
import re
import resource
import sys
from functools import cache
from pathlib import Path
from time import perf_counter

import torch

from par.training.parallel import DTYPES

SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices whose product sets the peak, by kind of device."""
REPEATS = 20
STATUS = Path("/proc/self/status")
OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED")
"""What libraries beside the allocator say when a device has no memory left."""


@cache
def matrix_peak(device: torch.device, precision: str) -> float:
    """FLOP/s of bare matrix products with the threads that this process has now, measured once in a process."""
    return product_rate(device, DTYPES[precision])


def product_rate(device: torch.device, dtype: torch.dtype, side: int | None = None) -> float:
    """FLOP/s of the fastest of REPEATS products of two random square matrices."""
    side = side or SIDE[device.type]
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / min(_seconds(left, right) for _ in range(REPEATS))


def _seconds(left: torch.Tensor, right: torch.Tensor) -> float:
    finish(left.device)
    started = perf_counter()
    torch.mm(left, right)
    finish(left.device)
    return perf_counter() - started


def finish(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def lacks_memory(fault: BaseException) -> bool:
    """Whether an exception says that the memory of a device did not suffice."""
    if isinstance(fault, torch.OutOfMemoryError):
        return True
    return isinstance(fault, RuntimeError) and any(words in str(fault) for words in OUT_OF_MEMORY)


def forget(device: torch.device) -> None:
    """Give back what an earlier model of this process held, and measure the peak from now on."""
    gc.collect()  # modules and hooks refer to each other
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_gib(device: torch.device) -> float:
    """The most that was in use so far: of the GPU's memory by its allocator, else of the host's by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    if STATUS.exists():  # the usage below begins with the peak of the process that started this one
        return int(re.findall(r"VmHWM:\s+(\d+) kB", STATUS.read_text())[0]) / 2**20
    unit = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

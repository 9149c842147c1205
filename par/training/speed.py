"""How fast the device could be, and what the process holds in memory."""

import resource
from functools import cache
from time import perf_counter

import torch

from par.training.parallel import DTYPES

SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices whose product sets the peak, by kind of device."""
REPEATS = 6


@cache
def matrix_peak(device: torch.device, precision: str) -> float:
    """FLOP/s of a bare matrix product with the threads that this process has now, the best of a few; measured once."""
    side = SIDE[device.type]
    factor = torch.ones(side, side, device=device, dtype=DTYPES[precision])
    return 2 * side**3 / min(_seconds(factor) for _ in range(REPEATS))


def _seconds(factor: torch.Tensor) -> float:
    _finish(factor.device)
    started = perf_counter()
    torch.mm(factor, factor)
    _finish(factor.device)
    return perf_counter() - started


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_gib(device: torch.device) -> float:
    """The most that was in use so far: of the GPU's memory by its allocator, else of the host's by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

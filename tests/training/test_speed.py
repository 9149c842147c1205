"""What a device could do, and what tells that its memory is full."""

import gc
import weakref

import pytest
import torch

from par.testing import tiny_run
from par.training import speed
from par.training.loop import Trainer


def test_the_rate_is_that_of_the_fastest_product(monkeypatch):
    """Products of two 10 x 10 matrices, 2000 FLOPs each, in 4, 1 and 2 s: 2000 FLOP/s."""
    ticks = iter([0.0, 4.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(speed, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(speed, "REPEATS", 3)
    assert speed.product_rate(torch.device("cpu"), torch.float32, side=10) == 2000


@pytest.mark.parametrize(
    ("fault", "lacking"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("size mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_says_that_memory_is_lacking(fault, lacking):
    """The allocator, the driver and the libraries each say it in their own words."""
    assert speed.lacks_memory(fault) == lacking


def test_nothing_is_left_of_a_model_that_is_forgotten():
    """The next attempt of a process does not hold two models."""
    trainer = Trainer(tiny_run(train__steps=3))
    list(trainer.steps())
    weights = [weakref.ref(p) for p in trainer.model.parameters()]
    del trainer
    gc.disable()
    try:
        speed.forget(torch.device("cpu"))
    finally:
        gc.enable()
    assert not any(weight() is not None for weight in weights)


def test_the_peak_of_memory_is_in_gib():
    """A process that has imported torch and holds a block holds more than the block, and less than a machine."""
    block = torch.ones(2**26)
    assert block.numel() * 4 / 2**30 < speed.peak_memory_gib(torch.device("cpu")) < 64

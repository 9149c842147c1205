"""Memory does not grow with R."""

from pathlib import Path

import pytest
import torch

from par.testing import run_processes, tiny_run
from par.training.loop import Trainer
from par.training.speed import peak_memory_gib


def peak_of_a_step(rank: int, iterations: int, out: Path) -> None:
    """Write by how many MiB a training step of ``iterations`` iterations raises the peak of a fresh process."""
    run = tiny_run(
        backbone="mini-qwen3", task__train_depth=24, train__batch_size=128, train__query_reset=0.5,
        schedule={"kind": "fixed", "iterations": iterations},
    )  # fmt: skip
    trainer = Trainer(run)
    before = peak_memory_gib(trainer.device)
    next(trainer.steps())
    out.write_text(str(1024 * (peak_memory_gib(trainer.device) - before)))


@pytest.mark.dist
def test_memory_does_not_grow_with_iterations(tmp_path, monkeypatch):
    """A step of 512 iterations needs within 5 % the memory of one of 16, the tokens being equal."""
    monkeypatch.setenv(
        "MALLOC_MMAP_THRESHOLD_", "65536"
    )  # freed tensors go back at once: the peak is that of live ones
    torch.set_num_threads(1)
    peaks = {}
    for iterations in (16, 512):
        run_processes(1, peak_of_a_step, iterations, tmp_path / "peak")
        peaks[iterations] = float((tmp_path / "peak").read_text())
    assert peaks[16] > 40, "a step this small shows nothing"
    assert peaks[512] == pytest.approx(peaks[16], rel=0.05)

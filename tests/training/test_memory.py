"""Memory does not grow with R, neither the student's nor the teacher's."""

from pathlib import Path

import pytest
import torch

from par.testing import run_processes, tiny_run
from par.training.loop import Trainer
from par.training.speed import peak_memory_gib


def peak_of_a_step(rank: int, iterations: int, objective: str, out: Path) -> None:
    """Write by how many MiB a training step of ``iterations`` iterations raises the peak of a fresh process."""
    run = tiny_run(
        backbone="mini-qwen3", task__train_depth=24, train__batch_size=128, train__query_reset=0.5,
        schedule={"kind": "fixed", "iterations": iterations}, objective=objective, seed=11,
    )  # fmt: skip
    trainer = Trainer(run)
    lesson = next(trainer.batches.micro_batches(0)).lesson
    assert len(lesson.places if lesson else ()) == (run.recurrence.gradient_window if trainer.teacher else 0)
    before = peak_memory_gib(trainer.device)
    next(trainer.steps())
    out.write_text(str(1024 * (peak_memory_gib(trainer.device) - before)))


@pytest.mark.dist
@pytest.mark.parametrize(("objective", "few", "many"), [("progress", 16, 512), ("prefix_distill", 4, 21)])
def test_memory_does_not_grow_with_iterations(tmp_path, monkeypatch, objective, few, many):
    """A step of many iterations needs within 5 % the memory of one of few, tokens and lessons being equally many."""
    monkeypatch.setenv(
        "MALLOC_MMAP_THRESHOLD_", "65536"
    )  # freed tensors go back at once: the peak is that of live ones
    torch.set_num_threads(1)
    peaks = {}
    for iterations in (few, many):
        run_processes(1, peak_of_a_step, iterations, objective, tmp_path / "peak")
        peaks[iterations] = float((tmp_path / "peak").read_text())
    assert peaks[few] > 40, "a step this small shows nothing"
    assert peaks[many] == pytest.approx(peaks[few], rel=0.05)

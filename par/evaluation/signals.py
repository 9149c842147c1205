"""Signals of instability in a trained model. Dimension letters: R iterations."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from par.evaluation.exam import Exam
from par.model.reading import Answer, Shown, Staying
from par.tasks.streams import Split
from par.training.parallel import summed, workers

PROMPTS = 32
"""Validation prompts on which drift is measured. Every worker reads the same: they share each pass."""


class DriftAt:
    """The drift after some iterations; nothing is answered."""

    def __init__(self, iterations: Sequence[int]) -> None:
        self.iterations, self.count = frozenset(iterations), max(iterations)
        self._drifts: list[Tensor] = []

    def after(self, shown: Shown, answer: Answer) -> Staying | None:
        """Keep it where it is wanted."""
        if shown.k in self.iterations:
            self._drifts.append(shown.drift())
        return None

    def result(self) -> Tensor:
        """One number for each iteration, ascending."""
        return torch.stack(self._drifts)


@torch.no_grad()
def drift_profile(exam: Exam) -> tuple[float, float, float]:
    """rms(s_k) / rms(s_1) before rescaling at k = R/2, R, 2R on validation prompts of the exam's deepest depth.

    R completes that depth. Mean over tokens; k is at least 1. All workers read the same prompts and return the mean of
    their equal numbers.
    """
    R = max(exam.completing)
    wanted = (max(1, R // 2), R, 2 * R)
    drifts_K, _ = replace(exam, split=Split.VALIDATION).read(np.arange(PROMPTS), DriftAt(wanted))
    mean_K = summed(drifts_K.float().clone(), exam.mesh) / workers(exam.mesh)[1]
    by_iteration = dict(zip(sorted(set(wanted)), mean_K.tolist(), strict=True))
    half, once, twice = (by_iteration[k] for k in wanted)
    return half, once, twice

"""Signals of instability in a trained model. Dimension letters: R iterations."""

from dataclasses import replace

import numpy as np
import torch

from par.evaluation.exam import Exam
from par.model.reading import AtIterations
from par.tasks.streams import Split
from par.training.parallel import summed, workers

PROMPTS = 32
"""Validation prompts on which drift is measured. Every worker reads the same: they share each pass."""


@torch.no_grad()
def drift_profile(exam: Exam) -> tuple[float, float, float]:
    """rms(s_k) / rms(s_1) before rescaling at k = R/2, R, 2R on validation prompts of the exam's deepest depth.

    R completes that depth. Mean over tokens; k is at least 1. All workers read the same prompts and return the mean of
    their equal numbers.
    """
    R = max(exam.completing)
    wanted = (max(1, R // 2), R, 2 * R)
    drifts_K, _ = replace(exam, split=Split.VALIDATION).read(
        np.arange(PROMPTS), AtIterations(wanted, lambda shown, _: shown.drift())
    )
    mean_K = summed(drifts_K.float().clone(), exam.mesh) / workers(exam.mesh)[1]
    by_iteration = dict(zip(sorted(set(wanted)), mean_K.tolist(), strict=True))
    half, once, twice = (by_iteration[k] for k in wanted)
    return half, once, twice

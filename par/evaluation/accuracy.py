"""Accuracy by depth: one pass over the deepest prompts answers every shorter depth too, all boxes at once.

Dimension letters: B prompts, N = D · X branches, D depths, X boxes, C candidates.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from par.evaluation.exam import Exam
from par.evaluation.tally import Tally
from par.model.readout import answers
from par.training.parallel import summed


@dataclass(frozen=True, slots=True)
class DepthCurve:
    """Accuracy at each tested depth, over the same frozen prompts."""

    depths: tuple[int, ...]
    """Operations, ascending."""
    single_query: tuple[float, ...]
    """Share of (prompt, box) questions answered right."""
    full_state: tuple[float, ...]
    """Share of prompts whose boxes are all right."""
    sequences: int


@torch.no_grad()
def depth_curve(
    exam: Exam, *, begun: Tally | None = None, keep: Callable[[Tally], None] = lambda _: None
) -> DepthCurve:
    """Read every depth d at iteration ceil(d / step_size).

    ``keep`` is given the counts after every batch; an evaluation that is ``begun`` with one of them goes on from there.
    """
    tally = begun or Tally.empty(len(exam.depths))
    for prompts, indices in exam.batches(tally.prompts):
        logits_1BNC, targets_BN = exam.read(indices, exam.own_reads())
        right_BDX = exam.by_depth(answers(logits_1BNC[0]) == targets_BN)
        right_BDX = right_BDX[torch.from_numpy(indices < exam.sequences).to(exam.device)]
        counts_2D = torch.stack([right_BDX.sum((0, 2)), right_BDX.all(-1).sum(0)])
        tally = tally.plus(prompts, *summed(counts_2D, exam.mesh).tolist())
        keep(tally)
    return DepthCurve(
        depths=exam.depths,
        single_query=tuple(right / exam.questions for right in tally.single_D),
        full_state=tuple(right / exam.sequences for right in tally.full_D),
        sequences=exam.sequences,
    )


@torch.no_grad()
def batch_drift(exam: Exam) -> float:
    """How far the logits of the first two prompts move when they are read apart from their batch.

    The largest difference of a logit. Zero in exact arithmetic; what is left is the rounding of the kernels that the
    device takes for either size.
    """
    few_1BNC, _ = exam.read(np.arange(2), exam.own_reads())
    many_1BNC, _ = exam.read(np.arange(max(2, exam.batch_size)), exam.own_reads())
    return float((few_1BNC - many_1BNC[:, :2]).abs().max())

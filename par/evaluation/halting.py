"""Learned halting at inference: where Yes fires, and how good the answers read there are.

Dimension letters: K iterations 1 … K_max, B prompts, N = depths · boxes branches, D depths, X boxes, S sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from par.config import HaltingConfig
from par.evaluation.accuracy import Reader, frozen_batches
from par.model.looped import LoopedModel
from par.model.recurrence import Iterations
from par.tasks.groups import GroupTask
from par.tasks.prompts import Rendering
from par.training.parallel import summed


def first_firing(p_yes_KS: Tensor, rule: HaltingConfig) -> Tensor:
    """The iteration (1-based) at which each sequence halts, (S,); 0 where it does not.

    It is the first R with p_yes[R] > tau and at least k of p_yes[R … R+m−1] > tau, the window lying inside 1 … K_max.
    """
    yes_KS = p_yes_KS > rule.tau
    if len(yes_KS) < rule.m:
        return torch.zeros(yes_KS.shape[1], dtype=torch.long, device=yes_KS.device)
    counts_RS = yes_KS.long().unfold(0, rule.m, 1).sum(-1)
    fires_RS = yes_KS[: len(counts_RS)] & (counts_RS >= rule.k)
    return torch.where(fires_RS.any(0), fires_RS.long().argmax(0) + 1, 0)


@dataclass(frozen=True, slots=True)
class HaltingCurve:
    """What learned halting achieves at each depth. Not halted is kept apart from wrong."""

    depths: tuple[int, ...]
    single_query: tuple[float, ...]
    """Share of questions that halted with the right answer."""
    full_state: tuple[float, ...]
    """Share of prompts whose boxes all halted with the right answer."""
    not_halted: tuple[float, ...]
    """Share of questions that never halted."""
    mean_iterations: tuple[float, ...]
    """Iteration at which a question halted, mean over those that did; 0 if none did."""
    sequences: int


@torch.no_grad()
def halting_curve(
    model: LoopedModel,
    task: GroupTask,
    rendering: Rendering,
    rule: HaltingConfig,
    *,
    depths: Sequence[int],
    step_size: int,
    sequences: int,
    batch_size: int,
    mesh: DeviceMesh | None = None,
) -> HaltingCurve:
    """Read every question out after every iteration up to K_max = ceil(deepest / step_size) + m, and apply the rule."""
    last = ceil(max(depths) / step_size) + rule.m
    plan = Iterations(count=last, keep=tuple(range(1, last + 1)))
    reader = Reader(model, task, rendering, depths, extra_candidates=(rendering.yes, rendering.no))
    counts_4D = torch.zeros(4, len(depths), device=reader.device, dtype=torch.long)
    for _, indices in frozen_batches(sequences, batch_size, mesh):
        logits_KBNC, targets_BN = reader.logits(indices, plan)
        p_yes_KBN = logits_KBNC[..., -2:].softmax(-1)[..., 0]
        halted_BN = first_firing(p_yes_KBN.flatten(1), rule).view_as(targets_BN)
        answers_KBN = logits_KBNC[..., :-2].argmax(-1)
        answers_BN = answers_KBN.gather(0, (halted_BN - 1).clamp_min(0).unsqueeze(0)).squeeze(0)
        wanted_B = torch.from_numpy(indices < sequences).to(reader.device)
        right_BDX = reader.by_depth((answers_BN == targets_BN) & (halted_BN > 0))[wanted_B]
        halted_BDX = reader.by_depth(halted_BN)[wanted_B]
        counts_4D += torch.stack([
            right_BDX.sum((0, 2)), right_BDX.all(-1).sum(0), (halted_BDX == 0).sum((0, 2)), halted_BDX.sum((0, 2)),
        ])  # fmt: skip
    right_D, full_D, not_halted_D, iterations_D = summed(counts_4D, mesh).tolist()
    questions = sequences * task.boxes
    return HaltingCurve(
        depths=tuple(depths),
        single_query=tuple(right / questions for right in right_D),
        full_state=tuple(right / sequences for right in full_D),
        not_halted=tuple(silent / questions for silent in not_halted_D),
        mean_iterations=tuple(
            iterations / max(1, questions - silent)
            for iterations, silent in zip(iterations_D, not_halted_D, strict=True)
        ),
        sequences=sequences,
    )

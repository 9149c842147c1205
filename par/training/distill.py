"""The teacher of label-free training: an exponential moving average of the student, asked about shorter prompts.

Dimension letters: K kept iterations, B prompts, N branches, C candidates, J shorter prompts.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from par.config.run import RunConfig
from par.model.build import build_model
from par.model.packing import Branches, Movable, Packed, pack
from par.model.reading import OwnIteration
from par.tasks.prompts import Prompts, Rendering
from par.training.parallel import shard


@dataclass(frozen=True, slots=True)
class Lesson(Movable):
    """What the teacher is asked about one micro-batch: the student's questions, on truncated prompts."""

    packed: Packed
    """Branches (B, J·N): those of the longest truncation first."""
    own: tuple[int, ...]
    """The iteration at which each of these branches is read."""
    places: tuple[int, ...]
    """Of each truncation the student's kept iteration that it teaches, as a place in K."""


def lesson(
    prompts: Prompts, asked: Branches, kept: tuple[int, ...], taught: tuple[int, ...], *, step_size: int, stretch: float
) -> Lesson | None:
    """Ask for what the student is asked for, after c·k operations for each taught k, at the iteration k that ends them.

    All truncations ride on the student's own prompts. None where nothing is taught.
    """
    if not taught:
        return None
    B, N = asked.operations_BN.shape
    operations_BM = np.tile(np.repeat(step_size * np.array(taught), N), (B, 1))
    packed = pack(prompts, Branches(operations_BM, np.tile(asked.boxes_BN, (1, len(taught))))).stretched(stretch)
    own = tuple(np.repeat(taught, N).tolist())
    return Lesson(packed, own, tuple(kept.index(k) for k in taught))


class Teacher:
    """A model of its own, sharded like the student, that starts as the student does and follows it slowly."""

    def __init__(
        self, run: RunConfig, rendering: Rendering, *, seed: int, device: torch.device, mesh: DeviceMesh | None
    ):
        self.decay = run.train.teacher_decay
        self.model = build_model(run, rendering, seed=seed).to(device).requires_grad_(False)
        shard(self.model, mesh, run.train.precision)

    @torch.no_grad()
    def answers(self, asked: Lesson, kept: int) -> Tensor:
        """Probabilities (K, B, N, C) of the candidates; zero at iterations that are not taught."""
        logits_1BMC = self.model.read(asked.packed, OwnIteration(asked.own))
        B, _, C = logits_1BMC[0].shape
        probabilities_JBNC = logits_1BMC[0].float().softmax(-1).view(B, len(asked.places), -1, C).transpose(0, 1)
        answers_KBNC = probabilities_JBNC.new_zeros(kept, *probabilities_JBNC.shape[1:])
        answers_KBNC[list(asked.places)] = probabilities_JBNC
        return answers_KBNC

    @torch.no_grad()
    def follow(self, student: torch.nn.Module) -> None:
        """After a step of the student: θ ← decay · θ + (1 − decay) · θ_student, shard by shard."""
        for own, other in zip(self.model.parameters(), student.parameters(), strict=True):
            own.mul_(self.decay).add_(other.detach(), alpha=1 - self.decay)

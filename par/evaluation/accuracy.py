"""Accuracy by depth: one pass over the deepest prompts answers every shorter depth too, all boxes at once.

Dimension letters: K kept iterations, B prompts, N = D · X branches, D depths, X boxes, C candidates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from par.evaluation.answers import answers
from par.evaluation.tally import Tally
from par.model.looped import LoopedModel
from par.model.packing import Branches, pack
from par.model.reading import OwnIteration, Reading
from par.tasks.groups import GroupTask
from par.tasks.prompts import Rendering
from par.tasks.streams import EVALUATION_SEED, Split, examples
from par.training.parallel import summed, workers


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


class Reader:
    """Asks a model for every box after every depth of the frozen prompts of a split."""

    def __init__(
        self,
        model: LoopedModel,
        task: GroupTask,
        rendering: Rendering,
        depths: Sequence[int],
        extra_candidates: tuple[int, ...] = (),
        split: Split = Split.TEST,
    ) -> None:
        self.model, self.task, self.rendering, self.split = model, task, rendering, split
        self.depths, self.extra_candidates = tuple(depths), extra_candidates
        self.device = next(model.parameters()).device

    def read(self, indices: np.ndarray, reading: Reading) -> tuple[Tensor, Tensor]:
        """The result of the reading, and the right candidates (B, N), deepest branches first."""
        drawn = examples(self.task, seed=EVALUATION_SEED, split=self.split, indices=indices, depth=max(self.depths))
        prompts = self.rendering.render(drawn)
        branches = Branches.all_boxes(np.tile(np.array(self.depths[::-1]), (len(indices), 1)), self.task.boxes)
        packed = pack(prompts, branches, self.extra_candidates).to(self.device)
        result, _ = self.model(packed, reading)
        return result, torch.from_numpy(branches.targets(prompts, max(self.depths))).to(self.device)

    def own_reads(self, step_size: int) -> OwnIteration:
        """Read each branch at the iteration that completes it, ceil(depth / step_size)."""
        reads_D = [ceil(depth / step_size) for depth in reversed(self.depths)]
        return OwnIteration([read for read in reads_D for _ in range(self.task.boxes)])

    def by_depth(self, values_BN: Tensor) -> Tensor:
        """The branches (B, N) as (B, D, X), the depths ascending."""
        return values_BN.unflatten(-1, (len(self.depths), self.task.boxes)).flip(1)


def frozen_batches(
    sequences: int, batch_size: int, mesh: DeviceMesh | None, begin: int = 0
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield how many prompts are read after the turn, and this worker's batch of indices in it, from ``begin`` on.

    The last batches reach beyond ``sequences`` to keep their size; whoever counts leaves those prompts out.
    """
    rank, size = workers(mesh)
    for first in range(begin, sequences, size * batch_size):
        own = first + rank * batch_size
        yield min(first + size * batch_size, sequences), np.arange(own, own + batch_size)


@torch.no_grad()
def depth_curve(
    model: LoopedModel,
    task: GroupTask,
    rendering: Rendering,
    *,
    depths: Sequence[int],
    step_size: int,
    sequences: int,
    batch_size: int,
    mesh: DeviceMesh | None = None,
    split: Split = Split.TEST,
    begun: Tally | None = None,
    keep: Callable[[Tally], None] = lambda tally: None,
) -> DepthCurve:
    """Read every depth d at iteration ceil(d / step_size) on the first ``sequences`` frozen prompts of a split.

    ``keep`` is given the counts after every batch; an evaluation that is ``begun`` with one of them goes on from there.
    """
    reader = Reader(model, task, rendering, depths, split=split)
    tally = begun or Tally.empty(len(depths))
    for prompts, indices in frozen_batches(sequences, batch_size, mesh, tally.prompts):
        logits_1BNC, targets_BN = reader.read(indices, reader.own_reads(step_size))
        right_BDX = reader.by_depth(answers(logits_1BNC[0]) == targets_BN)
        right_BDX = right_BDX[torch.from_numpy(indices < sequences).to(reader.device)]
        counts_2D = torch.stack([right_BDX.sum((0, 2)), right_BDX.all(-1).sum(0)])
        tally = tally.plus(prompts, *summed(counts_2D, mesh).tolist())
        keep(tally)
    return DepthCurve(
        depths=tuple(depths),
        single_query=tuple(right / (sequences * task.boxes) for right in tally.single_D),
        full_state=tuple(right / sequences for right in tally.full_D),
        sequences=sequences,
    )


@torch.no_grad()
def batch_drift(
    model: LoopedModel, task: GroupTask, rendering: Rendering, *, depth: int, step_size: int, batch_size: int
) -> float:
    """How far the logits of two test prompts of ``depth`` operations move when they are read apart from their batch.

    The largest difference of a logit. Zero in exact arithmetic; what is left is the rounding of the kernels that the
    device takes for either size.
    """
    reader = Reader(model, task, rendering, (depth,))
    few_1BNC, _ = reader.read(np.arange(2), reader.own_reads(step_size))
    many_1BNC, _ = reader.read(np.arange(max(2, batch_size)), reader.own_reads(step_size))
    return float((few_1BNC - many_1BNC[:, :2]).abs().max())

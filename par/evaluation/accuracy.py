"""Accuracy by depth: one pass over the deepest prompts answers every shorter depth too, all boxes at once.

Dimension letters: K kept iterations, B prompts, N = depths · boxes branches, X boxes, D depths, C candidates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from par.model.looped import Iterations, LoopedModel
from par.model.packing import Branches, pack
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DepthCurve:
    """Read every depth d at iteration ceil(d / step_size) on the first ``sequences`` frozen test prompts.

    Workers take turns at the batches. ``progress`` is told (batches done, batches in all) of this worker.
    """
    rank, size = workers(mesh)
    model.eval()
    counts_2D = torch.zeros(2, len(depths), device=next(model.parameters()).device)
    turns = ceil(ceil(sequences / batch_size) / size)
    for turn in range(turns):
        first = (turn * size + rank) * batch_size
        indices = np.arange(first, first + batch_size)
        wanted_B = torch.from_numpy(indices < sequences)
        right_BDX = _right(model, task, rendering, indices, depths, step_size)[wanted_B]
        counts_2D += torch.stack([right_BDX.float().mean(-1).sum(0), right_BDX.all(-1).float().sum(0)])
        progress(turn + 1, turns)
    model.train()
    single_query, full_state = (summed(counts_2D, mesh) / sequences).tolist()
    return DepthCurve(tuple(depths), tuple(single_query), tuple(full_state), sequences)


@torch.no_grad()
def _right(
    model: LoopedModel,
    task: GroupTask,
    rendering: Rendering,
    indices: np.ndarray,
    depths: Sequence[int],
    step_size: int,
) -> Tensor:
    """Whether each question is answered right, (B, D, X)."""
    drawn = examples(task, seed=EVALUATION_SEED, split=Split.TEST, indices=indices, depth=max(depths))
    prompts = rendering.render(drawn)
    branches = Branches.all_boxes(np.tile(np.array(depths), (len(indices), 1)), task.boxes)
    reads = [ceil(depth / step_size) for depth in depths]
    kept = sorted(set(reads))
    device = next(model.parameters()).device
    logits_KBNC, _ = model(pack(prompts, branches).to(device), Iterations(count=kept[-1], keep=tuple(kept)))
    answers_KBDX = logits_KBNC.argmax(-1).unflatten(-1, (len(depths), task.boxes))
    own_iteration = torch.tensor([kept.index(read) for read in reads], device=device)
    answers_DBX = answers_KBDX[own_iteration, :, torch.arange(len(depths), device=device)]
    targets_BN = torch.from_numpy(branches.targets(prompts, max(depths))).to(device)
    return answers_DBX.transpose(0, 1) == targets_BN.unflatten(-1, (len(depths), task.boxes))


def rows(curve: DepthCurve) -> Iterator[dict[str, float | int]]:
    """One record per depth."""
    for depth, single_query, full_state in zip(curve.depths, curve.single_query, curve.full_state, strict=True):
        yield {
            "depth": depth,
            "single_query": single_query,
            "full_state": full_state,
            "sequences": curve.sequences,
        }

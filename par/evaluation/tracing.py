"""The trace of a trained model: every question read out after every iteration, once.

Dimension letters: K iterations, B prompts, N branches, C candidates, S questions.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from par.evaluation.accuracy import Reader, frozen_batches
from par.evaluation.answers import answers_and_p_yes
from par.evaluation.traces import SPLITS, Traces
from par.model.looped import LoopedModel
from par.model.reading import AllBranches
from par.tasks.groups import GroupTask
from par.tasks.prompts import Rendering
from par.tasks.streams import Split

Columns = list[np.ndarray]
"""The columns of Traces for some questions."""


@torch.no_grad()
def record_traces(
    model: LoopedModel,
    task: GroupTask,
    rendering: Rendering,
    *,
    depths: Sequence[int],
    step_size: int,
    last: int,
    sequences: int,
    batch_size: int,
    mesh: DeviceMesh | None = None,
) -> Traces:
    """Read iterations 1 … ``last`` of the first ``sequences`` frozen prompts of both splits; each worker gets all."""
    yes_no = (rendering.yes, rendering.no)
    pieces: list[Columns] = []
    for split in SPLITS:
        reader = Reader(model, task, rendering, depths, extra_candidates=yes_no, split=split)
        for _, indices in frozen_batches(sequences, batch_size, mesh):
            pieces.append(_questions(reader, split, indices, step_size, last, indices < sequences))
    return Traces(*(np.concatenate(column) for column in zip(*_of_all_workers(pieces, mesh), strict=True)))


def _questions(
    reader: Reader, split: Split, indices: np.ndarray, step_size: int, last: int, wanted_B: np.ndarray
) -> Columns:
    logits_KBNC, targets_BN = reader.read(indices, AllBranches(range(1, last + 1)))
    K, _, N = logits_KBNC.shape[:3]
    answer_BNK, p_yes_BNK = (values_KBN.movedim(0, -1) for values_KBN in answers_and_p_yes(logits_KBNC))
    depth_N, box_N = (
        np.repeat(reader.depths[::-1], reader.task.boxes),
        np.tile(np.arange(reader.task.boxes), len(reader.depths)),
    )
    B = int(wanted_B.sum())
    return [
        np.full(B * N, split),
        np.repeat(indices[wanted_B], N),
        np.tile(depth_N, B),
        np.tile(-(-depth_N // step_size), B),
        np.tile(box_N, B),
        targets_BN.cpu().numpy()[wanted_B].reshape(-1),
        p_yes_BNK.half().cpu().numpy()[wanted_B].reshape(-1, K),
        answer_BNK.to(torch.int8).cpu().numpy()[wanted_B].reshape(-1, K),
    ]


def _of_all_workers(pieces: list[Columns], mesh: DeviceMesh | None) -> Iterator[Columns]:
    if mesh is None:
        yield from pieces
        return
    everyones: list[list[Columns]] = [[] for _ in range(mesh.size())]
    dist.all_gather_object(everyones, pieces, group=mesh.get_group())
    for own in everyones:
        yield from own

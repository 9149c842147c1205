"""The trace of a trained model: every question read out after every iteration, once.

Dimension letters: K iterations, B prompts, N branches, C candidates, S questions.
"""

from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from par.evaluation.exam import Exam, Heard
from par.evaluation.traces import SPLITS, Traces
from par.model.reading import AtIterations
from par.model.readout import answers_and_p_yes

Columns = list[np.ndarray]
"""The columns of Traces for some questions."""


@torch.no_grad()
def record_traces(exam: Exam, last: int, heard: Heard = lambda _: None) -> Traces:
    """Read iterations 1 … ``last`` of the frozen prompts of both splits, whatever the exam's; each worker gets all."""
    pieces: list[Columns] = []
    for split in SPLITS:
        asked = replace(exam, split=split)
        for prompts, indices in asked.batches():
            pieces.append(_questions(asked, indices, last))
            heard(prompts)
    return Traces(*(np.concatenate(column) for column in zip(*_of_all_workers(pieces, exam.mesh), strict=True)))


def _questions(exam: Exam, indices: np.ndarray, last: int) -> Columns:
    logits_KBNC, targets_BN = exam.read(indices, AtIterations(range(1, last + 1)), with_halting=True)
    K, _, N = logits_KBNC.shape[:3]
    answer_BNK, p_yes_BNK = (values_KBN.movedim(0, -1) for values_KBN in answers_and_p_yes(logits_KBNC))
    boxes, wanted_B = exam.task.boxes, indices < exam.sequences
    B = int(wanted_B.sum())
    return [
        np.full(B * N, exam.split),
        np.repeat(indices[wanted_B], N),
        np.tile(np.repeat(exam.depths[::-1], boxes), B),
        np.tile(np.repeat(exam.completing[::-1], boxes), B),
        np.tile(np.arange(boxes), B * len(exam.depths)),
        targets_BN.cpu().numpy()[wanted_B].reshape(-1),
        p_yes_BNK.half().cpu().numpy()[wanted_B].reshape(-1, K),
        answer_BNK.to(torch.int8).cpu().numpy()[wanted_B].reshape(-1, K),
    ]


def _of_all_workers(pieces: list[Columns], mesh: DeviceMesh | None) -> list[Columns]:
    if mesh is None:
        return pieces
    everyones: list[list[Columns]] = [[] for _ in range(mesh.size())]
    dist.all_gather_object(everyones, pieces, group=mesh.get_group())
    return list(chain.from_iterable(everyones))

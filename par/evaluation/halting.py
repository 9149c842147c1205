"""Learned halting at inference: where Yes fires, and how good the answers read there are.

Dimension letters: K iterations 1 … K_max, B prompts, N = depths · boxes branches, D depths, X boxes, S sequences.
"""

from dataclasses import dataclass

import torch

from par.config.groups import HaltingConfig
from par.evaluation.exam import Exam, Heard
from par.evaluation.lazily import LazyReading
from par.training.parallel import gathered, summed


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
    mean_iterations: tuple[float | None, ...]
    """Iteration at which a question halted, mean over those that did; None if none did."""
    mean_reads: tuple[float, ...]
    """Read-outs that a question asked for until it was settled."""
    mean_computed: tuple[float, ...]
    """Read-outs of a question that the coda computed: a call takes all branches between those that ask."""
    coda_calls: float
    """Calls of the coda per batch, mean."""
    sequences: int


@torch.no_grad()
def halting_curve(exam: Exam, rule: HaltingConfig, heard: Heard = lambda _: None) -> HaltingCurve:
    """Let every question halt by the rule within K_max iterations, those that complete the deepest and m more.

    States are read out as the rule needs them, and questions leave when they are settled.
    """
    last = max(exam.completing) + rule.m
    counts_6D = torch.zeros(6, len(exam.depths), device=exam.device, dtype=torch.long)
    calls_2 = torch.zeros(2, device=exam.device, dtype=torch.long)
    with gathered(exam.model.coda):
        for prompts, indices in exam.batches():
            reading = LazyReading(rule, last=last, prompts=len(indices), branches=exam.branches)
            (halted_BN, answers_BN), targets_BN = exam.read(indices, reading, with_halting=True)
            wanted_B = torch.from_numpy(indices < exam.sequences)
            right_BN = (answers_BN == targets_BN.cpu()) & (halted_BN > 0)
            reads_BN = torch.from_numpy(reading.read_S).view_as(halted_BN)
            computed_BN = torch.from_numpy(reading.computed_BN)
            right_BDX, halted_BDX, reads_BDX, computed_BDX = (
                exam.by_depth(values_BN)[wanted_B] for values_BN in (right_BN, halted_BN, reads_BN, computed_BN)
            )
            if len(right_BDX):
                calls_2 += torch.tensor([reading.coda_calls, 1], device=exam.device)
            counts_6D += torch.stack([
                right_BDX.sum((0, 2)), right_BDX.all(-1).sum(0), (halted_BDX == 0).sum((0, 2)), halted_BDX.sum((0, 2)),
                reads_BDX.sum((0, 2)), computed_BDX.sum((0, 2)),
            ]).to(exam.device)  # fmt: skip
            heard(prompts)
    right_D, full_D, not_halted_D, iterations_D, reads_D, computed_D = summed(counts_6D, exam.mesh).tolist()
    calls, batches = summed(calls_2, exam.mesh).tolist()
    questions = exam.questions
    return HaltingCurve(
        depths=exam.depths,
        single_query=tuple(right / questions for right in right_D),
        full_state=tuple(right / exam.sequences for right in full_D),
        not_halted=tuple(silent / questions for silent in not_halted_D),
        mean_iterations=tuple(
            iterations / (questions - silent) if silent < questions else None
            for iterations, silent in zip(iterations_D, not_halted_D, strict=True)
        ),
        mean_reads=tuple(reads / questions for reads in reads_D),
        mean_computed=tuple(computed / questions for computed in computed_D),
        coda_calls=calls / batches,
        sequences=exam.sequences,
    )

"""The batches of a run: pure functions of (settings, seed, step), cut the same way whatever the number of workers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from par.config.run import RunConfig
from par.model.packing import Branches, Movable, Packed, pack
from par.model.recurrence import Iterations
from par.tasks.groups import GroupTask
from par.tasks.prompts import Prompts, Rendering
from par.tasks.streams import Split, examples
from par.training.distill import Lesson, lesson
from par.training.draws import (
    StepDepth,
    Stream,
    answered_iterations,
    draw_boxes,
    draw_depth,
    draw_factor,
    draw_lengths,
    extra_negative,
    generator,
    taught_iterations,
)
from par.training.objectives import Targets


@dataclass(frozen=True, slots=True)
class MicroBatch(Movable):
    """One forward pass of one worker."""

    depth: StepDepth
    """d and R of the whole step."""
    packed: Packed
    plan: Iterations
    targets: Targets
    lesson: Lesson | None
    """What a teacher is asked; None without one, or where it has nothing to teach."""


class Batches:
    """The training stream of one seed."""

    def __init__(self, run: RunConfig, task: GroupTask, rendering: Rendering) -> None:
        self.run, self.task, self.rendering = run, task, rendering
        self.yes_no = (rendering.yes, rendering.no) if run.halting.mode == "learned" else ()

    def micro_batches(self, step: int, *, rank: int = 0, workers: int = 1) -> Iterator[MicroBatch]:
        """Yield the forward passes of one worker: its contiguous share of the global batch, in sample order."""
        depth = draw_depth(self.run, step)
        branches = self._branches(step, depth)
        share = self.run.train.batch_size // workers
        size = self.run.prompts_per_pass
        answered = answered_iterations(self.run, depth.iterations)
        extra = extra_negative(self.run, step, depth)
        kept = answered if extra is None else (extra, *answered)
        halt_KBN, halt_weights_KBN = halting_targets(self.run, kept, branches.operations_BN)
        weights_K = np.isin(kept, answered) / (len(answered) * branches.operations_BN.size)
        taught = taught_iterations(self.run, answered, depth.operations)
        taught_K = np.isin(kept, taught)
        reset_RBN = self._reset(step, depth.iterations, branches)
        stretch = draw_factor(self.run, step)
        for start in range(rank * share, (rank + 1) * share, size):
            part = slice(start, min(start + size, (rank + 1) * share))
            asked = Branches(branches.operations_BN[part], branches.boxes_BN[part])
            prompts = self._prompts(step, part, depth.operations)
            packed = pack(prompts, asked, self.yes_no).stretched(stretch)
            reset = None if reset_RBN is None else torch.from_numpy(reset_RBN[:, part])
            answers_KBN = torch.from_numpy(np.stack([self._answers(prompts, asked, k) for k in kept]))
            targets = Targets(
                answers_KBN,
                _spread(weights_K * ~taught_K, answers_KBN),
                _spread(weights_K * taught_K, answers_KBN),
                torch.from_numpy(halt_KBN[:, part]),
                torch.from_numpy(halt_weights_KBN[:, part]).float(),
            )
            window = self.run.recurrence.gradient_window
            plan = Iterations(count=depth.iterations, keep=kept, window=window, reset=reset)
            asks = lesson(prompts, asked, kept, taught, step_size=self.run.recurrence.step_size, stretch=stretch)
            yield MicroBatch(depth, packed, plan, targets, asks)

    def _branches(self, step: int, depth: StepDepth) -> Branches:
        lengths_BP = draw_lengths(self.run, step, depth)
        if self.run.train.branches.boxes == "one":
            return Branches(lengths_BP, draw_boxes(self.run, step, self.task.boxes))
        return Branches.all_boxes(lengths_BP, self.task.boxes)

    def _prompts(self, step: int, part: slice, operations: int) -> Prompts:
        first = step * self.run.train.batch_size
        indices = np.arange(first + part.start, first + part.stop)
        drawn = examples(self.task, seed=self.run.seed, split=Split.TRAIN, indices=indices, depth=operations)
        return self.rendering.render(drawn)

    def _answers(self, prompts: Prompts, asked: Branches, iteration: int) -> np.ndarray:
        """Answer targets (B, N) at one iteration: progress after c·k operations, or the final answer."""
        completed = self.run.recurrence.step_size * iteration if self.run.objective == "progress" else np.iinfo(int).max
        return asked.targets(prompts, completed)

    def _reset(self, step: int, iterations: int, branches: Branches) -> np.ndarray | None:
        """(R, B, N) booleans of the whole batch: query branches that start an iteration from e."""
        if not self.run.train.query_reset:
            return None
        rng = generator(Stream.RESET, self.run.seed, step)
        return rng.random((iterations, *branches.operations_BN.shape), dtype=np.float32) < self.run.train.query_reset


def halting_targets(run: RunConfig, kept: tuple[int, ...], lengths_BN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Yes (1) or No (0) and its weight, both (K, B, N), for the whole batch.

    Yes iff c·k operations reach the branch's length. The Yes weights add up to 1/2 and so do the No weights; a class
    without a member adds nothing.
    """
    completed_K = run.recurrence.step_size * np.array(kept)
    yes_KBN = completed_K[:, None, None] >= lengths_BN
    n_yes = int(yes_KBN.sum())
    n_no = yes_KBN.size - n_yes
    weights_KBN = np.where(yes_KBN, 0.5 / max(n_yes, 1), 0.5 / max(n_no, 1))
    return yes_KBN.astype(np.int64), weights_KBN


def _spread(weights_K: np.ndarray, like_KBN: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(weights_K).float()[:, None, None].expand(like_KBN.shape)

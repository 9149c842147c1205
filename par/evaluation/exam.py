"""An exam: every box after every depth of frozen prompts, put to a model in passes of one size.

Dimension letters: B prompts, N = D · X branches, D depths, X boxes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from par.config.run import RunConfig
from par.cost.memory import evaluation_prompts
from par.errors import ConfigError
from par.model.looped import LoopedModel
from par.model.packing import Branches, pack
from par.model.reading import OwnIteration, Reading
from par.tasks.groups import GroupTask, parse_task
from par.tasks.prompts import Rendering
from par.tasks.streams import EVALUATION_SEED, Split, examples
from par.training.parallel import workers

DEEPEST = 2**16
"""A prompt of so many operations is as long as a pass is worth trying."""
FARTHEST = 1000.0
"""Largest stretch at which it makes sense to read."""
Heard = Callable[[int], object]
"""Is told after every turn how many prompts have been read."""


@dataclass(frozen=True, kw_only=True)
class Exam:
    """What is asked of which model, and how wide the passes are. Raises ConfigError for what cannot be asked."""

    model: LoopedModel
    task: GroupTask
    rendering: Rendering
    depths: tuple[int, ...]
    """Operations, ascending. One pass over the deepest prompts asks for all of them."""
    step_size: int = 1
    """c: operations completed by one iteration."""
    sequences: int
    """Frozen prompts of the split, from the first one on."""
    batch_size: int
    """Prompts of a pass of each worker."""
    split: Split = Split.TEST
    stretch: float = 1.0
    """s: positions are multiplied by it."""
    mesh: DeviceMesh | None = None
    """The workers that share the prompts; None for one alone."""

    def __post_init__(self) -> None:
        depths = self.depths
        if not depths or list(depths) != sorted(set(depths)) or depths[0] < 1 or depths[-1] > DEEPEST:
            raise ConfigError(f"depths={list(depths)} must ascend within 1 to {DEEPEST}")
        for name in ("step_size", "sequences", "batch_size"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"{name}={value} is below 1: an exam reads at least one")
        if not 0 < self.stretch <= FARTHEST:
            raise ConfigError(f"stretch={self.stretch:g} is not above 0 and at most {FARTHEST:g}: 1 leaves positions")

    @classmethod
    def of(cls, run: RunConfig, model: LoopedModel, rendering: Rendering, mesh: DeviceMesh | None = None) -> Self:
        """What a run evaluates: its depth grid on the frozen test prompts."""
        return cls(
            model=model, task=parse_task(run.task.name), rendering=rendering, depths=run.tested_depths(),
            step_size=run.recurrence.step_size, sequences=run.evaluation.sequences, batch_size=evaluation_prompts(run),
            mesh=mesh,
        )  # fmt: skip

    @property
    def branches(self) -> int:
        """N: questions of one prompt."""
        return len(self.depths) * self.task.boxes

    @property
    def questions(self) -> int:
        """(prompt, box) pairs at each depth."""
        return self.sequences * self.task.boxes

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def completing(self) -> tuple[int, ...]:
        """The iteration that completes each depth, ceil(depth / step_size)."""
        return tuple(ceil(depth / self.step_size) for depth in self.depths)

    def own_reads(self) -> OwnIteration:
        """Read each branch at the iteration that completes it."""
        return OwnIteration([read for read in reversed(self.completing) for _ in range(self.task.boxes)])

    def batches(self, begin: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """Yield how many prompts are read after the turn, and this worker's batch of indices in it, from ``begin`` on.

        The last batches reach beyond ``sequences`` to keep their size; whoever counts leaves those prompts out.
        """
        rank, size = workers(self.mesh)
        for first in range(begin, self.sequences, size * self.batch_size):
            own = first + rank * self.batch_size
            yield min(first + size * self.batch_size, self.sequences), np.arange(own, own + self.batch_size)

    def read(self, indices: np.ndarray, reading: Reading, *, with_halting: bool = False) -> tuple[Tensor, Tensor]:
        """The result of the reading, and the right candidates (B, N), deepest branches first.

        ``with_halting`` makes Yes and No the last two candidates.
        """
        drawn = examples(self.task, seed=EVALUATION_SEED, split=self.split, indices=indices, depth=max(self.depths))
        prompts = self.rendering.render(drawn)
        branches = Branches.all_boxes(np.tile(np.array(self.depths[::-1]), (len(indices), 1)), self.task.boxes)
        extra = (self.rendering.yes, self.rendering.no) if with_halting else ()
        packed = pack(prompts, branches, extra).stretched(self.stretch).to(self.device)
        result = self.model.read(packed, reading)
        return result, torch.from_numpy(branches.targets(prompts, max(self.depths))).to(self.device)

    def by_depth(self, values_BN: Tensor) -> Tensor:
        """The branches (B, N) as (B, D, X), the depths ascending."""
        return values_BN.unflatten(-1, (len(self.depths), self.task.boxes)).flip(1)

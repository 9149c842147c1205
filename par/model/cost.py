"""What a run costs before it is run: parameters, FLOPs, bytes. Loads without torch.

Counts matrix products only (2 FLOPs per multiply-add); a backward pass counts twice its forward pass.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil
from statistics import fmean

from par.config import RunConfig
from par.model.backbones import BACKBONES, Backbone, split_layers
from par.tasks.groups import parse_task
from par.tasks.prompts import open_rendering
from par.tasks.streams import Split, examples
from par.training.depth import answered_iterations, draw_depth
from par.training.halting import extra_negative

BYTES_PER_PARAMETER = 12
"""fp32 weight and the two moments of AdamW, in memory and in a checkpoint."""
SAMPLED_STEPS = 200
"""Steps whose depth is drawn to find the mean cost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """One seed."""

    parameters: int
    train_flops: float
    evaluation_flops: float
    checkpoint_bytes: int

    @property
    def flops(self) -> float:
        """Training and evaluation."""
        return self.train_flops + self.evaluation_flops


def layer_parameters(backbone: Backbone) -> int:
    """Matrix entries of one decoder layer."""
    b = backbone
    attention = b.hidden * b.head_dim * (b.heads + 2 * b.kv_heads) + b.heads * b.head_dim * b.hidden
    return attention + 3 * b.hidden * b.ffn


def seed_cost(run: RunConfig) -> Cost:
    """Estimate the cost of one seed; FLOPs are a mean over the depth schedule.

    The tokens of a text are those of the task's own words, which a pretrained tokenizer splits hardly otherwise.
    """
    backbone = BACKBONES[run.backbone]
    stride = max(1, run.train.steps // SAMPLED_STEPS)
    per_prompt = fmean(_train_prompt(run, step) for step in range(0, run.train.steps, stride))
    layers = backbone.layers * layer_parameters(backbone) + 2 * backbone.hidden**2
    parameters = layers + (backbone.vocabulary or 0) * backbone.hidden * (1 if backbone.tied else 2)
    return Cost(
        parameters=parameters,
        train_flops=run.train.steps * run.train.batch_size * per_prompt,
        evaluation_flops=run.evaluation.sequences * _evaluation_prompt(run),
        checkpoint_bytes=BYTES_PER_PARAMETER * parameters,
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """FLOPs of one forward pass of each part over one prompt of ``tokens``."""

    prelude: float
    iteration: float
    input: float
    """The adapter's product with e, once per pass."""
    coda: float

    @classmethod
    def of(cls, run: RunConfig, tokens: int) -> "_Parts":
        backbone = BACKBONES[run.backbone]
        split = split_layers(backbone.layers, run.recurrence.split)
        layer = tokens * (2 * layer_parameters(backbone) + 4 * tokens * backbone.heads * backbone.head_dim)
        adapter = tokens * 2 * backbone.hidden**2
        return cls(split.prelude * layer, split.core * layer + adapter, adapter, split.coda * layer)


@cache
def _tokens(task: str, rendering: str, operations: int, branches: int, batch: int) -> int:
    """Tokens of a packed prompt, padding included, as a batch of frozen prompts has them."""
    group = parse_task(task)
    drawn = examples(group, seed=0, split=Split.TEST, indices=range(batch), depth=operations)
    prompts = open_rendering(group, rendering, 1).render(drawn)
    return prompts.prefix_BP.shape[1] + branches * prompts.query_BNL.shape[2]


def _train_prompt(run: RunConfig, step: int) -> float:
    depth = draw_depth(run, step)
    boxes = parse_task(run.task.name).boxes if run.train.branches.boxes == "all" else 1
    branches = run.train.branches.prefixes * boxes
    batch = run.train.micro_batch or run.train.batch_size // run.train.workers
    parts = _Parts.of(run, _tokens(run.task.name, run.task.rendering, depth.operations, branches, batch))
    window = min(depth.iterations, run.recurrence.gradient_window)
    reads = len(answered_iterations(run, depth.iterations))
    reads += extra_negative(run, step, depth.iterations) is not None
    with_gradient = parts.prelude + parts.input + window * parts.iteration + reads * parts.coda
    return 3 * with_gradient + (depth.iterations - window) * parts.iteration


def _evaluation_prompt(run: RunConfig) -> float:
    depths = run.tested_depths()
    branches = parse_task(run.task.name).boxes * len(depths)
    parts = _Parts.of(run, _tokens(run.task.name, run.task.rendering, max(depths), branches, run.evaluation.batch_size))
    reads = {ceil(depth / run.recurrence.step_size) for depth in depths}
    known = parts.prelude + parts.input + max(reads) * parts.iteration + len(reads) * parts.coda
    if run.halting.mode == "forced":
        return known
    last = max(reads) + run.halting.m
    return known + parts.prelude + parts.input + last * (parts.iteration + parts.coda)

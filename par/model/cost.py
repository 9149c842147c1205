"""What a run costs before it is run: parameters, FLOPs, bytes. Loads without torch.

Counts matrix products only (2 FLOPs per multiply-add); a backward pass counts twice its forward pass.
"""

from dataclasses import dataclass
from statistics import fmean

from par.config import RunConfig
from par.model.backbones import BACKBONES, Backbone, split_layers
from par.tasks.groups import parse_task
from par.training.depth import answered_iterations, draw_depth

TEXT_TOKENS_PER_OPERATION = 10
TEXT_TOKENS_PER_BOX = 6
TEXT_TOKENS_PER_QUERY = 5
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
    """Estimate the cost of one seed; FLOPs are a mean over the depth schedule."""
    backbone = BACKBONES[run.backbone]
    drawn = [draw_depth(run, step * max(1, run.train.steps // SAMPLED_STEPS)) for step in range(SAMPLED_STEPS)]
    per_prompt = fmean(_train_prompt(run, depth.operations, depth.iterations) for depth in drawn)
    layers = backbone.layers * layer_parameters(backbone) + 2 * backbone.hidden**2
    parameters = layers + (backbone.vocabulary or 0) * backbone.hidden * (1 if backbone.tied else 2)
    return Cost(
        parameters=parameters,
        train_flops=run.train.steps * run.train.batch_size * per_prompt,
        evaluation_flops=run.evaluation.sequences * _evaluation_prompt(run),
        checkpoint_bytes=BYTES_PER_PARAMETER * parameters,
    )


def _tokens(run: RunConfig, operations: int, branches: int) -> int:
    boxes = parse_task(run.task.name).boxes
    if run.task.rendering == "compact":
        return 1 + operations + branches
    prefix = boxes * TEXT_TOKENS_PER_BOX + operations * TEXT_TOKENS_PER_OPERATION
    return prefix + branches * TEXT_TOKENS_PER_QUERY


def _layer_flops(backbone: Backbone, tokens: int) -> float:
    """One decoder layer over one prompt."""
    return tokens * (2 * layer_parameters(backbone) + 4 * tokens * backbone.heads * backbone.head_dim)


def _train_prompt(run: RunConfig, operations: int, iterations: int) -> float:
    backbone, boxes = BACKBONES[run.backbone], parse_task(run.task.name).boxes
    split = split_layers(backbone.layers, run.recurrence.split)
    branches = run.train.branches.prefixes * (boxes if run.train.branches.boxes == "all" else 1)
    tokens = _tokens(run, operations, branches)
    layer = _layer_flops(backbone, tokens)
    iteration = split.core * layer + tokens * 2 * backbone.hidden**2
    window = min(iterations, run.recurrence.gradient_window)
    read = len(answered_iterations(run, iterations)) * split.coda * layer
    return 3 * (split.prelude * layer + window * iteration + read) + (iterations - window) * iteration


def _evaluation_prompt(run: RunConfig) -> float:
    backbone, boxes = BACKBONES[run.backbone], parse_task(run.task.name).boxes
    split = split_layers(backbone.layers, run.recurrence.split)
    depths = (*run.short_grid(), *run.depth_grid())
    tokens = _tokens(run, max(depths), boxes * len(depths))
    layer = _layer_flops(backbone, tokens)
    iterations = -(-max(depths) // run.recurrence.step_size)
    iteration = split.core * layer + tokens * 2 * backbone.hidden**2
    return split.prelude * layer + iterations * iteration + len(depths) * split.coda * layer

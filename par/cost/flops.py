"""What a run costs before it is run: FLOPs of a step and of a seed. Loads without torch.

Counts matrix products only (2 FLOPs per multiply-add), those of attention for all pairs of tokens that a kernel is
given, hidden ones included, as FLOP counters do. A backward pass counts twice its forward pass: the scores that fused
attention computes again there are not counted, what activation checkpointing computes again is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean

from par.config.backbones import BACKBONES, Backbone, split_layers
from par.config.run import RunConfig
from par.cost.memory import FP32, Memory, evaluation_prompts, memory
from par.cost.sizes import (
    Tokens,
    adapter_entries,
    completing_iterations,
    key_entries,
    layer_entries,
    parameters,
    query_entries,
    recorded_iterations,
    tested_tokens,
    trained_tokens,
)
from par.tasks.groups import parse_task
from par.training.draws import StepDepth, answered_iterations, draw_depth, extra_negative, taught_iterations

SAMPLED_STEPS = 200
"""Steps whose depth is drawn to find the mean cost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """One seed."""

    parameters: int
    train_flops: float
    evaluation_flops: float
    checkpoint_bytes: int
    memory: Memory
    """What each worker needs of its memory."""

    @property
    def flops(self) -> float:
        """Training and evaluation."""
        return self.train_flops + self.evaluation_flops

    @property
    def weights_bytes(self) -> int:
        """Of the model alone, without what training needs."""
        return FP32 * self.parameters


def seed_cost(run: RunConfig) -> Cost:
    """Estimate the cost of one seed; FLOPs are a mean over the depth schedule."""
    stride = max(1, run.train.steps // SAMPLED_STEPS)
    per_step = fmean(step_flops(run, step) for step in range(0, run.train.steps, stride))
    needed = memory(run)
    return Cost(
        parameters=parameters(run),
        train_flops=run.train.steps * per_step,
        evaluation_flops=_evaluation(run),
        checkpoint_bytes=run.compute.workers * (needed.parameters + needed.teacher + needed.optimizer),
        memory=needed,
    )


def step_flops(run: RunConfig, step: int, depth: StepDepth | None = None) -> float:
    """FLOPs of one optimizer step, all prompts of all workers; cheap once prompts of its depth have been measured.

    ``depth`` is what was drawn for the step; where it is not given it is drawn.
    """
    depth = depth or draw_depth(run, step)
    reads = len(answered_iterations(run, depth.iterations))
    reads += extra_negative(run, step, depth) is not None
    trained = _train_prompt(run, depth.operations, depth.iterations, reads)
    return run.train.batch_size * (trained + _lesson_prompt(run, depth))


def tokens_per_s(run: RunConfig, speeds: Sequence[tuple[int, float]]) -> float | None:
    """Tokens of the passes per second, branches and padding included, a teacher's left out; None without a record.

    ``speeds`` has of each training record its last step, and the steps per second since the record before.
    """
    if not speeds:
        return None
    steps = [step for step, _ in speeds]
    tokens = sum(trained_tokens(run, draw_depth(run, step).operations).total for step in range(steps[-1]))
    seconds = sum((last - before) / speed for before, (last, speed) in zip([0, *steps], speeds, strict=False))
    return run.train.batch_size * tokens / seconds


@dataclass(frozen=True, slots=True)
class _Parts:
    """FLOPs of one forward pass of each part over one prompt."""

    prelude: float
    iteration: float
    input: float
    """The adapter's product with e, once per pass."""
    coda: float
    """The coda without what nobody reads."""
    unread: float
    """Projections in the coda whose result nobody reads: they have no backward pass."""

    @classmethod
    def of(cls, run: RunConfig, tokens: Tokens) -> "_Parts":
        backbone = BACKBONES[run.backbone]
        split = split_layers(backbone.layers, run.recurrence.split)
        layer, adapter = _layer(backbone, tokens), tokens.total * adapter_entries(backbone)
        unread = 2 * (tokens.total * query_entries(backbone) + tokens.branches * key_entries(backbone))
        coda = (split.coda - 1) * layer + _answer_layer(backbone, tokens)
        return cls(split.prelude * layer, split.core * layer + adapter, adapter, coda, unread)


def _layer(backbone: Backbone, tokens: Tokens) -> float:
    """The prefix attends to itself, the branches to all."""
    pairs = tokens.prefix**2 + tokens.asked * tokens.total
    return 2 * tokens.total * layer_entries(backbone) + _attention(backbone, pairs)


def _answer_layer(backbone: Backbone, tokens: Tokens) -> float:
    """Keys and values of all tokens, all else of the answer rows only."""
    rows = layer_entries(backbone) - key_entries(backbone)
    products = 2 * (tokens.total * key_entries(backbone) + tokens.branches * rows)
    return products + _attention(backbone, tokens.branches * tokens.total)


def _attention(backbone: Backbone, pairs: int) -> float:
    return 4 * pairs * backbone.heads * backbone.head_dim


def _train_prompt(run: RunConfig, operations: int, iterations: int, reads: int) -> float:
    parts = _Parts.of(run, trained_tokens(run, operations))
    window = min(iterations, run.recurrence.gradient_window)
    with_gradient = parts.prelude + parts.input + window * parts.iteration + reads * parts.coda
    again = window if run.compute.activation_checkpointing else 0
    return 3 * with_gradient + (iterations - window + again) * parts.iteration + reads * parts.unread


def _lesson_prompt(run: RunConfig, depth: StepDepth) -> float:
    """The teacher's pass over one prompt of a step."""
    taught = taught_iterations(run, answered_iterations(run, depth.iterations), depth.operations)
    tokens = trained_tokens(run, depth.operations)
    return _own_reads(run, tokens, dict.fromkeys(taught, tokens.branches)) if taught else 0.0


def _own_reads(run: RunConfig, tokens: Tokens, asked: Mapping[int, int]) -> float:
    """A pass without gradient that reads so many branches after each iteration, whereupon they leave."""
    whole = _Parts.of(run, tokens.of(sum(asked.values())))
    flops, done = whole.prelude + whole.input, 0
    for read in sorted(asked):
        staying = sum(branches for own, branches in asked.items() if own >= read)
        answered = _Parts.of(run, tokens.of(asked[read]))
        flops += (read - done) * _Parts.of(run, tokens.of(staying)).iteration + answered.coda + answered.unread
        done = read
    return flops


def _evaluation(run: RunConfig) -> float:
    """The depth curve, where branches leave once they are read; for learned halting the traces of two splits and the
    halting curve, at most: as if no question halted and every iteration had to be read.
    """
    tokens, boxes = tested_tokens(run), parse_task(run.task.name).boxes
    whole = _Parts.of(run, tokens)
    reads = [ceil(depth / run.recurrence.step_size) for depth in run.tested_depths()]
    tested = _whole_turns(run, run.evaluation.sequences)
    flops = tested * _own_reads(run, tokens, {read: boxes * reads.count(read) for read in reads})
    if run.halting.mode == "forced":
        return flops
    first, again = whole.prelude + whole.input, whole.iteration + whole.coda + whole.unread
    halting = first + (completing_iterations(run) + run.halting.m) * again
    trace = first + recorded_iterations(run) * again
    return flops + tested * halting + 2 * _whole_turns(run, run.halting.trace_sequences) * trace


def _whole_turns(run: RunConfig, prompts: int) -> int:
    """Prompts that all workers read: whole batches, equally many each."""
    turn = evaluation_prompts(run) * run.compute.workers
    return ceil(prompts / turn) * turn

"""What a run takes of each worker's memory, in bytes, before it is run. Loads without torch.

Estimates from shapes: what allocators, libraries and the buffers of kernels add is left out, and so are the weights of
norms and biases.
"""

from dataclasses import dataclass
from math import ceil

from par.config.backbones import BACKBONES, Backbone, split_layers
from par.config.run import RunConfig
from par.cost.sizes import (
    Tokens,
    adapter_entries,
    layer_entries,
    parameters,
    recorded_iterations,
    table_entries,
    tested_tokens,
    trained_tokens,
)
from par.tasks.groups import parse_task
from par.training.draws import answered_iterations, taught_iterations

FP32 = 4
ADAMW, MUON = 2 * FP32, FP32
"""Optimizer state of a parameter: two moments, or one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes of one worker."""

    parameters: int
    """Its share of the fp32 weights."""
    gradients: int
    """Its share; all of them where several passes add up before the workers reduce them."""
    optimizer: int
    """Its share of the optimizer's state."""
    teacher: int
    """Its share of the fp32 weights of the teacher, where there is one."""
    gathered: int
    """Whole weights in the type of the computation, at most."""
    activations: int
    """What is kept for the backward pass of one training pass, and the teacher's pass beside it, at most."""
    evaluation: int
    """Activations of one pass of the evaluation, at most."""

    @property
    def state(self) -> int:
        """What lies there throughout training."""
        return self.parameters + self.gradients + self.optimizer + self.teacher

    @property
    def total(self) -> int:
        """The peak, in training or in evaluation."""
        return self.state + self.gathered + max(self.activations, self.evaluation)


def memory(run: RunConfig) -> Memory:
    """What each worker needs for one seed."""
    entries, workers, d_train = parameters(run), run.compute.workers, run.task.train_depth
    one_pass = run.prompts_per_pass * workers == run.train.batch_size
    return Memory(
        parameters=ceil(FP32 * entries / workers),
        gradients=ceil(FP32 * entries / (workers if one_pass else 1)),
        optimizer=ceil(optimizer_bytes(run) / workers),
        teacher=ceil(FP32 * entries / workers) if run.objective == "prefix_distill" else 0,
        gathered=_gathered(run),
        activations=run.prompts_per_pass * max(training_prompt(run, d_train, R) for R in _iterations(run)),
        evaluation=evaluation_prompts(run) * evaluation_prompt(run),
    )


def optimizer_bytes(run: RunConfig) -> int:
    """State of the optimizers of all workers together."""
    backbone = BACKBONES[run.backbone]
    matrices = backbone.layers * layer_entries(backbone) + adapter_entries(backbone)
    with_muon = matrices if run.optim.matrices == "muon" else 0
    return MUON * with_muon + ADAMW * (parameters(run) - with_muon)


def _gathered(run: RunConfig) -> int:
    """The recurrence, or embedding and head, which FSDP2 gathers as one unit.

    A single worker in fp32 uses its own weights.
    """
    if run.compute.workers == 1 and run.train.precision == "fp32":
        return 0
    backbone = BACKBONES[run.backbone]
    core = split_layers(backbone.layers, run.recurrence.split).core
    return _width(run) * max(core * layer_entries(backbone) + adapter_entries(backbone), table_entries(run))


def _width(run: RunConfig) -> int:
    """Bytes of a number in the type of the computation."""
    return {"fp32": FP32, "bf16": 2}[run.train.precision]


def _iterations(run: RunConfig) -> tuple[int, ...]:
    """The R that may take most: the largest, which of hold has no bound and is above the gradient window; and that of
    most lessons, which runs no further than the answer or the window.
    """
    schedule, window = run.schedule, run.recurrence.gradient_window
    if schedule.kind == "forced":
        due = ceil(run.task.train_depth / run.recurrence.step_size)
        return due, due + schedule.overrun
    return (window, window + 1) if schedule.kind == "hold" else (int(schedule.iterations),)


def training_prompt(run: RunConfig, operations: int, iterations: int) -> int:
    """What one prompt of ``operations`` keeps for the backward pass of ``iterations``, at most.

    The prelude, the iterations of the window, and the coda on the stacked states that are read; beside all of this the
    teacher reads. With checkpointing an iteration keeps its own input and output alone, and is computed again when
    the coda's part is freed.
    """
    backbone, width, tokens = BACKBONES[run.backbone], _width(run), trained_tokens(run, operations)
    split = split_layers(backbone.layers, run.recurrence.split)
    window = min(iterations, run.recurrence.gradient_window)
    reads = len(answered_iterations(run, iterations)) + _extra_reads(run, operations, iterations)
    layer, state = _kept_by_layer(backbone, width, tokens.total), width * tokens.total * backbone.hidden
    mask, tables = width * tokens.asked * tokens.total, 2 * width * tokens.total * backbone.head_dim
    ends = split.prelude * layer + state + mask + tables
    boundaries = window * tokens.total * backbone.hidden * (width + FP32)
    coda = (split.coda - 1) * layer + (mask if split.coda > 1 else 0) + tables
    coda = reads * (coda + _kept_by_answer_layer(backbone, width, tokens)) + _lesson_prompt(run, operations, iterations)
    if run.compute.activation_checkpointing:
        return ends + boundaries + max(split.core * layer, coda)
    return ends + boundaries + window * split.core * layer + coda


def _extra_reads(run: RunConfig, operations: int, iterations: int) -> int:
    """1 where learned halting reads an iteration before the window."""
    before = iterations > run.recurrence.gradient_window and operations > run.recurrence.step_size
    return int(run.halting.mode == "learned" and before)


def _lesson_prompt(run: RunConfig, operations: int, iterations: int) -> int:
    """What the teacher's pass over one prompt holds."""
    taught = taught_iterations(run, answered_iterations(run, iterations), operations)
    tokens = trained_tokens(run, operations)
    return _held_by_reading(run, tokens.of(len(taught) * tokens.branches)) if taught else 0


def _kept_by_layer(backbone: Backbone, width: int, rows: int) -> int:
    """Two norms (their input in fp32, normalised, scaled); q, the output of attention twice, and per head its
    normaliser; keys and values; of the MLP gate, its activation, up and their product.
    """
    b = backbone
    queries = b.heads * b.head_dim
    norms = 2 * b.hidden * (FP32 + 2 * width)
    attention = 3 * width * queries + FP32 * b.heads
    normed = queries * (FP32 + width) if b.family == "qwen3" else 0
    return rows * (norms + attention + normed + 4 * width * b.ffn) + _kept_keys(b, width, rows)


def _kept_keys(backbone: Backbone, width: int, rows: int) -> int:
    """Keys and values, of all query heads where these share them, and the norm of keys in the family that has it."""
    b = backbone
    keys = b.kv_heads * b.head_dim
    normed = keys * (FP32 + width) if b.family == "qwen3" else 0
    repeated = 2 * width * b.heads * b.head_dim if b.heads > b.kv_heads else 0
    return rows * (2 * width * keys + normed + repeated)


def _kept_by_answer_layer(backbone: Backbone, width: int, tokens: Tokens) -> int:
    """The norm, keys and values of all tokens; a whole layer, a mask and the final norm of the answer rows."""
    norm = tokens.total * backbone.hidden * (FP32 + 2 * width)
    rows = _kept_by_layer(backbone, width, tokens.branches) - _kept_keys(backbone, width, tokens.branches)
    mask, final = width * tokens.branches * tokens.total, tokens.branches * backbone.hidden * (2 * FP32 + width)
    return norm + _kept_keys(backbone, width, tokens.total) + rows + mask + final


def evaluation_prompts(run: RunConfig) -> int:
    """Prompts of one forward pass of the evaluation: a power of two where less than asked for fits into the memory.

    A pure function of the settings: a test set is cut into the same passes on every machine. At least 1.
    """
    fitting = int(run.evaluation.memory_gib * 2**30) // evaluation_prompt(run)
    if fitting >= run.evaluation.batch_size:
        return run.evaluation.batch_size
    return 1 << max(1, fitting).bit_length() - 1


def evaluation_prompt(run: RunConfig) -> int:
    """What one prompt of the evaluation holds, at most.

    Learned halting keeps the states of a window, a trace what was read.
    """
    b, width, tokens = BACKBONES[run.backbone], _width(run), tested_tokens(run)
    held = _held_by_reading(run, tokens)
    if run.halting.mode == "learned":
        window = run.halting.m * width * tokens.total * b.hidden
        trace = recorded_iterations(run) * FP32 * tokens.branches * (parse_task(run.task.name).boxes + 2)
        held += max(window, trace)
    return held


def _held_by_reading(run: RunConfig, tokens: Tokens) -> int:
    """What a pass without gradient over one prompt holds, at most: only the layer that runs, and what is read.

    e, rotary tables and mask are held throughout; beside them lie the product of e, the state, a layer's input and its
    residual, and the widest of MLP and attention.
    """
    b, width = BACKBONES[run.backbone], _width(run)
    queries, keys = b.heads * b.head_dim, b.kv_heads * b.head_dim
    held = width * tokens.total * (b.hidden + 2 * b.head_dim + tokens.asked)
    widest = width * tokens.total * max(5 * b.hidden + 3 * b.ffn, 4 * b.hidden + 5 * queries + 2 * keys)
    return held + widest + width * tokens.branches * b.hidden

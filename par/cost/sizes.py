"""What the matrices and the packed prompts of a run measure. Loads without torch."""

from dataclasses import dataclass, replace
from functools import cache
from math import ceil

from par.config.backbones import BACKBONES, Backbone
from par.config.run import RunConfig
from par.tasks.groups import parse_task
from par.tasks.prompts import Rendering, open_rendering
from par.tasks.streams import Split, examples

LONGEST_WINDOW = 32
"""Largest m of the halting rules among which the best is sought after training."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One packed prompt, padding included."""

    prefix: int
    """P."""
    query: int
    """L."""
    branches: int
    """N."""

    @property
    def asked(self) -> int:
        """Q, tokens of all branches."""
        return self.branches * self.query

    @property
    def total(self) -> int:
        """T."""
        return self.prefix + self.asked

    def of(self, branches: int) -> "Tokens":
        """The prompt with so many of its branches."""
        return replace(self, branches=branches)


def query_entries(backbone: Backbone) -> int:
    """Matrix entries of the query and output projections of one decoder layer."""
    return 2 * backbone.hidden * backbone.heads * backbone.head_dim


def key_entries(backbone: Backbone) -> int:
    """Matrix entries of the key and value projections of one decoder layer."""
    return 2 * backbone.hidden * backbone.kv_heads * backbone.head_dim


def layer_entries(backbone: Backbone) -> int:
    """Matrix entries of one decoder layer."""
    return query_entries(backbone) + key_entries(backbone) + 3 * backbone.hidden * backbone.ffn


def adapter_entries(backbone: Backbone) -> int:
    """Matrix entries of the adapter."""
    return 2 * backbone.hidden**2


def table_entries(run: RunConfig) -> int:
    """Entries of the embedding, and of the output matrix where it is another one."""
    backbone = BACKBONES[run.backbone]
    vocabulary = backbone.vocabulary or _rendering(run.task.name, run.task.rendering).vocabulary_size
    return vocabulary * backbone.hidden * (1 if backbone.tied else 2)


def parameters(run: RunConfig) -> int:
    """Entries of all matrices; norms and biases are left out."""
    backbone = BACKBONES[run.backbone]
    return backbone.layers * layer_entries(backbone) + adapter_entries(backbone) + table_entries(run)


def trained_tokens(run: RunConfig, operations: int) -> Tokens:
    """A prompt of ``operations`` in training."""
    boxes = parse_task(run.task.name).boxes if run.train.branches.boxes == "all" else 1
    prefix, query = _lengths(run.task.name, run.task.rendering, operations, run.prompts_per_pass)
    return Tokens(prefix, query, run.train.branches.prefixes * boxes)


def tested_tokens(run: RunConfig) -> Tokens:
    """A prompt of the evaluation, which asks for every box at every tested depth."""
    depths = run.tested_depths()
    prefix, query = _lengths(run.task.name, run.task.rendering, max(depths), run.evaluation.batch_size)
    return Tokens(prefix, query, parse_task(run.task.name).boxes * len(depths))


def completing_iterations(run: RunConfig) -> int:
    """ceil(deepest / c): iterations that complete the deepest tested prompt."""
    return ceil(max(run.tested_depths()) / run.recurrence.step_size)


def recorded_iterations(run: RunConfig) -> int:
    """Iterations of a trace: each rule of the search, and the configured one, can fire at every tested depth."""
    return completing_iterations(run) + max(run.halting.m, LONGEST_WINDOW)


@cache
def _rendering(task: str, rendering: str) -> Rendering:
    """With the task's own words, which a pretrained tokenizer splits hardly otherwise."""
    return open_rendering(parse_task(task), rendering, 1)


@cache
def _lengths(task: str, rendering: str, operations: int, batch: int) -> tuple[int, int]:
    """P and L, as a batch of frozen prompts has them."""
    drawn = examples(parse_task(task), seed=0, split=Split.TEST, indices=range(batch), depth=operations)
    prompts = _rendering(task, rendering).render(drawn)
    return prompts.prefix_BP.shape[1], prompts.query_BNL.shape[2]

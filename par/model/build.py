"""From settings to the task's rendering and the looped model."""

from par.config.backbones import BACKBONES
from par.config.run import RunConfig
from par.model.looped import LoopedModel
from par.model.weights import pretrained_parent, pretrained_tokenizer, random_parent
from par.tasks.groups import parse_task
from par.tasks.prompts import Rendering, open_rendering


def build_rendering(run: RunConfig) -> Rendering:
    """The wording of the task, in the backbone's tokens. Raises DataError if an answer is not one token."""
    source = BACKBONES[run.backbone].source
    tokenizer = None if source is None else pretrained_tokenizer(source)
    return open_rendering(parse_task(run.task.name), run.task.rendering, run.task.position_spacing, tokenizer)


def build_model(run: RunConfig, rendering: Rendering, *, seed: int) -> LoopedModel:
    """The looped model with pretrained or random fp32 weights; ``seed`` decides random ones.

    ``compute.compile`` is left to the caller: sharding comes before it.
    """
    backbone = BACKBONES[run.backbone]
    if backbone.source is None:
        parent = random_parent(backbone, rendering.vocabulary_size, seed)
    else:
        parent = pretrained_parent(backbone.source)
    return LoopedModel(
        parent,
        split=run.recurrence.split,
        anchor=run.recurrence.anchor == "first",
        adapter_init=run.recurrence.adapter_init,
        kernel=run.compute.attention,
        recompute=run.compute.activation_checkpointing,
    )

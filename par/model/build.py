"""From settings to the task's rendering and the looped model."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from par.config.backbones import BACKBONES, Backbone
from par.config.run import RunConfig
from par.errors import DataError
from par.model.looped import LoopedModel
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


def random_parent(backbone: Backbone, vocabulary: int, seed: int) -> PreTrainedModel:
    """Build the decoder with random fp32 weights, a pure function of (backbone, vocabulary, seed)."""
    config = AutoConfig.for_model(
        backbone.family,
        vocab_size=backbone.vocabulary or vocabulary,
        hidden_size=backbone.hidden,
        num_hidden_layers=backbone.layers,
        num_attention_heads=backbone.heads,
        num_key_value_heads=backbone.kv_heads,
        head_dim=backbone.head_dim,
        intermediate_size=backbone.ffn,
        tie_word_embeddings=backbone.tied,
        initializer_range=backbone.initializer_range,
        rope_parameters={"rope_type": "default", "rope_theta": backbone.rope_theta},
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parent = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        if backbone.embedding_std is not None:
            parent.get_input_embeddings().weight.mul_(backbone.embedding_std / backbone.initializer_range)
        for name, weight in parent.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                weight.fill_(backbone.qk_norm_gain)
    return parent


def pretrained_parent(source: str | Path) -> PreTrainedModel:
    """Load fp32 master weights from a folder or model repository.

    Raises DataError if the files cannot be read or lack a tensor: a missing one would be random without a word.
    """
    _require_folder(source)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below
        )
    except (OSError, ValueError, SafetensorError) as fault:
        raise DataError(f"backbone weights at {source}: {fault}") from fault
    parent, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise DataError(f"backbone weights at {source} lack {len(missing)} tensors: {', '.join(missing[:8])}")
    if mismatched := sorted(str(entry[0]) for entry in report["mismatched_keys"]):
        raise DataError(
            f"backbone weights at {source} have {len(mismatched)} of another shape: {', '.join(mismatched[:8])}"
        )
    return parent


def pretrained_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer that belongs to the weights at ``source``. Raises DataError if there is none."""
    _require_folder(source)
    try:
        return AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as fault:
        raise DataError(f"tokenizer at {source}: {fault}") from fault


def _require_folder(source: str | Path) -> None:
    """Raise DataError for a path that leads nowhere: the model library would take it for a repository's name."""
    if Path(source).is_absolute() and not Path(source).is_dir():
        raise DataError(f"backbone weights at {source}: the folder does not exist")

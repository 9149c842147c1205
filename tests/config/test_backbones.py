"""Where a decoder is cut, and which decoders are refused."""

from dataclasses import replace

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from par.config.backbones import BACKBONES, Split, split_layers
from par.errors import ConfigError
from par.model.looped import LoopedModel


@pytest.mark.parametrize(("layers", "parts"), [(3, "1/1/1"), (24, "8/8/8"), (28, "9/10/9"), (36, "12/12/12")])
def test_a_decoder_is_cut_in_thirds(layers, parts):
    """Prelude and coda have a third of the layers each, the core the rest."""
    assert str(split_layers(layers)) == parts


def test_every_layer_is_in_one_part():
    """The parts add up, and the core is the largest by at most two layers."""
    for layers in range(3, 100):
        split = split_layers(layers)
        assert split.prelude + split.core + split.coda == layers
        assert split.prelude == split.coda <= split.core <= split.prelude + 2


def test_a_wanted_split_overrides_the_rule():
    """Any three positive numbers that add up are taken as they are."""
    assert split_layers(24, (4, 12, 8)) == Split(4, 12, 8)


@pytest.mark.parametrize(
    ("layers", "wanted"), [(24, (8, 8, 7)), (24, (0, 16, 8)), (24, (12, 12, 0)), (24, (-4, 20, 8)), (2, None)]
)
def test_a_split_with_an_empty_part_is_refused(layers, wanted):
    """Parts that are empty or do not add up are a ConfigError with field, value and limit."""
    shown = "0/2/0" if wanted is None else "/".join(map(str, wanted))
    with pytest.raises(ConfigError, match=rf"recurrence\.split={shown} must .* add up to {layers} layers"):
        split_layers(layers, wanted)


def test_an_embedding_with_a_spread_of_its_own_is_untied():
    """A tied matrix is embedding and head in one, so it has no spread that is the embedding's alone."""
    assert replace(BACKBONES["tiny-qwen2-untied"], embedding_std=1.0).embedding_std == 1
    with pytest.raises(ConfigError, match=r"embedding_std=1\.0 of backbone tiny-qwen2 .* tied=False"):
        replace(BACKBONES["tiny-qwen2"], embedding_std=1.0)


def test_names_and_shapes_agree():
    """A backbone is registered under its own name, can be cut, and its query heads share the key heads evenly."""
    for name, backbone in BACKBONES.items():
        assert backbone.name == name
        assert split_layers(backbone.layers)
        assert backbone.heads % backbone.kv_heads == 0
        assert backbone.source is None or backbone.vocabulary is not None


SLIDING = {
    "qwen2": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "qwen3": {"layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 4},
    "mistral": {"sliding_window": 4},
}


@pytest.mark.parametrize("family", SLIDING)
def test_sliding_windows_are_refused(family):
    """A parent with a layer that does not see the whole prefix is a ConfigError, however its config says so."""
    config = AutoConfig.for_model(
        family, vocab_size=8, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=8, head_dim=4, **SLIDING[family],
    )  # fmt: skip
    with pytest.raises(ConfigError, match="only full attention can be looped"):
        LoopedModel(AutoModelForCausalLM.from_config(config))

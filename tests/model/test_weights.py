"""Weights are all there and all as saved, or there is a DataError that says what is missing."""

import json
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.pre_tokenizers import Split as Splitter
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from par.config.backbones import BACKBONES, Backbone
from par.errors import DataError
from par.model.build import pretrained_parent, pretrained_tokenizer, random_parent
from par.tasks.groups import parse_task
from par.tasks.streams import Split, examples
from par.tasks.wording import NO, NOUNS, WORD_PATTERN, YES, contains, operation_sentences, query
from par.testing import tiny_run
from par.training.loop import Trainer

LAYOUTS = {"one file": "1GB", "sharded": "20KB"}
"""How large a weights file may become."""
VOCABULARY = 60


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No test here reaches for a model hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture
def saved(parent: Callable[..., PreTrainedModel], tmp_path: Path) -> Callable[..., Path]:
    """Save the random Qwen2 parent in a folder of its own."""

    def save(*, tied: bool = True, layout: str = "one file", dtype: torch.dtype = torch.float32) -> Path:
        parent("qwen2", VOCABULARY, tied=tied).to(dtype).save_pretrained(tmp_path, max_shard_size=LAYOUTS[layout])
        assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (layout == "sharded")
        return tmp_path

    return save


def drop(folder: Path, tensor: str) -> None:
    """Take one tensor out of the files and, where there is one, out of the index."""
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        if tensors.pop(tensor, None) is not None:
            save_file(tensors, path, metadata={"format": "pt"})
    for path in folder.glob("*.index.json"):
        index = json.loads(path.read_text())
        del index["weight_map"][tensor]
        path.write_text(json.dumps(index))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_saved_weights_come_back_bit_for_bit(saved, parent, tied, layout):
    """A folder of one file or of shards, tied or not, loads to the bits that were saved, in fp32."""
    loaded = pretrained_parent(saved(tied=tied, layout=layout))
    original = dict(parent("qwen2", VOCABULARY, tied=tied).named_parameters())
    assert dict(loaded.named_parameters()).keys() == original.keys()
    for name, weight in loaded.named_parameters():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, original[name]), name
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == tied


def test_bfloat16_weights_become_fp32_masters(saved, parent):
    """A checkpoint in bfloat16 loads as fp32 parameters with the saved values."""
    loaded = pretrained_parent(saved(dtype=torch.bfloat16))
    for name, weight in parent("qwen2", VOCABULARY).named_parameters():
        found = loaded.get_parameter(name)
        assert found.dtype == torch.float32
        assert torch.equal(found, weight.bfloat16().float())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tensor", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight", "lm_head.weight"])
def test_a_missing_tensor_is_named(saved, layout, tensor):
    """Weights that lack a tensor, an untied head included, are a DataError with its name: it would be random."""
    folder = saved(tied=False, layout=layout)
    drop(folder, tensor)
    with pytest.raises(DataError, match=f"lack 1 tensors: {tensor}"):
        pretrained_parent(folder)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("damage", ["cut short", "absent", "empty"])
def test_a_damaged_file_is_a_data_error(saved, layout, damage):
    """A weights file that is cut short, absent or empty is a DataError with the folder, never weights."""
    folder = saved(layout=layout)
    path = max(folder.glob("*.safetensors"))
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-100] if damage == "cut short" else b"")
    with pytest.raises(DataError, match=f"backbone weights at {folder}"):
        pretrained_parent(folder)


def test_weights_of_another_shape_are_a_data_error(saved):
    """Weights that do not fit the config are a DataError, never cut or drawn anew."""
    folder = saved()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 32}))
    with pytest.raises(DataError, match=f"backbone weights at {folder}"):
        pretrained_parent(folder)


@pytest.mark.parametrize("read", [pretrained_parent, pretrained_tokenizer])
def test_a_folder_that_is_not_there_is_a_data_error(tmp_path, read):
    """Without the folder there is a DataError of one line with its path, and no word of a model hub."""
    with pytest.raises(DataError, match=str(tmp_path / "absent")) as caught:
        read(tmp_path / "absent")
    assert "\n" not in str(caught.value)
    assert "hub" not in str(caught.value).lower()


NESTED = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
ON_TOP = {"rope_theta": 1e6}


@pytest.mark.parametrize("base", [NESTED, ON_TOP], ids=["nested", "on top"])
def test_the_rotary_base_is_read_from_both_config_layouts(saved, base):
    """A base of 1e6 gives its own cos and sin, whether the config nests it or, as before, has it on top."""
    folder = saved()
    config = json.loads((folder / "config.json").read_text())
    del config["rope_parameters"]
    (folder / "config.json").write_text(json.dumps(config | base))
    cos, sin = pretrained_parent(folder).model.rotary_emb(torch.zeros(1), torch.tensor([[7.0]]))
    angles = 7 / 1e6 ** (torch.arange(0, 16, 2).double() / 16)
    torch.testing.assert_close(cos[0, 0, :8].double(), angles.cos(), atol=1e-6, rtol=0)
    torch.testing.assert_close(sin[0, 0, :8].double(), angles.sin(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_random_weights_are_a_function_of_the_seed(family):
    """The same seed gives the same bits and leaves the global generator alone; another seed gives others."""
    torch.manual_seed(5)
    first = random_parent(BACKBONES[f"tiny-{family}"], VOCABULARY, seed=1).state_dict()
    drawn = torch.rand(1)
    again = random_parent(BACKBONES[f"tiny-{family}"], VOCABULARY, seed=1).state_dict()
    other = random_parent(BACKBONES[f"tiny-{family}"], VOCABULARY, seed=2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))


def test_the_embedding_has_the_backbones_spread():
    """Rows of a random embedding spread as the backbone asks for, all other matrices as its initializer does."""
    backbone = BACKBONES["mini-qwen3"]
    parent = random_parent(backbone, 1000, seed=0)
    for name, weight in parent.named_parameters():
        if weight.dim() == 2:
            wanted = backbone.embedding_std if name.endswith("embed_tokens.weight") else backbone.initializer_range
            assert weight.std().item() == pytest.approx(wanted, rel=0.05)


def test_the_gain_of_the_key_norms_is_the_backbones():
    """Query and key norms of a random parent begin at the gain that the backbone asks for, all other norms at 1."""
    parent = random_parent(BACKBONES["mini-qwen3"], VOCABULARY, seed=0)
    for name, gain in parent.named_parameters():
        if "norm" in name:
            wanted = 1.6 if name.endswith(("q_norm.weight", "k_norm.weight")) else 1.0
            torch.testing.assert_close(gain.detach(), torch.full_like(gain, wanted))


def word_level(pieces: list[str]) -> Tokenizer:
    """One token for every word and mark of the wording."""
    splitter = Splitter(Regex(WORD_PATTERN), behavior="isolated")
    words = sorted({word for piece in pieces for word, _ in splitter.pre_tokenize_str(piece)})
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(["<unk>", *words])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = splitter
    return tokenizer


def byte_level(pieces: list[str]) -> Tokenizer:
    """Byte pairs, merged until every word of the wording is one token: what Qwen uses."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=700, min_frequency=1, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(pieces, trainer)
    return tokenizer


@pytest.mark.parametrize(("family", "build"), [("llama", word_level), ("qwen2", byte_level)])
def test_a_folder_with_its_own_tokenizer_trains(tmp_path, parent, monkeypatch, family, build):
    """A backbone whose source is a local folder trains on text in the folder's tokens, from the folder's weights."""
    task = parse_task("swap-s3")
    starts = [contains(box, noun) for box in range(task.boxes) for noun in range(len(NOUNS))]
    queries = [query(box) for box in range(task.boxes)]
    tokenizer = build([*starts, *(f" {start}" for start in starts), *operation_sentences(task), *queries, YES, NO])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    vocabulary = tokenizer.get_vocab_size() + 7
    original = parent(family, vocabulary)
    original.save_pretrained(tmp_path)
    local = Backbone(
        name="local", family=family, layers=3, hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=64,
        vocabulary=vocabulary, source=str(tmp_path),
    )  # fmt: skip
    monkeypatch.setitem(BACKBONES, "local", local)
    trainer = Trainer(tiny_run(backbone="local", task__rendering="text", train__steps=3))
    drawn = examples(task, seed=0, split=Split.TRAIN, indices=[0], depth=2)
    text = trainer.rendering.text(drawn)[0]
    assert trainer.rendering.render(drawn).prefix_BP[0].tolist() == tokenizer.encode(text).ids
    assert torch.equal(trainer.model.embed.weight, original.model.embed_tokens.weight)
    assert len([report.loss for report in trainer.steps()]) == 3
    assert not torch.equal(trainer.model.embed.weight, original.model.embed_tokens.weight)

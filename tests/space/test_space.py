"""Search spaces: what a file means, its grid, and what reading it takes."""

import dataclasses
import itertools
import pickle
import random
import re
import subprocess
import sys

import pytest

from par.config.backbones import BACKBONES
from par.errors import SpaceError
from par.metrics import SCORES
from par.space.domains import Choice, FloatRange, IntRange
from par.space.space import GRID_LIMIT
from tests.space.spaces import ANCHORING, LR, draw, space

# What a file means


def test_a_file_is_read_as_it_is_written(load):
    """Every field of the file arrives, typed, and so do its name and text."""
    read = load(ANCHORING)
    assert read.question.startswith("Does anchoring")
    assert read.cost == "about 3 minutes on 2 CPU cores"
    assert read.backbones == ("tiny-qwen2",)
    assert read.fixed == {"task.name": "swap-s5", "train.steps": 2000, "stretch.enabled": True}
    assert read.search == {
        "recurrence.step_size": Choice((1, 2, 4)),
        "recurrence.anchor": Choice(("first", "none")),
        "optim.lr": FloatRange(1e-5, 1e-3, log=True),
        "recurrence.gradient_window": IntRange(2, 8),
        "stretch.s_max": FloatRange(1.0, 16.0, log=True, when={"stretch.enabled": True}),
    }
    assert all(read.is_active(key, {}) for key in read.search)
    assert (read.configurations, read.stages.rungs, read.sampler, read.sampler_seed) == (8, (2,), "tpe", 0)
    assert (read.score, read.name, read.text) == ("extrapolation_auc", "space", ANCHORING)
    assert pickle.loads(pickle.dumps(read)) == read
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.sampler_seed = 3


def test_a_run_has_the_fixed_the_suggested_and_its_own_values(load):
    """A run holds what is fixed, what was suggested, its backbone and its seed, and defaults elsewhere."""
    run = load(ANCHORING).run_config("tiny-qwen2", {"optim.lr": 1e-4, "recurrence.anchor": "none"}, seed=7)
    assert (run.backbone, run.seed, run.train.steps, run.optim.lr, run.recurrence.anchor) == (
        "tiny-qwen2", 7, 2000, 1e-4, "none",
    )  # fmt: skip
    assert run.halting.m == type(run)().halting.m


@pytest.mark.parametrize("number", ["1e-5", "1E-5", "1.0e-5", "0.00001", "+1e-05"])
def test_an_exponent_needs_no_point(load, number):
    """However a number is spelt, it is a number."""
    text = space(f"optim.lr: {{float: [{number}, 1], log: true}}\noptim.clip: {{choice: [{number}]}}")
    assert load(text).search["optim.lr"] == FloatRange(1e-5, 1.0, log=True)
    assert load(text).search["optim.clip"] == Choice((1e-5,))


def test_lists_are_values(load):
    """A list in a choice or under fixed is one value, equal to a tuple."""
    read = load(space("recurrence.split: {choice: [[1, 1, 1], null]}", fixed="evaluation.depths: [16, 32]"))
    assert read.search["recurrence.split"] == Choice(((1, 1, 1), None))
    assert read.fixed["evaluation.depths"] == (16, 32)


def test_the_fingerprint_is_of_the_meaning(load):
    """Comments, layout, the wording of question and cost and the order of keys keep the fingerprint."""
    lines = ANCHORING.splitlines()
    swapped = [*lines[:5], *reversed(lines[5:10]), *reversed(lines[10:])]
    other = "\n".join(swapped).replace("Does", "# why\nquestion: Will", 1).replace("question: # why\n", "")
    other = (
        other.replace("[1, 16]", "[1.0, 1.6e1]").replace("about 3", "some").replace("[first, none]", "['first', none]")
    )
    assert other != ANCHORING
    assert load(other).fingerprint() == load(ANCHORING).fingerprint()


def test_each_field_of_meaning_changes_the_fingerprint(load):
    """No two spaces that make or rank runs differently share a fingerprint."""
    edits = [
        ("[tiny-qwen2]", "[mini-qwen3]"), ("[tiny-qwen2]", "[tiny-qwen2, mini-qwen3]"), ("swap-s5", "swap-s3"),
        ("steps: 2000", "steps: 2001"), ("[1, 2, 4]", "[1, 2]"), ("[2, 8]", "[2, 9]"), ("1.0e-3]", "2.0e-3]"),
        ("{int: [2, 8]}", "{int: [2, 8], log: true}"), ("[2, 8]}", "[2, 8], when: {recurrence.anchor: none}}"),
        ("configurations: 8", "configurations: 9"), ("seeds: 2", "seeds: 3"), ("seeds: 2", "seeds: 2\nfirst_seed: 1"),
        ("sampler: tpe", "sampler: random"),
        ("sampler_seed: 0", "sampler_seed: 1"), ("score: extrapolation_auc", "score: G"),
    ]  # fmt: skip
    texts = [ANCHORING, *(ANCHORING.replace(old, new) for old, new in edits)]
    assert len({load(text).fingerprint() for text in texts}) == len(texts)


# Grids


def test_a_grid_is_every_combination_once_and_only_active_keys(load):
    """A grid lists each sample exactly once; a key is in it exactly where its condition holds."""
    text = space(
        "halting.k: {int: [2, 3], when: {halting.mode: learned}}\n"
        "halting.mode: {choice: [forced, learned]}\n"
        "recurrence.anchor: {choice: [first, none]}",
        fixed="train.steps: 300",
        rest="sampler: grid",
    )
    read = load(text)
    rows = [tuple(sorted(row.items())) for row in read.grid()]
    assert len(rows) == len(set(rows)) == 2 * (1 + 2)
    assert all(("halting.k" in row) == (row["halting.mode"] == "learned") for row in read.grid())
    rng = random.Random(0)
    assert {tuple(sorted(draw(read, rng).items())) for _ in range(200)} == set(rows)


@pytest.mark.parametrize("backbones", [["tiny-qwen2"], ["tiny-qwen2", "mini-qwen3"]])
def test_the_grid_decides_the_number_of_configurations(load, faults, backbones):
    """In a grid, configurations is the size times the backbones: it may be left out, and must not be another."""
    grid = space("train.query_reset: {choice: [0, 0.5, 1]}", rest="sampler: grid", backbones=str(backbones))
    total = 3 * len(backbones)
    assert load(grid).configurations == total
    assert load(f"{grid}configurations: {total}\n").configurations == total
    [(line, message)] = faults(f"{grid}configurations: {total + 1}\n")
    assert line == 7
    assert all(
        part in message for part in (f"={total + 1}", "3 combinations", f"{len(backbones)} backbones", f"{total}")
    )


def test_a_grid_needs_values_that_can_be_listed(load, faults):
    """Floats, long ranges and grids beyond the limit are refused in a file, and by grid() of another sampler."""
    search = (
        "optim.lr: {float: [1e-5, 1e-3]}\nrecurrence.anchor: {choice: [first, none]}\ntrain.steps: {int: [1000, 2000]}"
    )
    assert [line for line, _ in faults(space(search, rest="sampler: grid"))] == [6, 8]
    with pytest.raises(SpaceError, match="float"):
        load(space(search)).grid()
    tens = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]"
    keys = ("optim.lr", "optim.clip", "optim.adapter_lr", "optim.muon_lr")
    [(line, message)] = faults(space("\n".join(f"{key}: {{choice: {tens}}}" for key in keys), rest="sampler: grid"))
    assert line == 5
    assert str(GRID_LIMIT) in message


def test_s11_many_parameters_keep_short_names(load):
    """However many settings are searched, a configuration is named by sixteen letters."""
    floats = [f"{key}: {{float: [0.1, 0.2]}}" for key in ("optim.lr", "optim.clip", "optim.muon_lr", "optim.adapter_lr",
              "optim.weight_decay", "optim.decay_share", "halting.weight", "halting.tau", "train.query_reset",
              "stretch.start", "stretch.ramp")]  # fmt: skip
    ints = [f"{key}: {{int: [3, 4]}}" for key in ("recurrence.step_size", "task.position_spacing", "halting.k",
            "schedule.overrun", "compute.checkpoint_every", "compute.report_every")]  # fmt: skip
    enabled = ("task.rendering: compact, optim.matrices: muon, optim.decay: linear, halting.mode: learned, "
               "stretch.enabled: true")  # fmt: skip
    text = space("\n".join(floats + ints)).replace("fixed: {}", f"fixed: {{{enabled}}}")
    read = load(text)
    assert len(read.search) >= 15
    run = read.run_config("tiny-qwen2", draw(read, random.Random(0)), seed=0)
    assert re.fullmatch("[0-9a-f]{16}", run.fingerprint())
    assert re.fullmatch("[0-9a-f]{16}", read.fingerprint())


def test_every_score_and_backbone_can_be_named(load):
    """Whatever is registered can be asked for."""
    for score, backbone in itertools.product(SCORES, BACKBONES):
        read = load(space(LR, backbones=f"[{backbone}]", rest=f"configurations: 1\nscore: {score}"))
        assert (read.score, read.backbones) == (score, (backbone,))


def test_a_space_is_read_without_torch_and_fast(tmp_path):
    """Reading a space loads neither torch nor the libraries of a cluster, and takes under a second with all imports."""
    (tmp_path / "space.yaml").write_text(ANCHORING)
    code = (
        "import sys, time, par.space.space as s; s.load_space(sys.argv[1])\n"
        "heavy = {'torch', 'transformers', 'ray', 'optuna', 'mlflow', 'scipy', 'pandas'} & set(sys.modules)\n"
        "print(heavy or 'light', time.process_time() < 1)"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "space.yaml")]
    assert subprocess.run(run, check=True, capture_output=True, text=True).stdout.split() == ["light", "True"]

"""Search spaces: what a file means, and that each of its faults is found, once, at its line, before anything runs."""

import dataclasses
import itertools
import json
import math
import pickle
import random
import re
import subprocess
import sys

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from par.config.backbones import BACKBONES
from par.config.keys import known_keys
from par.config.run import RunConfig
from par.errors import SpaceError
from par.metrics import SCORES
from par.space.domains import Choice, FloatRange, IntRange
from par.space.space import GRID_LIMIT, load_space
from tests.space.spaces import located

ANCHORING = """\
question: Does anchoring widen the range of step sizes at which seeds still reach G >= 8?
cost: about 3 minutes on 2 CPU cores
backbones: [tiny-qwen2]
fixed: {task.name: swap-s5, train.steps: 2000, stretch.enabled: true}
search:
  recurrence.step_size: {choice: [1, 2, 4]}
  recurrence.anchor: {choice: [first, none]}
  optim.lr: {float: [1.0e-5, 1.0e-3], log: true}
  recurrence.gradient_window: {int: [2, 8]}
  stretch.s_max: {float: [1, 16], log: true, when: {stretch.enabled: true}}
configurations: 8        # in total, over all backbones; each backbone gets its share
seeds: 2                 # per configuration
sampler: tpe             # tpe | random | grid
sampler_seed: 0
score: extrapolation_auc # any of par.metrics.SCORES
"""


def space(search="", *, fixed="", backbones="[tiny-qwen2]", rest="configurations: 4"):
    """A file whose ``fixed`` entries start at line 5, one a line, followed by the line ``search:`` and its entries."""
    entries = ["question: What?", f"backbones: {backbones}", rest, "fixed:" if fixed else "fixed: {}"]
    entries += [f"  {row}" for row in fixed.splitlines()]
    entries += ["search:", *(f"  {row}" for row in search.splitlines())]
    return "\n".join(entries) + "\n"


def draw(space_, rng):
    """One sample, drawn as a sampler would."""
    sample = {}
    for key, domain in space_.ordered():
        if not space_.is_active(key, sample):
            continue
        if isinstance(domain, Choice):
            sample[key] = rng.choice(domain.values)
        elif isinstance(domain, IntRange):
            sample[key] = rng.randrange(domain.low, domain.high + 1, domain.step)
        elif domain.log:
            drawn = math.exp(rng.uniform(math.log(domain.low), math.log(domain.high)))
            sample[key] = min(max(drawn, domain.low), domain.high)
        else:
            sample[key] = rng.uniform(domain.low, domain.high)
    return sample


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


# Each fault, once, at its line


def test_s1_a_grid_domain_is_sent_to_choice(faults):
    """A grid domain is refused with its key and both ways to say it."""
    [(line, message)] = faults(space("recurrence.step_size: {grid: [1, 2, 4]}"))
    assert line == 6
    assert all(part in message for part in ("recurrence.step_size", "choice", "sampler: grid"))


@pytest.mark.parametrize(
    ("text", "line", "suggestion"),
    [
        (space("gradient_windw: {int: [2, 8]}"), 6, "recurrence.gradient_window"),
        (space("recurrence.gradient_windw: {int: [2, 8]}"), 6, "recurrence.gradient_window"),
        (space("train.gradient_window: {int: [2, 8]}"), 6, "recurrence.gradient_window"),
        (space("anchr: {choice: [first]}"), 6, "recurrence.anchor"),
        (space("optim.lr: {choice: [1]}", fixed="train.stpes: 3"), 5, "train.steps"),
        (space("optim.lr: {choice: [1], when: {recurence.anchor: none}}"), 6, "recurrence.anchor"),
        (space("optim.lr: {choise: [1]}"), 6, "choice"),
        (space("optim.lr: {float: [1, 2], logg: true}"), 6, "log"),
        (space("optim.lr: {choice: [1]}", backbones="[tiny-qwen]"), 2, "tiny-qwen2"),
        (space("optim.lr: {choice: [1]}", rest="configuration: 4\nconfigurations: 4"), 3, "configurations"),
        (space("optim.lr: {choice: [1]}", rest="configurations: 4\nsampler: gird"), 4, "grid"),
        (space("optim.lr: {choice: [1]}", rest="configurations: 4\nscore: extrapolation"), 4, "extrapolation_auc"),
    ],
)
def test_s8_typo_gets_a_suggestion(faults, text, line, suggestion):
    """A name that does not exist is never ignored: it is refused at its line, with the name that was meant."""
    [(at, message)] = faults(text)
    assert at == line
    assert re.search(rf"did you mean .*\b{re.escape(suggestion)}\b.*\?", message)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_s8_any_key_with_a_letter_lost_is_suggested(faults, data):
    """Whichever letter of whichever setting is lost, the whole key is offered."""
    key = data.draw(st.sampled_from([key for key in known_keys(RunConfig) if len(key.rpartition(".")[2]) > 4]))
    at = data.draw(st.integers(len(key) - 4, len(key) - 1))
    typo = key[:at] + key[at + 1 :]
    [(_, message)] = faults(space("optim.lr: {choice: [1]}", fixed=f"{typo}: 1"))
    assert re.search(rf"(mean|or) {re.escape(key)}( or|\?)", message) or key in ("seed", "backbone")


def test_s9_every_fault_of_a_file_is_listed_at_its_line(faults):
    """One error lists all faults of a file, in the order of its lines, whatever else is wrong with it."""
    text = space(
        "optim.lr: {float: [1e-3, 1e-5]}\n"
        "optim.adapter_lr: {float: [0, 1], log: true}\n"
        "gradient_windw: {int: [2, 8]}\n"
        "recurrence.gradient_window: {int: [-1, 8]}\n"
        "recurrence.anchor: {grid: [first, none]}\n"
        "stretch.s_max: {float: [0, 16]}\n"
        "train.query_reset: {choice: []}\n"
        "stretch.start: {float: [0.5, 0.95]}",
        fixed="halting.tau: 1.2\nhalting.k: 9\nhalting.m: 8\nrecurrence.step_size: 0\ntrain.steps: 100",
        backbones="[tiny-qwen2, mini-qwen33]",
        rest="seeds: -1",
    )
    found = faults(text)
    expected = [
        (1, "configurations"), (2, "mini-qwen33"), (3, "seeds=-1"), (5, "halting.tau=1.2"), (6, "halting.k=9"),
        (8, "recurrence.step_size=0"), (9, "optim.warmup_steps=200"), (11, "[0.001, 1e-05]"), (12, "log"),
        (13, "gradient_windw"), (14, "recurrence.gradient_window=-1"), (15, "grid"), (16, "stretch.s_max=0"),
        (17, "empty"), (18, "stretch.start=0.95"),
    ]  # fmt: skip
    assert [line for line, _ in found] == [line for line, _ in expected]
    assert all(part in message for (_, message), (_, part) in zip(found, expected, strict=True))


def test_s11_many_parameters_keep_short_names(load):
    """However many settings are searched, a configuration is named by sixteen letters."""
    floats = [f"{key}: {{float: [0.1, 0.2]}}" for key in ("optim.lr", "optim.clip", "optim.muon_lr", "optim.adapter_lr",
              "optim.weight_decay", "optim.decay_share", "halting.weight", "halting.tau", "train.query_reset",
              "stretch.start", "stretch.ramp")]  # fmt: skip
    ints = [f"{key}: {{int: [3, 4]}}" for key in ("recurrence.step_size", "task.position_spacing", "halting.k",
            "schedule.overrun", "train.checkpoint_every", "train.report_every")]  # fmt: skip
    enabled = ("task.rendering: compact, optim.matrices: muon, optim.decay: linear, halting.mode: learned, "
               "stretch.enabled: true")  # fmt: skip
    text = space("\n".join(floats + ints)).replace("fixed: {}", f"fixed: {{{enabled}}}")
    read = load(text)
    assert len(read.search) >= 15
    run = read.run_config("tiny-qwen2", draw(read, random.Random(0)), seed=0)
    assert re.fullmatch("[0-9a-f]{16}", run.fingerprint())
    assert re.fullmatch("[0-9a-f]{16}", read.fingerprint())


LR = "optim.lr: {choice: [1]}"


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        (space(LR, fixed="optim.lr: 1"), 7, ["optim.lr", "line 5"]),
        (space(f"{LR}\nseed: {{choice: [1, 2]}}"), 7, ["seed", "seeds"]),
        (space(LR, fixed="backbone: tiny-qwen2"), 5, ["backbone", "backbones"]),
        (space(LR, fixed="train: {steps: 20}"), 5, ["train", "train.steps"]),
        (space("train: {steps: {int: [201, 300]}}"), 6, ["train", "train.steps"]),
        (space(LR, fixed="train.steps: {choice: [300]}"), 5, ["train.steps", "search"]),
        (space(LR, fixed="train.steps: '2000'"), 5, ["train.steps='2000'"]),
        (space(LR, fixed="train.steps: true"), 5, ["train.steps=True"]),
        (space(LR, fixed="stretch.enabled: yes"), 5, ["stretch.enabled='yes'"]),
        (space(LR, fixed="optim.clip: .inf"), 5, ["optim.clip=inf"]),
        (space(LR, fixed="optim.clip: .nan"), 5, ["optim.clip=nan"]),
        (space(LR, fixed="task.name: swap-s99"), 5, ["swap-s99"]),
        (space(LR, fixed="task.name: 2024-99-99"), 5, ["task.name=2024-99-99"]),
        (space(LR, fixed="task.name: 2024-01-01"), 5, ["task.name=2024-01-01"]),
        (space(LR, fixed="optim.clip: !!int x"), 5, ["optim.clip='x'"]),
        (space(LR, fixed='"a\\nb": 1'), 5, ["a b"]),
        (space(LR, fixed="? [a]\n: 1"), 5, ["key"]),
        (space(LR, fixed="evaluation.depths: [16, 8]"), 5, ["evaluation.depths"]),
        (space(LR, fixed="recurrence.split: [1, 1]"), 5, ["recurrence.split"]),
        (space(LR, fixed="train.steps: 300\ntrain.steps: 400"), 6, ["train.steps", "line 5"]),
        (space("optim.lr: 1"), 6, ["optim.lr", "fixed", "choice"]),
        (space("optim.lr: [1, 2]"), 6, ["optim.lr", "choice"]),
        (space("optim.lr: {}"), 6, ["optim.lr", "choice"]),
        (space("optim.lr: {choice: [1], float: [1, 2]}"), 6, ["choice and float"]),
        (space("optim.lr: {choice: 1}"), 6, ["choice=1"]),
        (space("optim.lr: {choice: [1, 2, 1]}"), 6, ["1", "more than once"]),
        (space("optim.lr: {choice: [1], log: true}"), 6, ["log"]),
        (space("optim.lr: {float: 1}"), 6, ["float=1"]),
        (space("optim.lr: {float: [1, 2, 3]}"), 6, ["(1, 2, 3)"]),
        (space("optim.lr: {float: [1, true]}"), 6, ["True"]),
        (space("optim.lr: {float: [1, two]}"), 6, ["'two'"]),
        (space("optim.lr: {float: [1, .inf]}"), 6, ["inf"]),
        (space(f"optim.lr: {{float: [1, 1{'0' * 400}]}}"), 6, ["finite"]),
        (space("optim.lr: {float: [1, 2], log: 1}"), 6, ["log=1"]),
        (space("optim.lr: {float: [1, 2], step: 1}"), 6, ["step"]),
        (space("optim.lr:\n  float: [0, 1]\n  log: true"), 7, ["optim.lr", "log"]),
        (space("train.steps: {float: [300, 400]}"), 6, ["train.steps=300.0"]),
        (space("halting.m: {int: [8, 9.5]}"), 6, ["9.5"]),
        (space("halting.m: {int: [8, 12], step: 3}"), 6, ["11 or 14"]),
        (space("halting.m:\n  choice:\n    - 8\n    - -8"), 9, ["halting.m=-8"]),
        (space("optim.lr: {choice: [1], when: 3}"), 6, ["when=3"]),
        (space("optim.lr: {choice: [1], when: {optim.clip: 3}}"), 6, ["optim.clip", "neither fixed nor searched"]),
        (space("optim.lr: {choice: [1], when: {backbone: tiny-qwen2}}"), 6, ["backbone", "own place"]),
        (space("optim.lr: {choice: [1], when: {optim.lr: 1}}"), 6, ["circle"]),
        (space("optim.lr: {choice: [1], when: {optim.clip: 2}}", fixed="optim.clip: 3"), 7, ["optim.clip=2", "3"]),
        (space("optim.lr: {choice: [1], when: {halting.k: 2}}\nhalting.k: {int: [1, 2]}"), 6, ["halting.k", "choice"]),
        (space("optim.lr: {choice: [1], when: {halting.k: 5}}\nhalting.k: {choice: [1, 2]}"), 6, ["halting.k=5"]),
        (
            space("optim.lr: {choice: [1], when: {halting.k: 1}}\nhalting.k: {choice: [1], when: {optim.lr: 1}}"),
            6, ["circle", "optim.lr", "halting.k"],
        ),
        (
            space(
                "optim.lr: {choice: [1], when: {halting.k: 1, halting.mode: forced}}\n"
                "halting.k: {choice: [1], when: {halting.mode: learned}}\nhalting.mode: {choice: [learned, forced]}"
            ),
            6, ["optim.lr", "contradict"],
        ),
        (space(LR, backbones="[]"), 2, ["backbones"]),
        (space(LR, backbones="tiny-qwen2"), 2, ["backbones='tiny-qwen2'", "list"]),
        (space(LR, backbones="[tiny-qwen2, tiny-qwen2]"), 2, ["tiny-qwen2", "twice"]),
        (space(LR, backbones="[[tiny-qwen2]]"), 2, ["backbone"]),
        (space(LR, backbones="[tiny-qwen2, mini-qwen3]", rest="configurations: 1"), 3, ["configurations=1", "2"]),
        (space(LR, rest="seeds: 3"), 1, ["configurations is missing"]),
        (space(LR, rest="configurations: 0"), 3, ["configurations=0", "1"]),
        (space(LR, rest="configurations: 4\nseeds: true"), 4, ["seeds=True"]),
        (space(LR, rest="configurations: 4\nfirst_seed: -1"), 4, ["first_seed=-1"]),
        (space(LR, rest=f"configurations: 4\nfirst_seed: {2**32}"), 4, ["first_seed=4294967296", "at most"]),
        (space(LR, rest="configurations: 4\nsampler_seed: -1"), 4, ["sampler_seed=-1", "0"]),
        (space(LR, rest="configurations: 4\nsampler: [tpe]"), 4, ["sampler"]),
        (space(LR, rest="configurations: 4\ntrain.steps: 300"), 4, ["train.steps", "fixed or search"]),
        (space(LR, rest="configurations: 4\ncost: 5"), 4, ["cost=5"]),
        (space(LR).replace("What?", "''"), 1, ["question"]),
        (space(LR).replace("question: What?", ""), 2, ["question is missing"]),
        (space(LR).replace("fixed: {}", "fixed: [1]"), 4, ["fixed", "mapping"]),
        ("question: a\nbackbones: [tiny-qwen2]\nconfigurations: 1\nsearch: 3\n", 4, ["search=3"]),
        ("question: a\nbackbones: [tiny-qwen2]\nconfigurations: 1\nsearch: {}\n", 4, ["search is empty"]),
        ("question: a\nbackbones: [tiny-qwen2]\nconfigurations: 1\n", 1, ["search is missing"]),
        ("", 1, ["empty"]),
        ("# nothing\n", 1, ["empty"]),
        ("\n- 1\n", 2, ["mapping"]),
        ("a: [1\nb: 2\n", 2, ["YAML"]),
        ("a: 1\n---\nb: 2\n", 2, ["YAML"]),
        ("a: 1\nb: \x07\n", 2, ["YAML", "0007"]),
    ],
)  # fmt: skip
def test_a_fault_is_listed_once_at_its_line(faults, text, line, parts):
    """A file with one fault gives one line, which has the place, the key, the value and the remedy."""
    [(at, message)] = faults(text)
    assert at == line
    assert all(part in message for part in parts)


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"a: 1\nb: \xff\n")])
def test_a_file_that_cannot_be_read_is_refused_in_the_same_form(tmp_path, make):
    """A missing file, a folder and bytes that are no text give path:LINE: message, too."""
    path = tmp_path / "space.yaml"
    make(path)
    with pytest.raises(SpaceError) as refused:
        load_space(str(path))
    assert located(str(refused.value))[0] in (1, 2)


def test_every_wrong_value_of_a_choice_is_listed_and_each_limit_of_a_range_once(faults):
    """Each value of a choice is a fault of its own; the ends of a range that miss one limit are one."""
    assert len(faults(space("halting.k: {choice: [0, -1, 2]}"))) == 2
    assert len(faults(space("halting.k: {int: [-3, 0]}"))) == 1
    assert len(faults(space("halting.tau: {float: [-1, 2]}"))) == 2
    assert len(faults(space("optim.lr: {float: [1, 0], log: false}"))) == 2
    assert len(faults(space("optim.lr: {float: [0, 1], log: true}"))) == 1


def test_an_alias_that_holds_itself_is_named(faults):
    """A circle of aliases is a fault at its line."""
    text = space(LR).replace("fixed: {}", "fixed: &all {train.steps: *all}")
    assert [line for line, message in faults(text) if "*all holds itself" in message] == [4]


def test_duplicates_are_all_listed(faults):
    """Every repeated key is named, not the first alone, and the first value counts."""
    text = space(f"{LR}\noptim.clip: {{choice: [1]}}\noptim.lr: {{choice: [0]}}\noptim.clip: {{choice: [2]}}")
    assert [(line, message.split()[0]) for line, message in faults(text)] == [(8, "optim.lr"), (9, "optim.clip")]


def test_faults_survive_a_pickle(load):
    """The error crosses process boundaries with every line of its message."""
    with pytest.raises(SpaceError) as refused:
        load("question: 3\n")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


# Combinations


@pytest.mark.parametrize("backbones", ["[tiny-qwen2]", "[tiny-qwen2, mini-qwen3, qwen2.5-0.5b]"])
def test_s5_k_above_m_is_refused_with_both_values(faults, backbones):
    """Ranges that allow k > m are refused once, with both keys and the values of a sample that breaks the rule."""
    text = space("halting.k: {int: [1, 9]}\nhalting.m: {int: [4, 12]}", backbones=backbones)
    [(line, message)] = faults(text)
    [(k, m)] = [(int(k), int(m)) for k, m in re.findall(r"halting\.k=(\d+) .*halting\.m=(\d+)", message)]
    assert line in (6, 7)
    assert 1 <= k <= 9
    assert 4 <= m <= 12
    assert k > m


@pytest.mark.parametrize("k_high", [3, 4])
def test_s5_k_never_exceeds_m_in_a_sample(load, k_high):
    """Conditional halting settings are active together, and k <= m in every sample."""
    when = "when: {halting.mode: learned}"
    read = load(
        space(
            f"halting.k: {{int: [1, {k_high}], {when}}}\nhalting.m: {{int: [4, 12], {when}}}\n"
            f"halting.tau: {{float: [0.3, 0.7], {when}}}\nhalting.mode: {{choice: [forced, learned]}}"
        )
    )
    rng = random.Random(0)
    for _ in range(200):
        sample = draw(read, rng)
        assert len(sample) == (4 if sample["halting.mode"] == "learned" else 1)
        run = read.run_config("tiny-qwen2", sample, 0)
        assert run.halting.k <= run.halting.m


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (space("halting.k: {int: [1, 9]}", fixed="halting.m: 8"), ["halting.k=9", "halting.m=8"]),
        (space("halting.k: {int: [1, 9]}"), ["halting.k=9", "halting.m=8"]),
        (space("train.steps: {int: [100, 900]}"), ["optim.warmup_steps=200", "train.steps=100"]),
        (
            space("optim.warmup_steps: {int: [1, 50], when: {train.steps: 10}}\ntrain.steps: {choice: [10, 300]}"),
            ["optim.warmup_steps=50", "train.steps=10"],
        ),
        (
            space("train.steps: {choice: [10, 300]}\noptim.warmup_steps: {int: [1, 5], when: {train.steps: 10}}\n"
                  "train.batch_size: {choice: [6, 8]}\ntrain.workers: {choice: [1, 4]}"),
            ["train.batch_size=6", "train.workers=4"],
        ),
        (space("schedule.kind: {choice: [hold, fixed]}\nschedule.iterations: {float: [1, 16]}"),
         ["schedule.iterations", "schedule.kind=fixed"]),
        (space("train.workers: {int: [1, 4]}", fixed="train.batch_size: 4"), ["train.batch_size=4", "train.workers=3"]),
        (space("train.batch_size: {int: [4, 400]}", fixed="train.workers: 4"), ["train.workers=4"]),
        (space("task.rendering: {choice: [text, compact]}", backbones="[tiny-qwen2, qwen2.5-0.5b, qwen2.5-3b]"),
         ["task.rendering=compact", "qwen2.5-0.5b"]),
        (space("recurrence.split: {choice: [null, [1, 1, 1]]}", backbones="[tiny-qwen2, qwen2.5-0.5b, qwen2.5-3b]"),
         ["recurrence.split=1/1/1"]),
    ],
)  # fmt: skip
def test_a_combination_that_no_run_allows_is_refused_once(faults, text, keys):
    """Two values that are right alone and wrong together are one fault, whatever the other values and backbones."""
    [(_, message)] = faults(text)
    assert all(key in message for key in keys)


def test_three_settings_that_disagree_are_found_in_a_wide_space(faults):
    """A rule over three settings that one triple of values in hundreds breaks is not lost among other dimensions."""
    text = space(
        f"train.batch_size: {{choice: {[*range(64, 185, 8)]}}}\n"
        "train.workers: {choice: [1, 2, 4, 8]}\n"
        f"train.micro_batch: {{choice: {[*range(1, 10)]}}}\n"
        "recurrence.anchor: {choice: [first, none]}\n"
        "recurrence.adapter_init: {choice: [state, input, sum]}\n"
        "objective: {choice: [progress, final_every]}"
    )
    [(_, message)] = faults(text)
    assert "train.micro_batch=9" in message


def test_a_pair_behind_rare_conditions_is_found(faults):
    """Two values that meet only where two other settings have one of many values are tried together."""
    many = [*range(1, 31)]
    text = space(
        f"train.report_every: {{choice: {many}}}\ntrain.checkpoint_every: {{choice: {many}}}\n"
        "halting.k: {choice: [1, 2, 3, 4, 5, 6, 7, 8], when: {train.report_every: 7}}\n"
        "halting.m: {choice: [7, 8, 9, 10, 11, 12, 13, 14], when: {train.checkpoint_every: 5}}\n"
        "recurrence.adapter_init: {choice: [state, input, sum]}\nrecurrence.anchor: {choice: [first, none]}"
    )
    [(_, message)] = faults(text)
    assert "halting.k=8 is above halting.m=7" in message


def test_one_wrong_pair_among_thousands_is_found(faults):
    """Every two values of a space are tried together, however many others each of them meets."""
    steps, warmup = [*range(501, 570), 500], [*range(69), 500]
    wide = f"train.steps: {{choice: {steps}}}\noptim.warmup_steps: {{choice: {warmup}}}"
    [(_, message)] = faults(space(wide))
    assert "optim.warmup_steps=500 must be below train.steps=500" in message


def test_conditions_are_kept_in_a_wide_space(faults):
    """A setting whose condition fails is at its default, also where the combinations are too many to list."""
    wide = [
        f"{key}: {{float: [0.1, 0.2]}}" for key in ("optim.lr", "optim.clip", "optim.adapter_lr", "optim.weight_decay")
    ]
    words = "recurrence.anchor: {choice: [first, none]}\ntrain.query_reset: {choice: [0, 0.2, 0.4, 0.6, 0.8, 1]}"
    rule = "train.steps: {choice: [300, 500]}\noptim.warmup_steps: {int: [1, 400], when: {train.steps: 500}}"
    assert faults(space("\n".join([*wide, words, rule]))) == []


def test_a_faulty_setting_is_not_blamed_on_others(faults):
    """A rule is not judged with the default of a setting that the file gives, wrongly."""
    assert [line for line, _ in faults(space("halting.k: {int: [1, 9]}", fixed="halting.m: 0"))] == [5]
    assert [line for line, _ in faults(space(LR, fixed="train.steps: 100\noptim.warmup_steps: -1"))] == [6]
    learnt = "halting.mode: {choice: [learnt]}\nhalting.k: {int: [1, 4], when: {halting.mode: learnt}}"
    assert [line for line, _ in faults(space(learnt, fixed="halting.m: 4"))] == [7]
    assert [line for line, _ in faults(space("task.rendering: {choice: [compact]}", backbones="[mini]"))] == [2]


def test_one_broken_rule_does_not_hide_another(faults):
    """Rules inside a group and rules between groups are all judged, also where each of them is always broken."""
    found = faults(space(LR, fixed="halting.k: 9\nstretch.start: 1\ntrain.steps: 100\ntrain.workers: 3"))
    assert [line for line, _ in found] == [5, 6, 7, 8]


NUMBERS = {
    "recurrence.step_size": (1, 4), "recurrence.gradient_window": (1, 8), "schedule.iterations": (1, 16),
    "schedule.overrun": (0, 3), "train.steps": (150, 500), "optim.warmup_steps": (0, 250),
    "train.batch_size": (1, 12), "train.micro_batch": (1, 6), "train.workers": (1, 4), "halting.k": (1, 9),
    "halting.m": (6, 12), "task.train_depth": (8, 16), "halting.tau": (0.1, 0.9), "stretch.start": (0.0, 1.0),
    "stretch.ramp": (0.0, 0.3), "optim.lr": (1e-5, 1e-2), "train.query_reset": (0.0, 1.0),
}  # fmt: skip
WORDS = {
    "recurrence.anchor": ["first", "none"], "objective": ["progress", "final_every", "final_only"],
    "schedule.kind": ["forced", "hold", "fixed", "random"], "task.rendering": ["text", "compact"],
    "task.name": ["swap-s3", "s5", "a5"], "halting.mode": ["forced", "learned"], "stretch.enabled": [True, False],
    "recurrence.split": [None, [1, 1, 1], [8, 8, 8]], "evaluation.depths": [None, [16, 32], [8]],
}  # fmt: skip


@st.composite
def values(draw_, key):
    """A value that may be right for ``key``."""
    if key in WORDS:
        return draw_(st.sampled_from(WORDS[key]))
    low, high = NUMBERS[key]
    whole = st.integers(math.ceil(low), math.floor(high))
    return draw_(whole if isinstance(low, int) else st.floats(low, high).map(lambda x: max(round(x, 3), low)))


@st.composite
def domains(draw_, key):
    """A domain of ``key``, each of whose values is right on its own."""
    if key in WORDS or draw_(st.booleans()):
        return {"choice": draw_(st.lists(values(key), min_size=1, max_size=3, unique_by=repr))}
    low, high = sorted((draw_(values(key)), draw_(values(key))))
    floats = isinstance(low, float) or (key == "schedule.iterations" and draw_(st.booleans()))
    return {"float" if floats else "int": [low, high]} | ({"log": True} if low > 0 and draw_(st.booleans()) else {})


@st.composite
def space_texts(draw_):
    """A file of up to seven searched and two fixed settings, with conditions; JSON is YAML."""
    keys = draw_(st.lists(st.sampled_from([*NUMBERS, *WORDS]), unique=True, min_size=2, max_size=9))
    fixed = {key: draw_(values(key)) for key in keys[7:]}
    search = {}
    for key in keys[:7]:
        parents = [k for k, domain in search.items() if "choice" in domain and draw_(st.integers(0, 3)) == 0]
        when = {parent: draw_(st.sampled_from(search[parent]["choice"])) for parent in parents[:2]}
        search[key] = draw_(domains(key)) | ({"when": when} if when else {})
    names = draw_(st.lists(st.sampled_from(list(BACKBONES)), unique=True, min_size=1, max_size=2))
    entries = {"question": "?", "backbones": names, "configurations": 9, "fixed": fixed, "search": search}
    return json.dumps(entries)


@settings(max_examples=150, deadline=None)
@given(text=space_texts())
def test_every_sample_of_an_accepted_space_is_a_valid_run(load, faults, text):
    """No sample of an accepted space is refused by a run, on any backbone: nothing fails after the sweep has begun."""
    if refused := faults(text):
        event(f"refused with {min(len(refused), 2)} faults")
        return
    event("accepted")
    read, rng = load(text), random.Random(0)
    for _ in range(40):
        sample = draw(read, rng)
        for backbone in read.backbones:
            read.run_config(backbone, sample, seed=0)


def test_fixed_settings_need_not_be_a_run_of_their_own(faults):
    """Settings that only the searched ones make a run of are accepted."""
    search = "optim.warmup_steps: {int: [0, 100]}"
    assert faults(space(search, fixed="{train.steps: 150}", rest="configurations: 4")) == []


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(["", "grid", "choice", "1e-5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["choice", "float", "when"]), inner),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_file_ends_in_a_traceback(faults, data):
    """Whatever stands in place of any value, the answer is a space or path:LINE: message with a line of the file."""
    tree = {
        "question": "?", "cost": "", "backbones": ["tiny-qwen2"], "configurations": 4, "seeds": 2, "sampler": "tpe",
        "sampler_seed": 0, "score": "G", "fixed": {"train.steps": 300, "stretch.enabled": True},
        "search": {"optim.lr": {"float": [1, 2], "log": True, "when": {"stretch.enabled": True}},
                   "halting.k": {"int": [1, 3], "step": 1}, "halting.m": {"choice": [8, 9]}},
    }  # fmt: skip
    for _ in range(data.draw(st.integers(1, 3))):
        node = tree
        while True:
            key = data.draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
            if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
                node[key] = data.draw(junk)
                break
            node = node[key]
    text = json.dumps(tree, indent=1)
    assert all(1 <= line <= text.count("\n") + 1 for line, _ in faults(text))


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, len(ANCHORING)), extra=st.sampled_from(["", "[", "'", "\t", "- ", "&a *a", "!!int x", "%"]))
def test_no_broken_text_ends_in_a_traceback(faults, cut, extra):
    """A file that ends anywhere, in anything, is a space or a list of faults."""
    faults(ANCHORING[:cut] + extra)


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


def test_score_that_no_run_delivers_is_refused(tmp_path):
    """full_state_16x without the depth that it is read at is a fault of the score's line, and fine with it."""
    text = (
        "question: Which?\nbackbones: [tiny-qwen2]\n"
        "fixed: {task.train_depth: 4, task.rendering: compact, evaluation.depths: [4, DEEPEST]}\n"
        "search: {recurrence.anchor: {choice: [first, none]}}\nconfigurations: 2\nscore: full_state_16x\n"
    )
    path = tmp_path / "space.yaml"
    path.write_text(text.replace("DEEPEST", "5"))
    with pytest.raises(SpaceError, match=r"space.yaml:6: score=full_state_16x is read at depth 64"):
        load_space(path)
    path.write_text(text.replace("DEEPEST", "64"))
    assert load_space(path).score == "full_state_16x"


INERT = "optim.muon_lr: {float: [1e-3, 1e-2]}"
MUON_CHOICE = "optim.matrices: {choice: [adamw, muon]}\n"
MUON_ONLY = "optim.muon_lr: {float: [1e-3, 1e-2], when: {optim.matrices: muon}}"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (space(INERT), True),
        (space(INERT, fixed="optim.matrices: adamw"), True),
        (space(MUON_CHOICE + INERT), True),
        (space(INERT, fixed="optim.matrices: muon"), False),
        (space(MUON_CHOICE + MUON_ONLY), False),
        (space("schedule.iterations: {int: [4, 8]}"), True),
        (space("schedule.kind: {choice: [forced, hold]}\nschedule.iterations: {int: [4, 8]}"), False),
        (space("schedule.iterations: {int: [4, 8]}", fixed="schedule.kind: hold"), False),
    ],
)
def test_setting_without_effect_is_refused(faults, text, refused):
    """Searching a setting that another one switches off would compare runs that are alike; the fault says how."""
    found = faults(text)
    assert bool(found) == refused, found
    if refused:
        assert "does nothing while" in found[0][1]
        assert "when" in found[0][1]

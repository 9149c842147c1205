"""Variants: a space that names its configurations means each of them, and every fault is found at its line."""

import json
import pickle

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

ABLATION = """\
question: What?
backbones: [tiny-qwen2, mini-qwen3]
fixed: {task.rendering: compact, train.steps: 300, schedule.kind: forced}
variants:
  PAR: {}
  no anchoring: {recurrence.anchor: none}
  fixed R: {schedule.kind: fixed, schedule.iterations: 8, objective: final_only}
"""


def space(*variants, fixed="{}", backbones="[tiny-qwen2]", rest=()):
    """A file whose variants start at line 5, one a line."""
    head = ["question: What?", f"backbones: {backbones}", f"fixed: {fixed}", "variants:"]
    return "\n".join([*head, *(f"  {variant}" for variant in variants), *rest]) + "\n"


def test_a_variant_is_the_fixed_settings_with_its_own_over_them(load):
    """Each variant is one proposal by its name; its run has its settings, the fixed ones elsewhere, then defaults."""
    read = load(ABLATION)
    assert read.grid() == [{"variant": name} for name in ("PAR", "no anchoring", "fixed R")]
    found = [
        (run.schedule.kind, run.recurrence.anchor, run.objective, run.train.steps, run.schedule.iterations)
        for run in (read.run_config("mini-qwen3", proposal, seed=3) for proposal in read.grid())
    ]
    assert found == [
        ("forced", "first", "progress", 300, 16),
        ("forced", "none", "progress", 300, 16),
        ("fixed", "first", "final_only", 300, 8),
    ]
    assert pickle.loads(pickle.dumps(read)) == read


def test_every_variant_runs_on_every_backbone(load, faults):
    """Configurations are variants times backbones: the field may be left out, and must not be another number."""
    read = load(ABLATION)
    assert (read.configurations, read.sampler) == (6, "grid")
    assert load(ABLATION + "configurations: 6\nsampler: grid\n").meaning() == read.meaning()
    [(line, message)] = faults(ABLATION + "configurations: 7\n")
    assert line == 8
    assert "3 variants x 2 backbones = 6" in message


def test_variants_are_part_of_the_meaning(load):
    """A name, a setting and a variant more change the fingerprint; the order of the variants does not."""
    lines = ABLATION.splitlines()
    assert load("\n".join([*lines[:4], *reversed(lines[4:])])).fingerprint() == load(ABLATION).fingerprint()
    edits = [("PAR:", "plain:"), ("iterations: 8", "iterations: 9"), ("  PAR: {}\n", "")]
    texts = [ABLATION, *(ABLATION.replace(old, new) for old, new in edits)]
    assert len({load(text).fingerprint() for text in texts}) == len(texts)
    assert load(ABLATION).meaning()["variants"]["no anchoring"] == {"recurrence.anchor": "none"}


def test_what_a_variant_overrides_is_not_judged_alone(load):
    """Fixed settings that no run allows are right if every variant mends them."""
    random_R = "{schedule.kind: random, optim.warmup_steps: 400, train.steps: 300}"
    mended = "{objective: final_only, train.steps: 500}"
    assert load(space(f"a: {mended}", fixed=random_R)).configurations == 1


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        (space("a: {recurrence.anchr: none}"), 5, ["a: recurrence.anchr", "did you mean recurrence.anchor?"]),
        (space("a: {seed: 3}"), 5, ["a: seed has its own place"]),
        (space("a: {train: {steps: 3}}"), 5, ["a: train", "train.steps"]),
        (space("a: {}", "b:", "  recurrence.anchor: last"), 7, ["b: recurrence.anchor='last'"]),
        (space("a: {train.steps: '300'}"), 5, ["a: train.steps='300'"]),
        (space("a: {recurrence.anchor: {choice: [none]}}"), 5, ["a: recurrence.anchor has one value"]),
        (space("a: {train.steps: 100}"), 5, ["a: optim.warmup_steps=200 must be below train.steps=100"]),
        (space("a: {schedule.kind: random}"), 5, ["a: schedule.kind=random", "objective"]),
        (space("a: {}", "b: {halting.k: 9, halting.mode: learned}"), 6, ["b: halting.k=9", "halting.m=8"]),
        (space("a: {task.rendering: compact}", backbones="[tiny-qwen2, qwen2.5-0.5b, qwen2.5-3b]"),
         5, ["a: task.rendering=compact", "qwen2.5-0.5b"]),
        (space("a: {}", "b: {recurrence.anchor: none}", fixed="{train.steps: 100}"), 3, ["optim.warmup_steps=200"]),
        (space("a: {}", "b: {recurrence.anchor: none}", fixed="{train.steps: -1}"), 3, ["train.steps=-1"]),
        (space("a: {schedule.iterations: 4}"), 5, ["a: schedule.iterations does nothing", "schedule.kind='forced'"]),
        (space("a: {optim.muon_lr: 1}", fixed="{optim.matrices: adamw}"), 5, ["optim.matrices='adamw'"]),
        (space("a: {}", "b: {recurrence.anchor: first}"), 6, ["b is the same run as a (line 5)"]),
        (space("a: {compute.micro_batch: 1}", "b: {}"), 6, ["b is the same run as a (line 5)"]),
        (space("a: 3"), 5, ["a: 3", "mapping"]),
        (space("a:"), 5, ["a: None", "mapping", "{}"]),
        (space("'': {}"), 5, ["''", "no name"]),
        (space(f"{'a' * 41}: {{}}"), 5, ["no name", "40"]),
        (space("' a': {}"), 5, ["no name"]),
        (space('"a\\tb": {}'), 5, ["no name"]),
        (space("PAR [red]: {}"), 5, ["PAR [red]", "no name"]),
        (space("a: {}", "a: {recurrence.anchor: none}"), 6, ["a is given a second time"]),
        (space("a: {}", rest=["sampler: tpe"]), 6, ["sampler=tpe", "variants (line 4)"]),
        (space("a: {}", rest=["search: {optim.lr: {float: [1, 2]}}"]), 4, ["variants", "search (line 6)", "keep one"]),
        (space("a: {}", rest=["search: {optim.lr: {float: [1, 2]}}", "sampler: tpe", "configurations: 9"]),
         4, ["variants", "search (line 6)", "keep one"]),
        (space("a: {evaluation.depths: [16, 32]}", rest=["score: full_state_16x"]), 6, ["full_state_16x", "256"]),
        ("question: a\nbackbones: [tiny-qwen2]\nvariants: {}\n", 3, ["variants={}", "no variant"]),
        ("question: a\nbackbones: [tiny-qwen2]\nvariants: [a]\n", 3, ["variants=('a',)", "no variant"]),
        ("question: a\nbackbones: [tiny-qwen2]\nvariants:\n", 3, ["variants=None", "no variant"]),
        ("question: a\nbackbones: [tiny-qwen2]\nconfigurations: 1\n", 1, ["search is missing", "variants"]),
        ("question: a\nbackbones: [tiny-qwen2]\nvariant: {a: {}}\nsearch: {optim.lr: {choice: [1]}}\nsampler: grid\n",
         3, ["did you mean variants?"]),
    ],
)  # fmt: skip
def test_a_fault_is_listed_once_at_its_line(faults, text, line, parts):
    """A file with one fault gives one line, which has the place, the variant, the key, the value and the remedy."""
    [(at, message)] = faults(text)
    assert at == line
    assert all(part in message for part in parts)


def test_faults_of_all_variants_come_at_once(faults):
    """One error lists each variant's faults, also where two variants break the same rule."""
    text = space(
        "a: {train.steps: 100, halting.tau: 2}",
        "b: {train.steps: 100, halting.tow: 2}",
        "c: {}",
        "d: {schedule.kind: random, compute.workers: 3}",
        fixed="{optim.lr: -1}",
    )
    assert [(line, message.split(" ")[0], len(message) > 20) for line, message in faults(text)] == [
        (3, "optim.lr=-1:", True), (5, "a:", True), (5, "a:", True), (6, "b:", True), (6, "b:", True),
        (8, "d:", True), (8, "d:", True),
    ]  # fmt: skip


def test_a_faulty_setting_is_not_blamed_on_others(faults):
    """No rule is tried with the fixed value, or the default, of a setting that a variant gives wrongly."""
    found = faults(space("a: {optim.warmup_steps: -1}", fixed="{train.steps: 100}"))
    assert [message.split(":")[1].split("=")[0].strip() for _, message in found] == ["optim.warmup_steps"]
    mended = space("a: {train.steps: 300}", "b: {train.steps: 100}", fixed="{train.steps: '3'}")
    assert [line for line, _ in faults(mended)] == [3, 6]


def test_a_setting_that_fixed_or_its_variant_switches_on_is_no_fault(load):
    """What a setting needs may be fixed, or stand beside it in the variant."""
    load(
        space(
            "a: {schedule.iterations: 4}", "b: {optim.matrices: muon, optim.muon_lr: 1}", fixed="{schedule.kind: hold}"
        )
    )


OPTIONS = {
    "recurrence.anchor": ["first", "none"], "objective": ["progress", "final_every", "final_only"],
    "schedule.kind": ["forced", "hold", "fixed", "random"], "schedule.iterations": [4, 8.5],
    "train.steps": [150, 300], "optim.warmup_steps": [100, 200], "compute.workers": [1, 3], "halting.k": [6, 9],
    "task.rendering": ["text", "compact"], "recurrence.split": [None, [1, 1, 1]], "halting.mode": ["learned"],
}  # fmt: skip
some_settings = st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.integers(0, 3), max_size=3).map(
    lambda drawn: {key: OPTIONS[key][at % len(OPTIONS[key])] for key, at in drawn.items()}
)


@settings(max_examples=150, deadline=None)
@given(
    fixed=some_settings,
    variants=st.dictionaries(st.sampled_from("abcd"), some_settings, min_size=1),
    backbones=st.sampled_from([["tiny-qwen2"], ["mini-qwen3", "qwen2.5-0.5b"]]),
)
def test_every_variant_of_an_accepted_space_is_a_run_of_its_own(load, faults, fixed, variants, backbones):
    """No variant of an accepted space is refused by a run on any backbone, and none has the id of another."""
    text = json.dumps({"question": "?", "backbones": backbones, "fixed": fixed, "variants": variants})
    if faults(text):
        event("refused")
        return
    event("accepted")
    read = load(text)
    ids = [read.run_config(backbone, row, 0).fingerprint() for backbone in backbones for row in read.grid()]
    assert len(set(ids)) == len(ids) == read.configurations == len(variants) * len(backbones)


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(["", "first", "optim.lr", "tpe"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["", "a", "optim.lr"]), inner),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(variants=junk, search=st.none() | junk, sampler=st.none() | junk)
def test_no_file_ends_in_a_traceback(faults, variants, search, sampler):
    """Whatever stands under variants, the answer is a space or path:LINE: message."""
    tree = {"question": "?", "backbones": ["tiny-qwen2"], "variants": variants, "search": search, "sampler": sampler}
    faults(json.dumps({key: value for key, value in tree.items() if value is not None}))

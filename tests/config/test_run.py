"""A run is a value that checks itself, prints itself, and is named by what decides its result."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from par.config.backbones import BACKBONES
from par.config.groups import ActsUnder
from par.config.keys import fields, known_keys, nest
from par.config.run import RunConfig
from par.errors import ConfigError
from par.testing import TINY, tiny_run

BASE = {
    "backbone": "tiny-qwen2",
    "task.rendering": "compact",
    "task.train_depth": 8,
    "schedule.kind": "hold",
    "train.steps": 100,
    "train.batch_size": 12,
    "optim.warmup_steps": 10,
    "recurrence.split": (1, 1, 1),
}
"""A run from which every single setting can be changed to another valid one."""

OTHER: dict[str, Any] = {
    "backbone": "tiny-qwen3",
    "task.name": "s5",
    "task.rendering": "text",
    "task.position_spacing": 4,
    "task.train_depth": 9,
    "recurrence.step_size": 2,
    "recurrence.gradient_window": 4,
    "recurrence.anchor": "none",
    "recurrence.adapter_init": "sum",
    "recurrence.split": None,
    "objective": "final_every",
    "schedule.kind": "forced",
    "schedule.iterations": 7.5,
    "schedule.distribution": "uniform",
    "schedule.overrun": 1,
    "train.steps": 101,
    "train.batch_size": 24,
    "compute.micro_batch": 5,
    "train.query_reset": 0.25,
    "train.branches.boxes": "one",
    "train.branches.prefixes": 2,
    "compute.workers": 2,
    "train.precision": "bf16",
    "train.teacher_decay": 0.5,
    "compute.attention": "flex",
    "compute.activation_checkpointing": True,
    "compute.compile": True,
    "compute.deterministic": True,
    "halting.trace_sequences": 64,
    "compute.checkpoint_every": 7,
    "compute.report_every": 7,
    "optim.matrices": "muon",
    "optim.lr": 1e-3,
    "optim.adapter_lr": 1e-3,
    "optim.muon_lr": 1e-3,
    "optim.weight_decay": 0.1,
    "optim.warmup_steps": 11,
    "optim.decay": "cosine",
    "optim.decay_share": 0.5,
    "optim.clip": 2.0,
    "stretch.enabled": True,
    "stretch.distribution": "log_uniform",
    "stretch.s_min": 0.5,
    "stretch.s_max": 4.0,
    "stretch.start": 0.5,
    "stretch.ramp": 0.05,
    "halting.mode": "learned",
    "halting.weight": 0.25,
    "halting.tau": 0.75,
    "halting.k": 5,
    "halting.m": 9,
    "evaluation.sequences": 64,
    "evaluation.batch_size": 32,
    "evaluation.memory_gib": 1.0,
    "evaluation.depths": (8, 16),
    "seed": 1,
}
"""For every setting, a value other than that of BASE."""

SEED_OR_HOW = {
    "seed", "compute.workers", "compute.micro_batch", "compute.attention", "compute.activation_checkpointing",
    "compute.compile", "compute.deterministic", "compute.checkpoint_every", "compute.report_every",
}  # fmt: skip


def test_every_setting_is_listed():
    """The keys that can be set, those that a run prints and those that this file changes are the same."""
    assert set(known_keys(RunConfig)) == set(RunConfig().dotted()) == set(OTHER)


def test_every_setting_says_what_it_means_and_what_it_needs():
    """A setting has a meaning, and the one that it acts under exists and takes the values named."""
    settings = dict(fields(RunConfig))
    assert [key for key, field in settings.items() if not field.description] == []
    marks = [mark for field in settings.values() for mark in field.metadata if isinstance(mark, ActsUnder)]
    assert len(marks) == 17
    for mark in marks:
        kind: TypeAdapter[Any] = TypeAdapter(settings[mark.setting].annotation)
        assert [kind.validate_python(value, strict=True) for value in mark.values] == list(mark.values)


@pytest.mark.parametrize("key", OTHER)
def test_the_fingerprint_is_what_decides_the_result(key):
    """It changes with every setting but the seed and those that say how a run is computed or recorded."""
    run, changed = RunConfig.from_dotted(BASE), RunConfig.from_dotted(BASE | {key: OTHER[key]})
    assert run != changed
    assert (run.fingerprint() == changed.fingerprint()) == (key in SEED_OR_HOW)


COMPUTED_OTHERWISE = {key: value for key, value in OTHER.items() if key.startswith("compute.")}
NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "defaults": ({}, "6288b1d94c7c6e8a"),
    "base": (BASE, "a8d5622b997a2d4e"),
    "computed otherwise": (BASE | COMPUTED_OTHERWISE, "a8d5622b997a2d4e"),
    "learned, stretched": (
        BASE | {"halting.mode": "learned", "stretch.enabled": True, "objective": "final_every"},
        "0062038c89818b14",
    ),
    "pretrained, muon": (
        {"backbone": "qwen2.5-1.5b", "optim.matrices": "muon", "optim.lr": 1e-3, "train.precision": "bf16"},
        "49a754ebc34f129e",
    ),
    "distilled": (
        BASE | {"objective": "prefix_distill", "train.teacher_decay": 0.5, "evaluation.depths": (8, 16), "seed": 3},
        "dba39d64f0b92b79",
    ),
}
"""Runs, and the names that they had when the settings of how a run is computed were still among those of ``train``."""


@pytest.mark.parametrize("name", NAMED)
def test_the_fingerprint_stays(name):
    """Configurations in ledgers that exist keep their ids."""
    settings, fingerprint = NAMED[name]
    assert RunConfig.from_dotted(settings).fingerprint() == fingerprint


def test_the_fingerprint_is_a_name():
    """It is sixteen hex digits, the same for equal values, in whatever order they were given."""
    run, again = RunConfig.from_dotted(BASE), RunConfig.from_dotted(dict(reversed(BASE.items())))
    assert run.fingerprint() == again.fingerprint()
    assert len(run.fingerprint()) == 16
    assert int(run.fingerprint(), 16) >= 0


@settings(max_examples=60)
@given(keys=st.sets(st.sampled_from(sorted({*OTHER} - {"task.train_depth"}))))
def test_dotted_keys_round_trip(keys):
    """Any valid run is rebuilt from its dotted keys, also after JSON and after a pickle, with the same fingerprint."""
    run = RunConfig.from_dotted(BASE | {key: OTHER[key] for key in keys})
    for copy in (
        RunConfig.from_dotted(run.dotted()),
        RunConfig.from_dotted(json.loads(json.dumps(run.dotted()))),
        pickle.loads(pickle.dumps(run)),
    ):
        assert copy == run
        assert copy.fingerprint() == run.fingerprint()


def test_every_default_is_valid():
    """A run without settings is valid, on every backbone; so is the tiny run of the tests."""
    assert RunConfig.from_dotted({}) == RunConfig()
    for backbone in BACKBONES:
        assert RunConfig.from_dotted({"backbone": backbone}).backbone == backbone
    assert set(TINY) <= set(known_keys(RunConfig))
    assert tiny_run().train.steps == TINY["train.steps"]


@pytest.mark.parametrize("key", OTHER)
def test_a_run_is_frozen(key):
    """No setting can be changed in place: nobody edits a run."""
    run = RunConfig.from_dotted(BASE)
    *groups, name = key.split(".")
    part: Any = run
    for group in groups:
        part = getattr(part, group)
    with pytest.raises(ValidationError, match="frozen"):
        setattr(part, name, OTHER[key])
    assert run == RunConfig.from_dotted(BASE)


WRONG = {
    "train.steps": (0, "greater than or equal to 1"),
    "train.batch_size": (-3, "greater than or equal to 1"),
    "train.query_reset": (1.5, "less than or equal to 1"),
    "optim.lr": (0.0, "greater than 0"),
    "optim.clip": (float("inf"), "finite number"),
    "optim.weight_decay": (float("nan"), "finite number"),
    "stretch.s_min": (1.5, "less than or equal to 1"),
    "stretch.s_max": (0.5, "greater than or equal to 1"),
    "halting.tau": (1.0, "less than 1"),
    "recurrence.anchor": ("last", "'first' or 'none'"),
    "schedule.kind": ("free", "'forced', 'hold', 'fixed' or 'random'"),
    "schedule.iterations": (0.5, "greater than or equal to 1"),
    "task.name": ("s11", "N in 3..10"),
    "backbone": ("gpt", "choose one of tiny-qwen2"),
    "seed": (-1, "greater than or equal to 0"),
    "evaluation.sequences": ("many", "valid integer"),
}


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_value_is_a_config_error(key):
    """The message has the dotted key, the value and the limit."""
    value, limit = WRONG[key]
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_dotted(BASE | {key: value})
    assert f"{key}={value!r}: " in str(caught.value) or f"{key}={value} " in str(caught.value)
    assert limit in str(caught.value)


@pytest.mark.parametrize("key", ["train.step", "trian.steps", "steps", "optim.lr.peak", "task.boxes"])
def test_an_unknown_key_is_a_config_error(key):
    """A key that is not a setting is refused by name, never ignored."""
    with pytest.raises(ConfigError, match=key.split(".")[0]) as caught:
        RunConfig.from_dotted({key: 5})
    assert "5" in str(caught.value)


def test_all_faults_are_reported_at_once():
    """One error lists every wrong value and every unknown key."""
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_dotted({"train.steps": 0, "optim.lr": -1, "train.stpes": 3})
    assert all(key in str(caught.value) for key in ("train.steps=0", "optim.lr=-1", "train.stpes=3"))


CONTRADICTIONS = {
    "pretrained": ({"backbone": "qwen2.5-0.5b", "recurrence.split": None}, ["task.rendering=compact", "use text"]),
    "split": ({"recurrence.split": (1, 1, 2)}, ["recurrence.split=1/1/2", "3 layers", "tiny-qwen2"]),
    "workers": ({"compute.workers": 5}, ["train.batch_size=12", "compute.workers=5"]),
    "micro-batch": ({"compute.micro_batch": 7, "compute.workers": 2}, ["compute.micro_batch=7", "compute.workers=2"]),
    "warm-up": ({"optim.warmup_steps": 100}, ["optim.warmup_steps=100", "train.steps=100"]),
    "random": ({"schedule.kind": "random"}, ["schedule.kind=random", "final_only"]),
    "halves": (
        {"schedule.kind": "hold", "schedule.distribution": "uniform", "schedule.iterations": 2.25},
        ["schedule.iterations=2.25", "0.5"],
    ),
    "whole": ({"schedule.kind": "fixed", "schedule.iterations": 2.5}, ["schedule.iterations=2.5", "fixed"]),
    "first depth": ({"evaluation.depths": (9, 16)}, ["evaluation.depths=[9, 16]", "task.train_depth=8"]),
    "order": ({"evaluation.depths": (8, 32, 16)}, ["evaluation.depths=[8, 32, 16]"]),
    "repeated": ({"evaluation.depths": (8, 16, 16)}, ["evaluation.depths=[8, 16, 16]"]),
    "no depth": ({"evaluation.depths": ()}, ["evaluation.depths=[]"]),
    "ramp": ({"stretch.start": 0.9, "stretch.ramp": 0.2}, ["stretch.start=0.9", "stretch.ramp=0.2"]),
    "one read": (
        {"objective": "final_only", "halting.mode": "learned"},
        ["objective=final_only", "halting.mode=learned", "use objective=final_every"],
    ),
    "halting": ({"halting.k": 9}, ["halting.k=9", "halting.m=8"]),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_settings_that_contradict_each_other_are_refused(case):
    """The message names the settings, their values and what would do."""
    changes, parts = CONTRADICTIONS[case]
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_dotted(BASE | changes)
    assert all(part in str(caught.value) for part in parts)
    pickle.loads(pickle.dumps(caught.value))


def test_dotted_keys_nest():
    """Dots are groups; a key that is both a group and a value is a ConfigError, whichever comes first."""
    assert nest({"a.b.c": 1, "a.d": 2, "e": 3}) == {"a": {"b": {"c": 1}, "d": 2}, "e": 3}
    for values in ({"a": 1, "a.b": 2}, {"a.b": 2, "a": 1}):
        with pytest.raises(ConfigError, match="a"):
            nest(values)


@given(d=st.integers(1, 200), name=st.sampled_from(["swap-s5", "s5", "a4"]))
def test_depth_grids_ascend_from_the_training_depth(d, name):
    """The grid ascends from d_train to 16 times it, and the short grid holds depths below it only."""
    run = tiny_run(task__train_depth=d, task__name=name)
    grid, short = run.depth_grid(), run.short_grid()
    assert grid[0] == d
    assert grid[-1] == 16 * d
    assert list(short + grid) == sorted({*short, *grid})
    assert all(1 <= depth < d for depth in short)


def test_given_depths_are_the_grid():
    """Depths that are given are tested as they are; swap-s5 trained at 32 has the published ones."""
    assert tiny_run(evaluation__depths=(4, 5, 40)).depth_grid() == (4, 5, 40)
    published = tiny_run(task__name="swap-s5", task__train_depth=32).depth_grid()
    assert published == (32, 48, 64, 96, 128, 192, 256, 512)

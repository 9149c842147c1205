"""Search spaces: each fault of a file is found, once, at its line, before anything runs."""

import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.config.keys import known_keys
from par.config.run import RunConfig
from par.errors import SpaceError
from par.space.space import load_space
from tests.space.spaces import LR, line_and_message, space


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
        (space(LR, fixed="train.steps: !!int ''"), 5, ["train.steps=''"]),
        (f"question: {'[' * 3000}", 1, ["nested too deeply"]),
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
    assert line_and_message(str(refused.value))[0] in (1, 2)


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
    nested = space(LR) + "fixed: {train.steps: 300, train.steps: 301}\n"
    assert [message.split()[0] for _, message in faults(nested)] == ["fixed", "train.steps"]


def test_faults_survive_a_pickle(load):
    """The error crosses process boundaries with every line of its message."""
    with pytest.raises(SpaceError) as refused:
        load("question: 3\n")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


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


MUON = "optim.muon_lr: {float: [1e-3, 1e-2]}"
MUON_CHOICE = "optim.matrices: {choice: [adamw, muon]}\n"
MUON_ONLY = "optim.muon_lr: {float: [1e-3, 1e-2], when: {optim.matrices: muon}}"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (space(MUON), True),
        (space(MUON, fixed="optim.matrices: adamw"), True),
        (space(MUON_CHOICE + MUON), True),
        (space(MUON, fixed="optim.matrices: muon"), False),
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

"""Search spaces: values and combinations of them that a run would refuse are found in the space."""

import random
import re

import pytest

from tests.space.spaces import LR, draw, space


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
                  "train.batch_size: {choice: [6, 8]}\ncompute.workers: {choice: [1, 4]}"),
            ["train.batch_size=6", "compute.workers=4"],
        ),
        (space("schedule.kind: {choice: [hold, fixed]}\nschedule.iterations: {float: [1, 16]}"),
         ["schedule.iterations", "schedule.kind=fixed"]),
        (space("compute.workers: {int: [1, 4]}", fixed="train.batch_size: 4"),
         ["train.batch_size=4", "compute.workers=3"]),
        (space("train.batch_size: {int: [4, 400]}", fixed="compute.workers: 4"), ["compute.workers=4"]),
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
        "compute.workers: {choice: [1, 2, 4, 8]}\n"
        f"compute.micro_batch: {{choice: {[*range(1, 10)]}}}\n"
        "recurrence.anchor: {choice: [first, none]}\n"
        "recurrence.adapter_init: {choice: [state, input, sum]}\n"
        "objective: {choice: [progress, final_every]}"
    )
    [(_, message)] = faults(text)
    assert "compute.micro_batch=9" in message


def test_a_pair_behind_rare_conditions_is_found(faults):
    """Two values that meet only where two other settings have one of many values are tried together."""
    many = [*range(1, 31)]
    text = space(
        f"compute.report_every: {{choice: {many}}}\ncompute.checkpoint_every: {{choice: {many}}}\n"
        "halting.k: {choice: [1, 2, 3, 4, 5, 6, 7, 8], when: {compute.report_every: 7}}\n"
        "halting.m: {choice: [7, 8, 9, 10, 11, 12, 13, 14], when: {compute.checkpoint_every: 5}}\n"
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
    """A rule is not tried with the default of a setting that the file gives, wrongly."""
    assert [line for line, _ in faults(space("halting.k: {int: [1, 9]}", fixed="halting.m: 0"))] == [5]
    assert [line for line, _ in faults(space(LR, fixed="train.steps: 100\noptim.warmup_steps: -1"))] == [6]
    learnt = "halting.mode: {choice: [learnt]}\nhalting.k: {int: [1, 4], when: {halting.mode: learnt}}"
    assert [line for line, _ in faults(space(learnt, fixed="halting.m: 4"))] == [7]
    assert [line for line, _ in faults(space("task.rendering: {choice: [compact]}", backbones="[mini]"))] == [2]


def test_one_broken_rule_does_not_hide_another(faults):
    """Rules inside a group and rules between groups are all tried, also where each of them is always broken."""
    found = faults(space(LR, fixed="halting.k: 9\nstretch.start: 1\ntrain.steps: 100\ncompute.workers: 3"))
    assert [line for line, _ in found] == [5, 6, 7, 8]


def test_fixed_settings_need_not_be_a_run_of_their_own(faults):
    """Settings that only the searched ones make a run of are accepted."""
    search = "optim.warmup_steps: {int: [0, 100]}"
    assert faults(space(search, fixed="{train.steps: 150}", rest="configurations: 4")) == []

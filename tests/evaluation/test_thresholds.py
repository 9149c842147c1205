"""Rules scored on traces, against the rule itself, one at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from par.config.groups import HaltingConfig
from par.cost.sizes import LONGEST_WINDOW, recorded_iterations
from par.errors import ConfigError, DataError
from par.evaluation import thresholds
from par.evaluation.thresholds import Figures, Grid, known_depth, ranking, score, search
from par.evaluation.traces import Traces
from par.tasks.streams import Split
from par.testing import tiny_run
from tests.evaluation.firing import first_firing
from tests.evaluation.recorded import recorded

TAUS = (0.3, 0.5, 0.75)
P_YES = [0.0, 0.1, 0.2999, 0.3, 0.3001, 0.5, 0.5005, 0.75, 0.9, 1.0]


def plain(traces: Traces, rule: HaltingConfig) -> Figures:
    """The figures as they are said, one question after the other; prompts are told apart by their names."""
    last = int(traces.completed_S.max()) + rule.m
    p_yes_KS = torch.from_numpy(traces.p_yes_SK[:, :last].astype(np.float32)).T
    halted = first_firing(p_yes_KS, rule).tolist()
    right = [r > 0 and a[r - 1] == t for r, a, t in zip(halted, traces.answer_SK, traces.target_S, strict=True)]
    prompts: dict[tuple[int, int, str], list[bool]] = {}
    names = zip(traces.sequence_S.tolist(), traces.depth_S.tolist(), traces.split_S.tolist(), strict=True)
    for name, is_right in zip(names, right, strict=True):
        prompts.setdefault(name, []).append(is_right)
    fired = [r for r in halted if r]
    return Figures(
        single_query=sum(right) / len(right),
        full_state=sum(all(boxes) for boxes in prompts.values()) / len(prompts),
        not_halted=1 - len(fired) / len(halted),
        mean_iterations=sum(fired) / len(fired) if fired else None,
    )


@given(st.data(), st.integers(5, 18), st.integers(1, 3), st.integers(1, 12), st.integers(1, 5))
def test_every_rule_scores_as_the_rule_itself(data, iterations, sequences, longest, step_size):
    """Each (tau, k, m) has the figures that first_firing gives on 1 … K_max, windows longer than the trace included."""
    draws = data.draw(st.lists(st.sampled_from(P_YES), min_size=1, max_size=8 * iterations * sequences))
    traces = recorded(
        sequences=sequences, depths=(2, 5), boxes=2, iterations=iterations, p_yes=draws, step_size=step_size
    )
    grid = Grid.every(TAUS, longest)
    scores = score(traces, grid)
    for n in range(len(grid)):
        assert scores[n] == plain(traces, grid.rule(n)), grid.rule(n)


def test_the_blocks_of_a_long_trace_add_up(monkeypatch):
    """Scores are the same for any number of questions at a time, a last partial block included."""
    traces = recorded(sequences=7, boxes=3, iterations=20, p_yes=np.random.default_rng(1).random(977).tolist())
    grid = Grid.every(TAUS, 5)
    whole = score(traces, grid)
    monkeypatch.setattr(thresholds, "BLOCK", 6)
    parts = score(traces, grid)
    assert [parts[n] for n in range(len(grid))] == [whole[n] for n in range(len(grid))]


@pytest.mark.parametrize("m", [1, 8, 40])
def test_on_a_perfect_trace_every_rule_is_perfect(m):
    """Where Yes and the right answer come at completion and stay, every rule scores 1, whatever is configured."""
    run = tiny_run(halting__m=m, halting__k=1, recurrence__step_size=2, task__train_depth=9)
    plain = recorded(sequences=2, depths=run.tested_depths(), boxes=2, iterations=recorded_iterations(run), step_size=2)
    done_SK = np.arange(1, plain.iterations + 1) >= plain.completed_S[:, None]
    answer_SK = np.where(done_SK, plain.target_S[:, None], 1 - plain.target_S[:, None]).astype(np.int8)
    perfect = replace(plain, p_yes_SK=done_SK.astype(np.float16), answer_SK=answer_SK)
    scores = score(perfect, Grid.every(longest=max(m, LONGEST_WINDOW)))
    assert (scores.full_state_N == 1).all()
    assert (scores.mean_iterations_N == plain.completed_S.mean()).all()
    assert known_depth(perfect) == 1


def test_all_rules_may_fire_equally_late():
    """A model that says Yes one iteration after the deepest completion halts by every rule, two after by none."""
    traces = recorded(depths=(2, 5), iterations=5 + 12)
    for late, not_halted in ((1, 0), (2, 1)):
        yes_K = (np.arange(1, traces.iterations + 1) >= 5 + late).astype(np.float16)
        scores = score(replace(traces, p_yes_SK=np.tile(yes_K, (len(traces.box_S), 1))), Grid.every(TAUS, 12))
        assert (scores.not_halted_N == not_halted).all()


def test_the_default_grid_is_every_rule_up_to_32():
    """More than ten thousand rules: each of 21 taus, 0.5 among them, with each 1 <= k <= m <= 32."""
    grid = Grid.every()
    assert len(grid) == 21 * 32 * 33 // 2 > 10_000
    assert len(set(zip(grid.tau_N.tolist(), grid.k_N.tolist(), grid.m_N.tolist(), strict=True))) == len(grid)
    assert 0.5 in grid.tau_N
    assert (grid.k_N <= grid.m_N).all()


@pytest.mark.parametrize(("tau", "k", "m"), [(0.0, 1, 1), (1.0, 1, 1), (0.5, 0, 1), (0.5, 3, 2)])
def test_a_grid_without_sense_is_refused(tau, k, m):
    """A rule that no setting could hold is a ConfigError, and so is a grid without rules."""
    with pytest.raises(ConfigError, match="1 <= k <= m"):
        Grid(np.array([tau]), np.array([k]), np.array([m]))
    with pytest.raises(ConfigError, match="at least one rule"):
        Grid.every((), 3)


def scripted(p_yes: list[list[float]], right: list[list[int]], boxes: int = 1) -> Traces:
    """Both splits ask at one depth, completed at last, a row per prompt; its answers are right where marked 1."""
    plain = recorded(sequences=len(p_yes), depths=(len(p_yes[0]),), boxes=boxes, iterations=len(p_yes[0]))
    plain = replace(plain, target_S=np.zeros_like(plain.target_S))
    answer_SK = 1 - np.array(right, dtype=np.int8)
    return replace(plain, p_yes_SK=np.array(p_yes, np.float16)[plain.sequence_S], answer_SK=answer_SK[plain.sequence_S])


def test_the_best_rule_is_the_most_accurate_then_the_fastest():
    """Accuracy decides; among equals who halts most, then earliest; the smaller m, tau nearest 1/2, the larger k."""
    late = scripted([[0.9, 0.1, 0.9, 0.9, 0.9, 0.9]], [[0, 0, 1, 1, 1, 1]])
    ranked = ranking(late, Grid.every((0.2, 0.4, 0.6), 3), top=100)
    assert [(c.rule.tau, c.rule.k, c.rule.m) for c in ranked[:4]] == [
        (0.4, 2, 2), (0.6, 2, 2), (0.2, 2, 2), (0.4, 3, 3),
    ]  # fmt: skip
    assert len(ranked) == 18
    assert ranked[0].calibration == ranked[0].test == Figures(1.0, 1.0, 0.0, 3.0)
    assert ranked[-1].calibration == Figures(0.0, 0.0, 0.0, 1.0)
    alike = ranking(scripted([[0.9, 0.9, 0.9]], [[1, 1, 1]]), Grid.every((0.5,), 2), top=3)
    assert [(c.rule.k, c.rule.m) for c in alike] == [(1, 1), (2, 2), (1, 2)]


def test_a_rule_that_never_halts_is_no_good_rule():
    """On a model that is always wrong the best rule is the one that halts most; where none halts there is no mean."""
    wrong = scripted([[0.6, 0.1, 0.1], [0.1, 0.1, 0.3]], [[0, 0, 0]] * 2)
    ranked = ranking(wrong, Grid.every((0.2, 0.5, 0.9), 1), top=3)
    assert [c.rule.tau for c in ranked] == [0.2, 0.5, 0.9]
    assert [(c.test.not_halted, c.test.mean_iterations) for c in ranked] == [(0, 2), (0.5, 1), (1, None)]


def test_among_equal_full_states_the_most_right_questions_count():
    """No prompt is right, but a box is: the rule that halts there goes before one that halts more, and wrong."""
    traces = scripted([[0.6, 0.9, 0.1], [0.6, 0.1, 0.1]], [[0, 0, 0]] * 2, boxes=2)
    right_SK = (traces.box_S == 0)[:, None] & np.array([False, True, False])
    half = replace(traces, answer_SK=np.where(right_SK, 0, 1).astype(np.int8))
    ranked = ranking(half, Grid.every((0.5, 0.7), 1), top=2)
    assert [c.rule.tau for c in ranked] == [0.7, 0.5]
    assert [(c.test.single_query, c.test.not_halted) for c in ranked] == [(0.25, 0.5), (0, 0)]
    assert ranked[0].test.full_state == ranked[1].test.full_state == 0


def test_test_questions_choose_nothing():
    """The choice and its calibration figures are the same whatever the test questions say; its test figures are not."""
    traces = recorded(sequences=9, iterations=12, p_yes=np.random.default_rng(2).random(500).tolist())
    silent_SK = np.where((traces.split_S == Split.TEST)[:, None], np.float16(0), traces.p_yes_SK)
    grid = Grid.every(TAUS, 4)
    choice, silent = search(traces, grid), search(replace(traces, p_yes_SK=silent_SK), grid)
    assert (choice.rule, choice.calibration) == (silent.rule, silent.calibration)
    assert silent.test == Figures(0.0, 0.0, 1.0, None) != choice.test
    assert choice.test == plain(traces.of(Split.TEST), choice.rule)


def test_both_splits_are_needed():
    """A trace without test questions is refused by its column."""
    with pytest.raises(DataError, match="column split: no question is of test"):
        search(recorded().of(Split.CALIBRATION))

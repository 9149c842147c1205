"""Rules scored on traces, against the rule itself, one at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from par.config import HaltingConfig
from par.errors import ConfigError, DataError
from par.evaluation import thresholds
from par.evaluation.halting import first_firing
from par.evaluation.thresholds import Figures, Grid, ranking, score, search
from par.evaluation.traces import Traces
from par.tasks.streams import Split
from tests.evaluation.recorded import recorded

TAUS = (0.3, 0.5, 0.75)
P_YES = [0.0, 0.1, 0.2999, 0.3, 0.3001, 0.5, 0.5005, 0.75, 0.9, 1.0]


def plain(traces: Traces, rule: HaltingConfig) -> Figures:
    """The figures as they are said, one question after the other; prompts are told apart by their names."""
    p_yes_KS = torch.from_numpy(traces.p_yes_SK.astype(np.float32)).T
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
        mean_iterations=sum(fired) / max(1, len(fired)),
    )


@given(st.data(), st.integers(1, 14), st.integers(1, 3), st.integers(1, 12))
def test_every_rule_scores_as_the_rule_itself(data, iterations, sequences, longest):
    """Each (tau, k, m) has the figures that first_firing gives, windows longer than the trace included."""
    draws = data.draw(st.lists(st.sampled_from(P_YES), min_size=1, max_size=8 * iterations * sequences))
    traces = recorded(sequences=sequences, depths=(2, 5), boxes=2, iterations=iterations, p_yes=draws)
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


def scripted(p_yes: list[list[float]], right: list[list[int]]) -> Traces:
    """Both splits ask one box at depth 2 of as many sequences as there are rows; answers are right where marked 1."""
    plain = recorded(sequences=len(p_yes), depths=(2,), boxes=1, iterations=len(p_yes[0]))
    answer_SK = 1 - np.array(right, dtype=np.int8)
    return replace(plain, p_yes_SK=np.array(p_yes, np.float16)[plain.sequence_S], answer_SK=answer_SK[plain.sequence_S])


def test_the_best_rule_is_the_most_accurate_then_the_fastest():
    """Accuracy decides; among equals fewer mean iterations, then the smaller m, then tau nearest 1/2, then larger k."""
    late = scripted([[0.9, 0.1, 0.9, 0.9, 0.9, 0.9]], [[0, 0, 1, 1, 1, 1]])
    choices = ranking(late, Grid.every((0.2, 0.4, 0.6), 3), top=100)
    assert [(c.rule.tau, c.rule.k, c.rule.m) for c in choices[:4]] == [
        (0.4, 2, 2), (0.6, 2, 2), (0.2, 2, 2), (0.4, 3, 3),
    ]  # fmt: skip
    assert len(choices) == 18
    assert choices[0].calibration == choices[0].test == Figures(1.0, 1.0, 0.0, 3.0)
    assert choices[-1].calibration == Figures(0.0, 0.0, 0.0, 1.0)
    alike = ranking(scripted([[0.9, 0.9, 0.9]], [[1, 1, 1]]), Grid.every((0.5,), 2), top=3)
    assert [(c.rule.k, c.rule.m) for c in alike] == [(1, 1), (2, 2), (1, 2)]


def test_test_questions_choose_nothing():
    """The choice and its calibration figures are the same whatever the test questions say; its test figures are not."""
    traces = recorded(sequences=9, iterations=12, p_yes=np.random.default_rng(2).random(500).tolist())
    silent_SK = np.where((traces.split_S == Split.TEST)[:, None], np.float16(0), traces.p_yes_SK)
    grid = Grid.every(TAUS, 4)
    choice, silent = search(traces, grid), search(replace(traces, p_yes_SK=silent_SK), grid)
    assert (choice.rule, choice.calibration) == (silent.rule, silent.calibration)
    assert silent.test == Figures(0.0, 0.0, 1.0, 0.0) != choice.test
    assert choice.test == plain(traces.of(Split.TEST), choice.rule)


def test_both_splits_are_needed():
    """A trace without test questions is refused by its column."""
    with pytest.raises(DataError, match="column split: no question is of test"):
        search(recorded().of(Split.CALIBRATION))

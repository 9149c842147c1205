"""Lazy probing against the rule on whole traces, with every read counted."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from par.config.groups import HaltingConfig
from par.evaluation.lazily import LazyHalting, kept_states, stride
from tests.evaluation.firing import first_firing


@dataclass
class Run:
    """A model whose p_yes are known beforehand; it notes who was read where and when, and who left when."""

    p_yes_SK: np.ndarray
    rule: HaltingConfig
    reads: list[tuple[int, int, int]] = field(default_factory=list)
    """(sequence, iteration, iteration at which it was read)."""
    left: dict[int, int] = field(default_factory=dict)
    """The iteration after which each sequence left."""

    def __post_init__(self) -> None:
        S, K = self.p_yes_SK.shape
        self.halting = LazyHalting(self.rule, sequences=S, last=K, read=self.read)
        for now in range(1, K + 1):
            gone = self.halting.advance().tolist()
            assert not self.left.keys() & gone
            self.left |= dict.fromkeys(gone, now)

    def read(self, iterations_N: np.ndarray, sequences_N: np.ndarray) -> np.ndarray:
        now = self.halting.iteration
        self.reads += [(s, k, now) for s, k in zip(sequences_N.tolist(), iterations_N.tolist(), strict=True)]
        return self.p_yes_SK[sequences_N, iterations_N - 1]

    def exhaustive(self) -> list[int]:
        return first_firing(torch.from_numpy(self.p_yes_SK).T, self.rule).tolist()


@st.composite
def rules(draw: st.DrawFn) -> HaltingConfig:
    m = draw(st.integers(1, 12))
    return HaltingConfig(mode="learned", tau=draw(st.sampled_from([0.3, 0.5, 0.9])), k=draw(st.integers(1, m)), m=m)


@st.composite
def bursts(draw: st.DrawFn, iterations: int) -> list[float]:
    """Runs of equal p_yes, from single iterations to longer than a window."""
    runs = draw(st.lists(st.tuples(st.sampled_from([0.1, 0.4, 0.5, 0.95]), st.integers(1, 16)), min_size=1))
    trace = [p for p, length in runs for _ in range(length)]
    return [trace[k % len(trace)] for k in range(iterations)]


@st.composite
def traces(draw: st.DrawFn) -> np.ndarray:
    """Up to five sequences (S, K): noise, or bursts."""
    iterations = draw(st.integers(1, 40))
    noise = st.lists(st.sampled_from([0.1, 0.4, 0.5, 0.95]), min_size=iterations, max_size=iterations)
    rows = draw(st.lists(noise | bursts(iterations), min_size=1, max_size=5))
    return np.array(rows, dtype=np.float32)


@given(traces(), rules())
def test_lazy_halts_where_the_rule_does(p_yes_SK, rule):
    """Every sequence halts at the first firing of the exhaustive rule, or not at all as it."""
    run = Run(p_yes_SK, rule)
    assert run.halting.halted_S.tolist() == run.exhaustive()


@given(traces(), rules())
def test_every_sequence_leaves_in_time(p_yes_SK, rule):
    """A sequence leaves within the window that fires, its last iteration at the latest; all have left after K.

    Where the trace is shorter than a window, none was ever in.
    """
    run = Run(p_yes_SK, rule)
    for sequence, halted in enumerate(run.exhaustive()):
        if halted:
            assert halted + rule.k - 1 <= run.left[sequence] <= halted + rule.m - 1
    assert not len(run.halting.running_A)


@given(traces(), rules())
def test_reads_are_of_kept_states_once_and_of_running_sequences(p_yes_SK, rule):
    """No state is read twice, before it is there, after it was dropped, or after its sequence has left."""
    run = Run(p_yes_SK, rule)
    assert len({(sequence, iteration) for sequence, iteration, _ in run.reads}) == len(run.reads)
    for sequence, iteration, now in run.reads:
        assert now - kept_states(rule) < iteration <= now <= run.left[sequence]


@given(traces(), rules())
def test_the_answer_has_been_read(p_yes_SK, rule):
    """The state at which a sequence halts is among its reads, so that the answer costs no further one."""
    run = Run(p_yes_SK, rule)
    read = {(sequence, iteration) for sequence, iteration, _ in run.reads}
    assert all((s, halted) in read for s, halted in enumerate(run.halting.halted_S.tolist()) if halted)


@pytest.mark.parametrize(("k", "m", "step"), [(6, 8, 2), (7, 8, 4), (8, 8, 8), (4, 8, 1), (1, 1, 1), (14, 16, 5)])
def test_silence_is_read_at_every_stride(k, m, step):
    """A trace without a yes is read at every stride-th iteration and nowhere else."""
    rule = HaltingConfig(k=k, m=m)
    assert stride(rule) == step
    run = Run(np.zeros((3, 200), dtype=np.float32), rule)
    probed = {iteration for _, iteration, _ in run.reads}
    assert probed == set(range(step, max(probed) + 1, step))
    assert 200 - m < max(probed) + step


@pytest.mark.parametrize("done", range(20, 36))
def test_a_clean_switch_costs_one_window(done):
    """From no to yes for good, 6/8 leaves 5 iterations after the switch, with at most 6 reads besides the probes."""
    run = Run(np.where(np.arange(1, 101) >= done, 0.9, 0.1).astype(np.float32)[None], HaltingConfig())
    assert run.halting.halted_S.tolist() == [done]
    assert run.left == {0: done + 5}
    assert len(run.reads) <= (done + 5) // 2 + 6


@pytest.mark.parametrize(
    ("yes", "read"),
    [
        ([0, 1, 1, 1, 1, 1, 1, 1], {1, 2, 4, 6}),  # no window of 8 begins after 1
        ([1, 1, 0, 1, 0, 1, 1, 1], {1, 2, 3, 4, 5, 6, 7, 8}),  # 6 of 8 need the last
        ([1, 1, 1, 1, 1, 1, 1, 1], {1, 2, 3, 4, 5, 6}),  # 6 yes suffice
        ([1, 1, 1, 0, 1, 0, 1, 0], {2, 4, 6, 8}),  # too few yes by the probes alone
        ([1, 1, 0, 1, 0, 1, 0, 1], {1, 2, 3, 4, 5, 6, 7, 8}),
        ([1, 1, 0, 0, 0, 1, 1, 1], {1, 2, 3, 4, 5, 6, 8}),  # the third no settles it without 7
    ],
)
def test_no_read_comes_after_the_window_is_settled(yes, read):
    """Of the only window of 6/8 nothing is read once it is certain to fire, or not to."""
    run = Run(np.array([yes], dtype=np.float32), HaltingConfig())
    assert {iteration for _, iteration, _ in run.reads} == read
    assert run.halting.halted_S.tolist() == run.exhaustive()


def test_one_yes_among_no_is_passed_over():
    """A single yes between probes that say no leads to no further read: 6/8 cannot fire there."""
    p_yes_SK = np.zeros((1, 100), dtype=np.float32)
    p_yes_SK[0, 49] = 1
    assert all(iteration % 2 == 0 for _, iteration, _ in Run(p_yes_SK, HaltingConfig()).reads)

"""All rules of the default grid on the trace of one model: what `par thresholds` does with each split."""

from itertools import product

import numpy as np

from benchmarks.harness import Case, Target
from par.cost.sizes import LONGEST_WINDOW
from par.evaluation.thresholds import Grid, score
from par.evaluation.traces import Traces
from par.tasks.streams import Split

QUESTIONS, ITERATIONS, BOXES = 1024, 640, 4
SWITCHES = 1 / 24
"""Share of iterations at which a question's p_yes is drawn anew."""


def case() -> Case:
    """Rules scored through the distances between yeses, beside each rule by sums over its windows; figures agree.

    The law is 2 s for the whole grid, 5 544 rules/s.
    """
    traces, grid = drawn_traces(QUESTIONS, ITERATIONS), Grid.every()
    return Case(
        name="thresholds",
        setting={"questions": QUESTIONS, "iterations": ITERATIONS, "rules": len(grid)},
        amount=len(grid),
        unit="rules",
        product=lambda: figures(traces, grid),
        reference=lambda: plain_figures(traces, grid),
        target=Target("≥", 6),
        repeats=3,
    )


def drawn_traces(questions: int, iterations: int) -> Traces:
    """Test questions of 16 depths that say yes and no in stretches, mostly no before completion and yes after it."""
    rng, S = np.random.default_rng(0), questions
    completed_S = np.repeat(np.linspace(1, iterations - LONGEST_WINDOW, 16).astype(np.int32), S // 16)
    drawn_SK = rng.random((S, iterations))
    held_SK = np.maximum.accumulate(np.where(rng.random((S, iterations)) < SWITCHES, np.arange(iterations), 0), axis=1)
    level_SK = np.take_along_axis(drawn_SK, held_SK, axis=1)
    done_SK = np.arange(1, iterations + 1) >= completed_S[:, None]
    return Traces(
        split_S=np.full(S, Split.TEST),
        sequence_S=np.tile(np.repeat(np.arange(S // 16 // BOXES, dtype=np.int32), BOXES), 16),
        depth_S=completed_S,
        completed_S=completed_S,
        box_S=np.tile(np.arange(BOXES, dtype=np.int8), S // BOXES),
        target_S=np.zeros(S, dtype=np.int8),
        p_yes_SK=np.where(done_SK, 1 - level_SK**3, level_SK**3).astype(np.float16),
        answer_SK=(rng.random((S, iterations)) < 0.2).astype(np.int8),
    )


def figures(traces: Traces, grid: Grid) -> tuple[float, ...]:
    """Single query, full state and not halted of every rule, from the search."""
    scores = score(traces, grid)
    return tuple(np.concatenate([scores.single_query_N, scores.full_state_N, scores.not_halted_N]).tolist())


def plain_figures(traces: Traces, grid: Grid) -> tuple[float, ...]:
    """The same, one rule after the other, each on every window that it may fire at."""
    starts = int(traces.completed_S.max()) + 1
    right_SK, rows_PX = traces.answer_SK == traces.target_S[:, None], traces.prompts()
    shares_N3 = np.zeros((len(grid), 3))
    for tau, m in product(np.unique(grid.tau_N), np.unique(grid.m_N)):
        yes_SK = traces.p_yes_SK.astype(np.float32) > np.float32(tau)
        until_SK = np.pad(yes_SK.cumsum(1, dtype=np.int16), ((0, 0), (1, 0)))
        counts_SR = np.where(yes_SK[:, :starts], until_SK[:, m : m + starts] - until_SK[:, :starts], 0)
        for n in np.flatnonzero((grid.tau_N == tau) & (grid.m_N == m)):
            fires_SR = counts_SR >= grid.k_N[n]
            first_S, halted_S = fires_SR.argmax(1), fires_SR.any(1)
            right_S = halted_S & right_SK[np.arange(len(first_S)), first_S]
            shares_N3[n] = right_S.mean(), right_S[rows_PX].all(1).mean(), 1 - halted_S.mean()
    return tuple(shares_N3.T.ravel().tolist())

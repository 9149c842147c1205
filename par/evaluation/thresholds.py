"""Halting rules scored on recorded traces, thousands at once and without the model; the best of them.

A rule (tau, k, m) fires at the first yes whose k-th yes, itself counted, comes at most m − 1 iterations later. Thus
for one tau and k the distances between yeses tell the firing iteration for every m. Each rule has the K_max that it has
where it is configured, the iteration that completes the deepest prompt + m, so that all may fire equally late.

Dimension letters: S questions, K iterations, N rules, M rules of equal tau and k, Y yeses of all questions in a row,
P prompts, X boxes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from par.config.groups import HaltingConfig
from par.cost.sizes import LONGEST_WINDOW
from par.errors import ConfigError
from par.evaluation.traces import Traces
from par.tasks.streams import Split

TAUS: tuple[float, ...] = tuple(np.linspace(0.02, 0.98, 21).round(3).tolist())
BLOCK = 1024
"""Questions that are scored at a time: their intermediate arrays stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Rules to score. Raises ConfigError where 0 < tau < 1 or 1 <= k <= m does not hold."""

    tau_N: np.ndarray
    k_N: np.ndarray
    m_N: np.ndarray

    def __post_init__(self) -> None:
        fits_N = (self.tau_N > 0) & (self.tau_N < 1) & (self.k_N >= 1) & (self.k_N <= self.m_N)
        if not len(fits_N) or not fits_N.all():
            raise ConfigError("a grid has at least one rule, and each has 0 < tau < 1 and 1 <= k <= m")

    @classmethod
    def every(cls, taus: Sequence[float] = TAUS, longest: int = LONGEST_WINDOW) -> Self:
        """Each tau with all 1 <= k <= m <= ``longest``."""
        tau_N, k_N, m_N = (axis.ravel() for axis in np.meshgrid(taus, *[np.arange(1, longest + 1)] * 2, indexing="ij"))
        return cls(tau_N[k_N <= m_N], k_N[k_N <= m_N], m_N[k_N <= m_N])

    def __len__(self) -> int:
        return len(self.tau_N)

    def __getitem__(self, rules: Sequence[int] | np.ndarray) -> Self:
        return type(self)(self.tau_N[rules], self.k_N[rules], self.m_N[rules])

    def rule(self, number: int) -> HaltingConfig:
        """One of the rules as a setting."""
        return HaltingConfig(
            mode="learned", tau=float(self.tau_N[number]), k=int(self.k_N[number]), m=int(self.m_N[number])
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """What one rule achieves on the questions of a split. Not halted is kept apart from wrong."""

    single_query: float
    """Share of questions that halted with the right answer."""
    full_state: float
    """Share of prompts whose boxes all halted with the right answer."""
    not_halted: float
    """Share of questions that never halted."""
    mean_iterations: float | None
    """Iteration at which a question halted, mean over those that did; None if none did."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The Figures of many rules."""

    single_query_N: np.ndarray
    full_state_N: np.ndarray
    not_halted_N: np.ndarray
    mean_iterations_N: np.ndarray
    """NaN where no question halted."""

    def __getitem__(self, number: int) -> Figures:
        iterations = float(self.mean_iterations_N[number])
        return Figures(
            single_query=float(self.single_query_N[number]),
            full_state=float(self.full_state_N[number]),
            not_halted=float(self.not_halted_N[number]),
            mean_iterations=None if np.isnan(iterations) else iterations,
        )


@dataclass(frozen=True, slots=True)
class RankedRule:
    """A rule, what it was chosen for, and what it achieves where it was not chosen."""

    rule: HaltingConfig
    calibration: Figures
    test: Figures


def search(traces: Traces, grid: Grid | None = None) -> RankedRule:
    """The best rule of the grid on the calibration split; of Grid.every() by default."""
    return ranking(traces, grid or Grid.every(), top=1)[0]


def ranking(traces: Traces, grid: Grid, *, top: int) -> list[RankedRule]:
    """The ``top`` best rules on the calibration split, best first.

    The best has the highest full-state accuracy; then the highest single-query accuracy, the fewest questions not
    halted, the fewest mean iterations, the smallest m, the tau nearest 1/2, the largest k.
    Raises DataError if the traces lack a split.
    """
    calibration, test = traces.of(Split.CALIBRATION), traces.of(Split.TEST)
    scores = score(calibration, grid)
    best_first_N = np.lexsort((
        -grid.k_N, np.abs(grid.tau_N - 0.5), grid.m_N,
        scores.mean_iterations_N, scores.not_halted_N, -scores.single_query_N, -scores.full_state_N,
    ))[:top]  # fmt: skip
    tested = score(test, grid[best_first_N])
    return [RankedRule(grid.rule(n), scores[n], tested[place]) for place, n in enumerate(best_first_N.tolist())]


def score(traces: Traces, grid: Grid) -> Scores:
    """What each rule achieves on all questions of the traces."""
    rows_PX, completed = traces.prompts(), int(traces.completed_S.max())
    P, X = rows_PX.shape
    counts_4N = np.zeros((4, len(grid)), dtype=np.int64)
    for first in range(0, P, max(1, BLOCK // X)):
        rows_XP = rows_PX[first : first + max(1, BLOCK // X)].T
        right_XPK = traces.answer_SK[rows_XP] == traces.target_S[rows_XP][..., None]
        _count(counts_4N, grid, completed, traces.p_yes_SK[rows_XP].astype(np.float32), right_XPK)
    right_N, full_N, halted_N, iterations_N = counts_4N
    return Scores(
        single_query_N=right_N / (P * X),
        full_state_N=full_N / P,
        not_halted_N=1 - halted_N / (P * X),
        mean_iterations_N=np.where(halted_N > 0, iterations_N / np.maximum(1, halted_N), np.nan),
    )


def known_depth(traces: Traces) -> float:
    """Share of prompts whose boxes are all right at the iteration that completes them."""
    right_S = traces.answer_SK[np.arange(len(traces.target_S)), traces.completed_S - 1] == traces.target_S
    return float(right_S[traces.prompts()].all(1).mean())


def _count(counts_4N: np.ndarray, grid: Grid, completed: int, p_yes_XPK: np.ndarray, right_XPK: np.ndarray) -> None:
    """Add to each rule's questions right, prompts right, questions halted and their iterations."""
    X, P, K = p_yes_XPK.shape
    right_SK1 = np.zeros((X * P, K + 1), dtype=bool)
    right_SK1[:, 1:] = right_XPK.reshape(-1, K)
    first_right_S = np.arange(X * P) * (K + 1)
    for tau in np.unique(grid.tau_N):
        yeses = Yeses(p_yes_XPK.reshape(-1, K) > np.float32(tau), completed, longest=int(grid.m_N.max()))
        of_tau_N = np.flatnonzero(grid.tau_N == tau)
        for k in np.unique(grid.k_N[of_tau_N]):
            rules_M = of_tau_N[grid.k_N[of_tau_N] == k]
            halted_MS = yeses.first_firings(int(k), grid.m_N[rules_M])
            right_MS = right_SK1.ravel().take(halted_MS + first_right_S)
            counts_4N[:, rules_M] += np.stack([
                np.count_nonzero(right_MS, axis=1),
                np.count_nonzero(right_MS.reshape(-1, X, P).all(1), axis=1),
                np.count_nonzero(halted_MS, axis=1),
                halted_MS.sum(1),
            ])  # fmt: skip


class Yeses:
    """Where the questions of a block say yes under one tau."""

    def __init__(self, yes_SK: np.ndarray, completed: int, *, longest: int) -> None:
        self.S, self.K = yes_SK.shape
        self.completed = completed
        """Iteration that completes the deepest prompt."""
        self.longest = longest
        self.place_Y = np.flatnonzero(yes_SK).astype(np.int32)
        """Iterations of all questions in a row. A window that runs into the next question does not fit into its own."""
        self.question_Y = self.place_Y // np.int32(self.K)

    def first_firings(self, k: int, m_M: np.ndarray) -> np.ndarray:
        """Where each question halts under the rules (k, m), (M, S), 1-based; 0 where it does not.

        The windows lie in the iterations 1 … completed + m, or in all where fewer were recorded.
        """
        firsts_RS = self._firsts_by_reach(k)
        for nearer_S, first_S in pairwise(firsts_RS):
            np.minimum(nearer_S, first_S, out=first_S)
        halted_MS = firsts_RS[m_M - 1]
        latest_M = np.minimum(self.completed, self.K - m_M) + 1
        halted_MS[halted_MS > latest_M[:, None]] = 0
        return halted_MS

    def _firsts_by_reach(self, k: int) -> np.ndarray:
        """The first iteration whose k-th yes is R iterations later, if that is nearer than before; K + 1 if none is.

        Keys fall from one question to the next, so that one running minimum serves all of them.
        """
        starts = max(0, len(self.place_Y) - k + 1)
        reach_Y = np.minimum(self.place_Y[k - 1 :] - self.place_Y[:starts], self.longest)
        key_Y = reach_Y - self.question_Y[:starts] * np.int32(self.longest + 1)
        falls = np.flatnonzero(np.diff(key_Y, prepend=key_Y[:1] + 1) < 0)
        records = falls[np.diff(np.minimum.accumulate(key_Y[falls]), prepend=key_Y[:1] + 1) < 0]
        question = self.question_Y[records]
        firsts_RS = np.full((self.longest + 1, self.S), self.K + 1, dtype=np.int32)
        firsts_RS[reach_Y[records], question] = self.place_Y[records] - question * self.K + 1
        return firsts_RS

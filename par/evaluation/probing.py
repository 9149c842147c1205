"""Learned halting while the model runs: few iterations are read out, and the rule fires where it would on all of them.

A window that fires holds at most m − k no among its m iterations. Of m iterations in a row at least m − k + 1 are
probed: where all of these say no, nothing else is read. Where some say yes, the window is settled by reads of its own.

Dimension letters: S sequences, K iterations, A sequences that still run, M iterations of a window, N reads.
"""

from collections.abc import Callable

import numpy as np

from par.config.groups import HaltingConfig

Read = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""read(iterations_N, sequences_N) gives p_yes_N; iterations count from 1, sequences are numbered as at the start."""

UNREAD, NO, YES = np.int8(-1), np.int8(0), np.int8(1)


def stride(rule: HaltingConfig) -> int:
    """Every how many iterations all sequences are probed: the largest step that misses no window."""
    return rule.m // (rule.m - rule.k + 1)


def kept_states(rule: HaltingConfig) -> int:
    """How many of the latest states must be at hand: a window is settled when its last iteration is done, at most."""
    return rule.m


class LazyHalting:
    """Halts each sequence at the first firing of the rule within 1 … ``last``, from as few reads as settle it.

    Call ``advance`` once after every iteration. It asks ``read`` for states of the latest kept_states(rule) iterations,
    for no state twice, and for none of a sequence that has left. A sequence halts as soon as k yes are certain, which
    saves up to m − k iterations; the answer is that of its state at ``halted_S``, which has been read by then.
    """

    def __init__(self, rule: HaltingConfig, *, sequences: int, last: int, read: Read) -> None:
        self.rule, self.read = rule, read
        self.iteration = 0
        self.halted_S = np.zeros(sequences, dtype=np.int64)
        """Iteration at which each sequence halts; 0 while it has not."""
        self._final_start = last - rule.m + 1
        self._start_S = np.ones(sequences, dtype=np.int64)
        """The first iteration at which each sequence may still halt."""
        self._seen_SK = np.full((sequences, last + 1), UNREAD)
        self.running_A = np.arange(sequences if self._final_start > 0 else 0)
        """Sequences that have neither halted nor run out of windows."""

    def advance(self) -> np.ndarray:
        """Settle what the state of one more iteration allows; return the sequences that leave, halted or not."""
        self.iteration += 1
        before_A = self.running_A
        if self.iteration % stride(self.rule) == 0:
            self._look(self.running_A, np.full(len(self.running_A), self.iteration))
        while len(found := np.argwhere(self._wanted(self._settle()))):
            sequences_N = self.running_A[found[:, 0]]
            self._look(sequences_N, self._start_S[sequences_N] + found[:, 1])
        return np.setdiff1d(before_A, self.running_A, assume_unique=True)

    def _look(self, sequences_N: np.ndarray, iterations_N: np.ndarray) -> None:
        if len(sequences_N):
            self._seen_SK[sequences_N, iterations_N] = self.read(iterations_N, sequences_N) > self.rule.tau

    def _settle(self) -> np.ndarray:
        """Pass over the windows that cannot fire, let go of who is settled, and return the others' windows (A, M)."""
        while True:
            window_AM = self._windows()
            dead_A = (window_AM[:, 0] == NO) | ((window_AM == NO).sum(1) > self.rule.m - self.rule.k)
            if not dead_A.any():
                break
            self._start_S[self.running_A[dead_A]] += 1
            self.running_A = self.running_A[self._start_S[self.running_A] <= self._final_start]
        fires_A = (window_AM[:, 0] == YES) & ((window_AM == YES).sum(1) >= self.rule.k)
        self.halted_S[self.running_A[fires_A]] = self._start_S[self.running_A[fires_A]]
        self.running_A = self.running_A[~fires_A]
        return window_AM[~fires_A]

    def _windows(self) -> np.ndarray:
        offsets_M = np.arange(self.rule.m)
        return self._seen_SK[self.running_A[:, None], self._start_S[self.running_A, None] + offsets_M]

    def _wanted(self, window_AM: np.ndarray) -> np.ndarray:
        """The earliest unread iteration of every window that fires if all its unread ones so far say yes, (A, M)."""
        past_AM = np.arange(self.rule.m) <= self.iteration - self._start_S[self.running_A, None]
        unread_AM = past_AM & (window_AM == UNREAD)
        can_fire_A1 = ((window_AM == YES) | unread_AM).sum(1, keepdims=True) >= self.rule.k
        return unread_AM & (unread_AM.cumsum(1) == 1) & can_fire_A1

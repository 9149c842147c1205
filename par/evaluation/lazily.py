"""Learned halting while the model runs: each question halts by the rule, few states are read, who is done leaves.

A window that fires holds at most m − k no among its m iterations. Of m iterations in a row at least m − k + 1 are
probed: where all of these say no, nothing else is read. Where some say yes, the window is settled by reads of its own.

Dimension letters: S = B·N sequences (questions), B prompts, N branches or reads, T tokens, H width, C candidates,
K iterations, M iterations of a window, A sequences that still run or are read.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from par.config.groups import HaltingConfig
from par.model.context import Context
from par.model.reading import Answer, Shown, Staying
from par.model.readout import answers_and_p_yes

WORTH_MOVING = 0.125
"""Share of a batch's tokens that must be done before the others are moved together."""
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
            iterations_AM = self._start_S[self.running_A, None] + np.arange(self.rule.m)
            window_AM = self._seen_SK[self.running_A[:, None], iterations_AM]
            dead_A = (window_AM[:, 0] == NO) | ((window_AM == NO).sum(1) > self.rule.m - self.rule.k)
            if not dead_A.any():
                break
            self._start_S[self.running_A[dead_A]] += 1
            self.running_A = self.running_A[self._start_S[self.running_A] <= self._final_start]
        fires_A = (window_AM[:, 0] == YES) & ((window_AM == YES).sum(1) >= self.rule.k)
        self.halted_S[self.running_A[fires_A]] = self._start_S[self.running_A[fires_A]]
        self.running_A = self.running_A[~fires_A]
        return window_AM[~fires_A]

    def _wanted(self, window_AM: np.ndarray) -> np.ndarray:
        """The earliest unread iteration of every window that fires if all its unread ones so far say yes, (A, M)."""
        past_AM = np.arange(self.rule.m) <= self.iteration - self._start_S[self.running_A, None]
        unread_AM = past_AM & (window_AM == UNREAD)
        can_fire_A1 = ((window_AM == YES) | unread_AM).sum(1, keepdims=True) >= self.rule.k
        return unread_AM & (unread_AM.cumsum(1) == 1) & can_fire_A1


class LazyReading:
    """Halts every branch of a batch; the last two candidates are Yes and No.

    The latest m states are kept, as a skipped iteration may have to be read once a later one says yes. Branches at the
    end and whole prompts leave when they are done, so those that halt first are best listed last.
    """

    def __init__(self, rule: HaltingConfig, *, last: int, prompts: int, branches: int) -> None:
        self.count = last
        self.branches = branches
        self.halting = LazyHalting(rule, sequences=prompts * branches, last=last, read=self._read)
        self.answered_S = np.zeros(prompts * branches, dtype=np.int64)
        """Answers read at the iteration at which each question has halted."""
        self.read_S = np.zeros(prompts * branches, dtype=np.int64)
        """Read-outs that each question has asked for."""
        self.computed_BN = np.zeros((prompts, branches), dtype=np.int64)
        """Read-outs that the coda has computed of each question: those asked for, and what lay between them."""
        self.coda_calls = 0
        self._ring_m = kept_states(rule)
        self._ring: dict[int, Tensor] = {}
        self._answers_KS: dict[int, np.ndarray] = {}
        self._rows_B = np.arange(prompts)
        """Prompts that still iterate, by their place in the whole batch."""

    def after(self, shown: Shown, answer: Answer) -> Staying | None:
        """Read what settles the rule at this iteration, and let go of who is done."""
        self._ring[shown.k] = shown.state_BTH
        self._ring.pop(shown.k - self._ring_m, None)
        self._answers_KS.pop(shown.k - self._ring_m - 1, None)
        self._context, self._answer = shown.context, answer
        left_A = self.halting.advance()
        halted_A = left_A[self.halting.halted_S[left_A] > 0]
        for question in halted_A.tolist():
            self.answered_S[question] = self._answers_KS[int(self.halting.halted_S[question])][question]
        return self._staying(shown.context)

    def result(self) -> Tensor:
        """Iteration (0 where it has not halted) and answer of every branch, (2, B, N)."""
        both_2S = np.stack([self.halting.halted_S, self.answered_S])
        return torch.from_numpy(both_2S).unflatten(1, (-1, self.branches))

    def _read(self, iterations_A: np.ndarray, questions_A: np.ndarray) -> np.ndarray:
        """p_yes (A,) of questions after iterations that are still at hand."""
        p_yes_A = np.empty(len(questions_A))
        for k in np.unique(iterations_A):
            of_k = iterations_A == k
            p_yes_A[of_k] = self._read_state(int(k), questions_A[of_k])
        self.read_S += np.bincount(questions_A, minlength=len(self.read_S))
        return p_yes_A

    def _read_state(self, k: int, questions_A: np.ndarray) -> np.ndarray:
        """One call of the coda, on the prompts and the range of branches that hold the questions."""
        prompts_A, branches_A = questions_A // self.branches, questions_A % self.branches
        first, last = int(branches_A.min()), int(branches_A.max()) + 1
        asked_B = np.unique(prompts_A)
        rows_B = torch.from_numpy(np.searchsorted(self._rows_B, asked_B)).to(self._ring[k].device)
        state_BTH = self._context.layout.take(self._ring[k], first, last, rows_B)
        context = self._context.part(first, last, rows_B)
        logits_BNC = self._answer(state_BTH, context, torch.from_numpy(asked_B).to(rows_B.device))
        places_A = np.searchsorted(asked_B, prompts_A), branches_A - first
        said_A, p_yes_A = (values_BN.cpu().numpy()[places_A] for values_BN in answers_and_p_yes(logits_BNC))
        answers_S = self._answers_KS.setdefault(k, np.zeros(len(self.read_S), dtype=np.int64))
        answers_S[questions_A] = said_A
        self.computed_BN[asked_B, first:last] += 1
        self.coda_calls += 1
        return p_yes_A

    def _staying(self, context: Context) -> Staying | None:
        """The smallest block of prompts and branches that holds all running questions, if moving them together pays."""
        running_A = self.halting.running_A
        if not len(running_A):
            return Staying(0)
        branches = int((running_A % self.branches).max()) + 1
        keep_B = np.isin(self._rows_B, running_A // self.branches)
        share = keep_B.mean() * context.layout.part(0, branches).tokens / context.layout.tokens
        if share > 1 - WORTH_MOVING:
            return None
        rows_B = torch.from_numpy(np.flatnonzero(keep_B)).to(context.cos_BTD.device)
        self._ring = {k: context.layout.take(state, 0, branches, rows_B) for k, state in self._ring.items()}
        self._rows_B = self._rows_B[keep_B]
        return Staying(branches, rows_B)

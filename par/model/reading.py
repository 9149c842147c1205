"""What is read while a batch iterates without gradient, and who leaves it when.

Dimension letters: K iterations, B prompts, T tokens, H width, N branches, C candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from par.model.context import Context

Answer = Callable[[Tensor, Context, Tensor | None], Tensor]
"""answer(state_BTH, context, rows_B): logits (B, N, C) of every branch of the context; rows_B are the places of the
prompts in the whole batch, None where all are there.
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """What there is to see after an iteration."""

    k: int
    state_BTH: Tensor
    context: Context
    drift: Callable[[], Tensor]
    """rms(s_k) / rms(s_1) before rescaling, mean over the real tokens of those who iterate: a scalar."""


@dataclass(frozen=True, slots=True)
class Staying:
    """Who goes on iterating."""

    branches: int
    """The first ones; 0 ends the pass."""
    rows_B: Tensor | None = None
    """Prompts, as places in the batch that has just iterated; None keeps all."""


class Reading(Protocol):
    """Is shown the state after every iteration."""

    @property
    def count(self) -> int:
        """R, at most."""
        ...

    def after(self, shown: Shown, answer: Answer) -> Staying | None:
        """Read what is wanted of the iteration; return who goes on, None for all."""
        ...

    def result(self) -> Tensor:
        """What has been read."""
        ...


def all_branches(shown: Shown, answer: Answer) -> Tensor:
    """The logits (B, N, C) of every branch."""
    return answer(shown.state_BTH, shown.context, None)


class AtIterations:
    """What there is to see after each of some iterations: by default every branch is read."""

    def __init__(self, keep: Sequence[int], see: Callable[[Shown, Answer], Tensor] = all_branches) -> None:
        self.keep, self.count, self.see = frozenset(keep), max(keep), see
        self._seen: list[Tensor] = []

    def after(self, shown: Shown, answer: Answer) -> Staying | None:
        """See it where it is wanted."""
        if shown.k in self.keep:
            self._seen.append(self.see(shown, answer))
        return None

    def result(self) -> Tensor:
        """What was seen, (K, …), iterations ascending."""
        return torch.stack(self._seen)


class OwnIteration:
    """Every branch after an iteration of its own, whereupon it leaves. The branches that stay longest come first."""

    def __init__(self, own_N: Sequence[int]) -> None:
        if list(own_N) != sorted(own_N, reverse=True):
            raise ValueError(f"own={tuple(own_N)} must not ascend: the branches that stay longest come first")
        self.own_N, self.count = tuple(own_N), own_N[0]
        self._read: list[Tensor] = []

    def after(self, shown: Shown, answer: Answer) -> Staying | None:
        """Read those whose iteration it is: the last ones of those that are left."""
        context = shown.context
        staying, left = sum(own > shown.k for own in self.own_N), context.layout.branches
        if staying == left:
            return None
        asked_BTH = context.layout.take(shown.state_BTH, staying, left)
        self._read.append(answer(asked_BTH, context.part(staying, left), None))
        return Staying(staying)

    def result(self) -> Tensor:
        """Logits (1, B, N, C)."""
        return torch.cat(self._read[::-1], dim=1).unsqueeze(0)

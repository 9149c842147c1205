"""The shared core and how often it is applied.

Dimension letters: B prompts, T tokens, H width, R iterations, N branches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from par.model.anchor import anchor_rms, mean_drift, rms
from par.model.attention import Visibility
from par.model.context import Context, run_layers

Core = Callable[[Tensor, Tensor, tuple[Tensor, Tensor], Visibility], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Iterations:
    """How often the core is applied in one pass, and what is kept of it."""

    count: int
    """R: applications of the core."""
    keep: tuple[int, ...]
    """Iterations (1 … R, ascending) whose states are read out."""
    window: int = 0
    """w: trailing iterations that carry gradient."""
    reset: Tensor | None = field(default=None, repr=False)
    """(R, B, N) booleans: branches that start iteration k from e instead of their state."""
    own: tuple[int, ...] | None = None
    """The iteration at which each branch is read, after which it leaves the batch; None reads all at each kept one."""

    def __post_init__(self) -> None:
        if not self.keep or list(self.keep) != sorted({k for k in self.keep if 1 <= k <= self.count}):
            raise ValueError(f"keep={self.keep} must ascend within 1..{self.count}")
        if self.own is not None and list(self.own) != sorted(self.own, reverse=True):
            raise ValueError(f"own={self.own} must not ascend: the branches that stay longest come first")

    @classmethod
    def each_at(cls, own: Sequence[int]) -> Self:
        """Read every branch at its own iteration; the branches that stay longest come first."""
        return cls(count=max(own), keep=tuple(sorted(set(own))), own=tuple(own))

    def staying(self, k: int, branches: int) -> int:
        """How many of the branches go on after iteration k."""
        return branches if self.own is None else sum(last > k for last in self.own)


class Recurrence(nn.Module):
    """The adapter and the shared core. One forward runs all iterations, so sharded weights are gathered once."""

    def __init__(
        self, layers: nn.ModuleList, width: int, *, anchor: bool, adapter_init: str, recompute: bool = False
    ) -> None:
        """With ``recompute`` an iteration keeps its inputs alone for the backward pass, and is run again there."""
        super().__init__()
        self.adapter = nn.Linear(2 * width, width, bias=False)
        self.layers = layers
        self.anchor, self.recompute = anchor, recompute
        self._compiled: Core | None = None
        passes_input, passes_state = adapter_init in ("input", "sum"), adapter_init in ("state", "sum")
        with torch.no_grad():
            eye = torch.eye(width)
            self.adapter.weight.copy_(torch.cat([eye * passes_input, eye * passes_state], dim=1))

    def compile_iteration(self) -> None:
        """Compile one iteration, for any batch and length."""
        self._compiled = torch.compile(self._apply_core, dynamic=True)

    def forward(
        self,
        e_BTH: Tensor,
        context: Context,
        real_BT: Tensor,
        plan: Iterations,
        read: Callable[[Tensor, Context, int], Tensor] = lambda state_BTH, context, first: state_BTH,
    ) -> tuple[list[Tensor], Tensor]:
        """Iterate from s_0 = e; return what ``read`` makes of each kept state, and the drift of the last iteration.

        ``read`` is given the state, its context and the first branch that is read now; without it the states (B, T, H)
        themselves are kept. The drift is a scalar. Iterations 1 … R − w run without gradient; the input e keeps its
        gradient through the window.
        """
        input_BTH = nn.functional.linear(e_BTH, self.adapter.weight.chunk(2, dim=1)[0])
        state_BTH, anchor_BT1, kept = e_BTH, None, []
        drift = e_BTH.new_ones(())
        for k in range(1, plan.count + 1):
            with torch.set_grad_enabled(torch.is_grad_enabled() and k > plan.count - plan.window):
                if plan.reset is not None:
                    state_BTH = torch.where(context.layout.spread(plan.reset[k - 1]).unsqueeze(-1), e_BTH, state_BTH)
                state_BTH, rms_BT1 = self._iterate(input_BTH, state_BTH, context)
                anchor_BT1 = rms_BT1.detach() if anchor_BT1 is None else anchor_BT1
                if self.anchor and k > 1:
                    state_BTH = anchor_rms(state_BTH, rms_BT1, anchor_BT1)
            if k == plan.count:
                drift = mean_drift(rms_BT1, anchor_BT1, real_BT)
            if k in plan.keep:
                staying = plan.staying(k, context.layout.branches)
                kept.append(read(state_BTH, context, staying if plan.own else 0))
                if 0 < staying < context.layout.branches:
                    e_BTH, input_BTH, state_BTH, anchor_BT1, real_BT = (
                        context.layout.take(values, 0, staying)
                        for values in (e_BTH, input_BTH, state_BTH, anchor_BT1, real_BT)
                    )
                    context = context.part(0, staying)
        return kept, drift

    def _iterate(self, input_BTH: Tensor, state_BTH: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        core = self._compiled or self._apply_core
        inputs = (input_BTH, state_BTH, (context.cos_BTD, context.sin_BTD), context.visibility)
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(core, *inputs, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore[reportReturnType]
        return core(*inputs)

    def _apply_core(
        self, input_BTH: Tensor, state_BTH: Tensor, tables: tuple[Tensor, Tensor], visibility: Visibility
    ) -> tuple[Tensor, Tensor]:
        """One application of adapter and core: the state before it is anchored, and its RMS."""
        from_state = self.adapter.weight.chunk(2, dim=1)[1]
        state_BTH = input_BTH + nn.functional.linear(state_BTH, from_state)
        state_BTH = run_layers(self.layers, state_BTH, tables, visibility)
        return state_BTH, rms(state_BTH)

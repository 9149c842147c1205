"""The shared core and how often it is applied.

Dimension letters: B prompts, T tokens, H width, R iterations, N branches.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from par.model.anchor import anchor_rms, mean_drift, rms
from par.model.attention import Visibility
from par.model.context import Context, run_layers
from par.model.packing import Movable
from par.model.reading import Shown, Staying

Core = Callable[[Tensor, Tensor, tuple[Tensor, Tensor], Visibility], tuple[Tensor, Tensor]]
Listener = Callable[[Shown], Staying | None]
"""Is shown every iteration of a pass without gradient; says who goes on, None for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Iterations(Movable):
    """How often the core is applied in one pass, and what is kept of it."""

    count: int
    """R: applications of the core."""
    keep: tuple[int, ...]
    """Iterations (1 … R, ascending) whose states are read out."""
    window: int = 0
    """w: trailing iterations that carry gradient."""
    reset: Tensor | None = field(default=None, repr=False)
    """(R, B, N) booleans: branches that start iteration k from e instead of their state."""

    def __post_init__(self) -> None:
        if not self.keep or list(self.keep) != sorted({k for k in self.keep if 1 <= k <= self.count}):
            raise ValueError(f"keep={self.keep} must ascend within 1..{self.count}")


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
        self, e_BTH: Tensor, context: Context, real_BT: Tensor, plan: Iterations, listen: Listener | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Iterate from s_0 = e; return the kept states (B, T, H) and the drift of the last iteration, a scalar.

        Iterations 1 … R − w run without gradient; the input e keeps its gradient through the window. A listener is
        shown every state; it keeps what it wants itself, and says who goes on.
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
            if listen is None:
                kept += [state_BTH] if k in plan.keep else []
            elif staying := listen(Shown(k, state_BTH, context, partial(mean_drift, rms_BT1, anchor_BT1, real_BT))):
                if staying.branches == 0:
                    break
                e_BTH, input_BTH, state_BTH, anchor_BT1, real_BT = (
                    context.layout.take(values, 0, staying.branches, staying.rows_B)
                    for values in (e_BTH, input_BTH, state_BTH, anchor_BT1, real_BT)
                )
                context = context.part(0, staying.branches, staying.rows_B)
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

"""The looped model, cut from a parent decoder: prelude, shared core, coda, and a head for candidate tokens.

Dimension letters: B prompts, T tokens, H width, K kept iterations, N branches, M reads, C candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PretrainedConfig, PreTrainedModel

from par.errors import ConfigError
from par.model.anchor import anchor_rms, mean_drift, rms
from par.model.attention import KERNELS, Keys, Nobody, Rows, Visibility, additive, use_packed_attention
from par.model.backbones import split_layers
from par.model.layout import Layout
from par.model.packing import Packed
from par.model.readout import CandidateHead

@dataclass(frozen=True, slots=True)
class Context:
    """What every layer needs beside the state: rotary tables (B, T, D), and who sees whom."""

    cos_BTD: Tensor
    sin_BTD: Tensor
    layout: Layout
    kernel: str
    visibility: Visibility

    @classmethod
    def of(cls, cos_BTD: Tensor, sin_BTD: Tensor, layout: Layout, kernel: str) -> Self:
        """Build it for states of the tables' type."""
        return cls(cos_BTD, sin_BTD, layout, kernel, KERNELS[kernel].of(layout, cos_BTD.dtype))

    def repeated(self, times: int) -> Self:
        """The same context for a batch that is stacked ``times`` times."""
        tables = (table.repeat(times, 1, 1) for table in (self.cos_BTD, self.sin_BTD))
        return self.of(*tables, self.layout.repeated(times), self.kernel)

    def part(self, first: int, last: int) -> Self:
        """The context of the prefix and of the branches first … last − 1."""
        if (first, last) == (0, self.layout.branches):
            return self
        tables = (self.layout.take(table, first, last) for table in (self.cos_BTD, self.sin_BTD))
        return self.of(*tables, self.layout.part(first, last), self.kernel)

    def apply(self, layers: nn.ModuleList, state_BTH: Tensor) -> Tensor:
        """Run the decoder layers in order."""
        for layer in layers:
            state_BTH = layer(
                state_BTH, attention_mask=self.visibility, position_embeddings=(self.cos_BTD, self.sin_BTD)
            )
        return state_BTH


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
    """The one iteration at which each branch is read, after which it leaves the batch; None reads all at each kept one."""

    def __post_init__(self) -> None:
        if not self.keep or list(self.keep) != sorted({k for k in self.keep if 1 <= k <= self.count}):
            raise ValueError(f"keep={self.keep} must ascend within 1..{self.count}")
        if self.own is not None and list(self.own) != sorted(self.own, reverse=True):
            raise ValueError(f"own={self.own} must not ascend: the branches that stay longest come first")

    @classmethod
    def each_at(cls, own: Sequence[int]) -> Self:
        """Read every branch at its own iteration; the branches that stay longest come first."""
        return cls(count=own[0], keep=tuple(sorted(set(own))), own=tuple(own))

    def staying(self, k: int, branches: int) -> int:
        """How many of the branches go on after iteration k."""
        return branches if self.own is None else sum(last > k for last in self.own)


class Recurrence(nn.Module):
    """The adapter and the shared core. One forward runs all iterations, so sharded weights are gathered once."""

    def __init__(self, layers: nn.ModuleList, width: int, *, anchor: bool, adapter_init: str) -> None:
        super().__init__()
        self.adapter = nn.Linear(2 * width, width, bias=False)
        self.layers = layers
        self.anchor = anchor
        self.recompute = False
        """Keep the input of each iteration alone for the backward pass, and run the iteration again there."""
        self._core = self._apply_core
        passes_input, passes_state = adapter_init in ("input", "sum"), adapter_init in ("state", "sum")
        with torch.no_grad():
            eye = torch.eye(width)
            self.adapter.weight.copy_(torch.cat([eye * passes_input, eye * passes_state], dim=1))

    def compile_iteration(self) -> None:
        """Compile one iteration, for any batch and length."""
        self._core = torch.compile(self._apply_core, dynamic=True)

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
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._core, input_BTH, state_BTH, context, use_reentrant=False)  # pyright: ignore[reportReturnType]
        return self._core(input_BTH, state_BTH, context)

    def _apply_core(self, input_BTH: Tensor, state_BTH: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """One application of adapter and core: the state before it is anchored, and its RMS."""
        from_state = self.adapter.weight.chunk(2, dim=1)[1]
        state_BTH = context.apply(self.layers, input_BTH + nn.functional.linear(state_BTH, from_state))
        return state_BTH, rms(state_BTH)


class AnswerLayer(nn.Module):
    """The last decoder layer, for answer rows only: keys and values of every token, queries and MLP of those rows."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, state_BTH: Tensor, context: Context) -> Tensor:
        """(B, T, H) gives (B, N, H)."""
        keys, rows = Keys(), context.layout.answer_rows
        L = context.layout.query_tokens
        self.layer.self_attn(
            hidden_states=self.layer.input_layernorm(state_BTH), attention_mask=Nobody(), cache=keys,
            position_embeddings=(context.cos_BTD, context.sin_BTD),
        )  # fmt: skip
        visible_BNT = context.layout.visible_BQT()[:, L - 1 :: L]
        return self.layer(
            state_BTH[:, rows], attention_mask=Rows(additive(visible_BNT, state_BTH.dtype)), cache=keys,
            position_embeddings=(context.cos_BTD[:, rows], context.sin_BTD[:, rows]),
        )  # fmt: skip


class Coda(nn.Module):
    """The layers after the recurrence."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers[:-1])
        self.answer = AnswerLayer(layers[-1])

    def forward(self, state_BTH: Tensor, context: Context) -> Tensor:
        """States (B, T, H) of the core give those of the answer rows, (B, N, H)."""
        return self.answer(context.apply(self.layers, state_BTH), context)


def _refuse_windows(config: PretrainedConfig) -> None:
    """Raise ConfigError for a parent whose layers see a part of the prefix only: they differ by their place in it."""
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"]
    if set(kinds) != {"full_attention"}:
        raise ConfigError(f"backbone has attention layers {sorted(set(kinds))}: only full attention can be looped")


class LoopedModel(nn.Module):
    """P, C, Q and the read-out, made of the parent's own modules (no copies: building uses up the parent)."""

    def __init__(
        self,
        parent: PreTrainedModel,
        *,
        split: tuple[int, int, int] | None = None,
        anchor: bool = True,
        adapter_init: str = "state",
    ) -> None:
        super().__init__()
        decoder, config = parent.model, parent.config
        _refuse_windows(config)
        use_packed_attention(parent)
        parent.eval()  # no dropout, ever: branches must answer exactly as if alone
        parts = split_layers(len(decoder.layers), split)
        layers, core_end = list(decoder.layers), parts.prelude + parts.core
        self.embed = decoder.embed_tokens
        self.rotary = decoder.rotary_emb
        self.prelude = nn.ModuleList(layers[: parts.prelude])
        self.recurrence = Recurrence(
            nn.ModuleList(layers[parts.prelude : core_end]),
            config.hidden_size,
            anchor=anchor,
            adapter_init=adapter_init,
        )
        self.coda = Coda(layers[core_end:])
        self.head = CandidateHead(decoder.norm, parent.lm_head.weight)
        self.kernel = "split"

    def forward(self, packed: Packed, plan: Iterations) -> tuple[Tensor, Tensor]:
        """Logits (K, B, N, C) of the candidates at every branch's answer row after each kept iteration, and the drift.

        Where every branch is read at an iteration of its own, (1, B, N, C). With gradient the kept states pass the coda
        as one batch. Without, each is read as it comes and only its answer rows stay, so that memory does not grow with R.
        """
        hidden_BTH = self.embed(packed.ids_BT)
        tables = self.rotary(hidden_BTH, packed.positions_BT)
        context = Context.of(*tables, packed.layout, self.kernel)
        e_BTH = context.apply(self.prelude, hidden_BTH)
        if torch.is_grad_enabled():
            kept, drift = self.recurrence(e_BTH, context, packed.real_BT, plan)
            answers_MNH = self.coda(torch.cat(kept), context.repeated(len(kept)))
            answers_KBNH = answers_MNH.unflatten(0, (len(kept), -1))
        else:
            reads, drift = self.recurrence(e_BTH, context, packed.real_BT, plan, self._read)
            answers_KBNH = torch.cat(reads[::-1], dim=1).unsqueeze(0) if plan.own else torch.stack(reads)
        return self.head(answers_KBNH, packed.candidates_BC), drift

    def _read(self, state_BTH: Tensor, context: Context, first: int) -> Tensor:
        last = context.layout.branches
        return self.coda(context.layout.take(state_BTH, first, last), context.part(first, last))

"""The looped model, cut from a parent decoder: prelude, shared core, coda, and a head for candidate tokens.

Dimension letters: B prompts, T tokens, H width, K kept iterations, N branches, C candidates.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from par.errors import ConfigError
from par.model.anchor import anchor_rms, mean_drift, rms
from par.model.backbones import split_layers
from par.model.packing import Packed
from par.model.readout import CandidateHead


@dataclass(frozen=True, slots=True)
class Context:
    """What every layer needs beside the state: rotary tables (B, T, D) and the additive mask (B, 1, T, T)."""

    cos_BTD: Tensor
    sin_BTD: Tensor
    mask_B1TT: Tensor

    def repeated(self, times: int) -> "Context":
        """The same context for a batch that is stacked ``times`` times."""
        return Context(*(t.repeat(times, *[1] * (t.dim() - 1)) for t in (self.cos_BTD, self.sin_BTD, self.mask_B1TT)))

    def apply(self, layers: nn.ModuleList, state_BTH: Tensor) -> Tensor:
        """Run the decoder layers in order."""
        for layer in layers:
            state_BTH = layer(
                state_BTH, attention_mask=self.mask_B1TT, position_embeddings=(self.cos_BTD, self.sin_BTD)
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
    """(R, B, T) booleans: rows that start iteration k from e instead of their state."""

    def __post_init__(self) -> None:
        if not self.keep or list(self.keep) != sorted({k for k in self.keep if 1 <= k <= self.count}):
            raise ValueError(f"keep={self.keep} must ascend within 1..{self.count}")


class Recurrence(nn.Module):
    """The adapter and the shared core. One forward runs all iterations, so sharded weights are gathered once."""

    def __init__(self, layers: nn.ModuleList, width: int, *, anchor: bool, adapter_init: str) -> None:
        super().__init__()
        self.adapter = nn.Linear(2 * width, width, bias=False)
        self.layers = layers
        self.anchor = anchor
        passes_input, passes_state = adapter_init in ("input", "sum"), adapter_init in ("state", "sum")
        with torch.no_grad():
            eye = torch.eye(width)
            self.adapter.weight.copy_(torch.cat([eye * passes_input, eye * passes_state], dim=1))

    def forward(
        self,
        e_BTH: Tensor,
        context: Context,
        real_BT: Tensor,
        plan: Iterations,
        read: Callable[[Tensor], Tensor] = lambda state_BTH: state_BTH,
    ) -> tuple[Tensor, Tensor]:
        """Iterate from s_0 = e; return what ``read`` makes of the kept states, stacked, and the last iteration's drift.

        Without ``read`` these are the states themselves, (K, B, T, H). The drift is a scalar. Iterations 1 … R − w run
        without gradient; the input e keeps its gradient through the window.
        """
        from_input, from_state = self.adapter.weight.chunk(2, dim=1)
        input_BTH = nn.functional.linear(e_BTH, from_input)
        state_BTH, anchor_BT1, kept = e_BTH, None, []
        drift = e_BTH.new_ones(())
        for k in range(1, plan.count + 1):
            with torch.set_grad_enabled(torch.is_grad_enabled() and k > plan.count - plan.window):
                if plan.reset is not None:
                    state_BTH = torch.where(plan.reset[k - 1].unsqueeze(-1), e_BTH, state_BTH)
                state_BTH = context.apply(self.layers, input_BTH + nn.functional.linear(state_BTH, from_state))
                rms_BT1 = rms(state_BTH)
                anchor_BT1 = rms_BT1.detach() if anchor_BT1 is None else anchor_BT1
                if self.anchor and k > 1:
                    state_BTH = anchor_rms(state_BTH, rms_BT1, anchor_BT1)
            if k == plan.count:
                drift = mean_drift(rms_BT1, anchor_BT1, real_BT)
            if k in plan.keep:
                kept.append(read(state_BTH))
        return torch.stack(kept), drift


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
        self.coda = nn.ModuleList(layers[core_end:])
        self.head = CandidateHead(decoder.norm, parent.lm_head.weight)

    def forward(self, packed: Packed, plan: Iterations) -> tuple[Tensor, Tensor]:
        """Logits (K, B, N, C) of the candidates at every branch's answer row after each kept iteration, and the drift.

        With gradient the kept states pass the coda as one batch. Without, each is read as it comes and only its answer
        rows stay, so that memory does not grow with R.
        """
        hidden_BTH = self.embed(packed.ids_BT)
        cos_BTD, sin_BTD = self.rotary(hidden_BTH, packed.positions_BT)
        context = Context(cos_BTD, sin_BTD, packed.additive_mask(hidden_BTH.dtype))
        e_BTH = context.apply(self.prelude, hidden_BTH)
        rows_BNH = packed.rows_BN.unsqueeze(-1).expand(-1, -1, e_BTH.shape[-1])
        if torch.is_grad_enabled():
            kept_KBTH, drift = self.recurrence(e_BTH, context, packed.real_BT, plan)
            answers_KBNH = self._coda_at_once(kept_KBTH, context).gather(2, rows_BNH.expand(len(kept_KBTH), -1, -1, -1))
        else:

            def read(state_BTH: Tensor) -> Tensor:
                return context.apply(self.coda, state_BTH).gather(1, rows_BNH)

            answers_KBNH, drift = self.recurrence(e_BTH, context, packed.real_BT, plan, read)
        return self.head(answers_KBNH, packed.candidates_BC), drift

    def _coda_at_once(self, kept_KBTH: Tensor, context: Context) -> Tensor:
        K, B, T, H = kept_KBTH.shape
        return context.repeated(K).apply(self.coda, kept_KBTH.view(K * B, T, H)).view(K, B, T, H)

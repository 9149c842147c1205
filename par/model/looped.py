"""The looped model, cut from a parent decoder: prelude, shared core, coda, and a head for candidate tokens.

Dimension letters: B prompts, T tokens, H width, K kept iterations, N branches, M = K·B, C candidates.
"""

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from par.config.backbones import split_layers
from par.errors import ConfigError
from par.model.attention import use_packed_attention
from par.model.coda import Coda
from par.model.context import Context
from par.model.packing import Packed
from par.model.reading import Reading, Shown, Staying
from par.model.readout import CandidateHead, candidate_logits
from par.model.recurrence import Iterations, Recurrence


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
        kernel: str = "split",
        recompute: bool = False,
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
        core, width = nn.ModuleList(layers[parts.prelude : core_end]), config.hidden_size
        self.recurrence = Recurrence(core, width, anchor=anchor, adapter_init=adapter_init, recompute=recompute)
        self.coda = Coda(layers[core_end:])
        self.head = CandidateHead(parent.lm_head.weight)
        self.norm = decoder.norm
        self.kernel = kernel

    def forward(self, packed: Packed, plan: Iterations) -> tuple[Tensor, Tensor]:
        """Logits (K, B, N, C) of the candidates at the branches' answer rows, and the drift of the last iteration.

        The K kept states pass the coda as one batch.
        """
        e_BTH, context, candidates_BCH = self._begin(packed)
        kept, drift = self.recurrence(e_BTH, context, packed.real_BT, plan)
        answers_MNH = self.coda(torch.cat(kept), context.repeated(len(kept)))
        return candidate_logits(self.norm(answers_MNH.unflatten(0, (len(kept), -1))), candidates_BCH), drift

    def read(self, packed: Packed, reading: Reading) -> Tensor:
        """What a reading finds in the states as they come, so that memory does not grow with R.

        Sharded, it gathers weights as a forward pass does: `par.training.parallel.shard` registers it.
        """
        e_BTH, context, candidates_BCH = self._begin(packed)

        def answer(state_BTH: Tensor, context: Context, rows_B: Tensor | None) -> Tensor:
            rows_BCH = candidates_BCH if rows_B is None else candidates_BCH[rows_B]
            return candidate_logits(self.norm(self.coda(state_BTH, context)), rows_BCH)

        def listen(shown: Shown) -> Staying | None:
            return reading.after(shown, answer)

        plan = Iterations(count=reading.count, keep=(reading.count,))
        self.recurrence(e_BTH, context, packed.real_BT, plan, listen)
        return reading.result()

    def _begin(self, packed: Packed) -> tuple[Tensor, Context, Tensor]:
        """The prelude's output e (B, T, H), what layers are told, and the candidates (B, C, H)."""
        hidden_BTH = self.embed(packed.ids_BT)
        candidates_BCH = self.head(packed.candidates_BC)
        cos_BTD, sin_BTD = self.rotary(hidden_BTH, packed.positions_BT)
        context = Context(cos_BTD, sin_BTD, packed.layout, self.kernel)
        return context.apply(self.prelude, hidden_BTH), context, candidates_BCH

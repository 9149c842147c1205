"""The layers after the recurrence. Dimension letters: B prompts, T tokens, H width, N branches, L query tokens."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from par.model.attention import Keys, Nobody, Rows, additive
from par.model.context import Context


class AnswerLayer(nn.Module):
    """The last decoder layer, for answer rows only: keys and values of every token, queries and MLP of those rows."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer: Any = layer

    def forward(self, state_BTH: Tensor, context: Context) -> Tensor:
        """(B, T, H) gives (B, N, H)."""
        keys, rows = Keys(), context.layout.answer_rows
        self.layer.self_attn(
            hidden_states=self.layer.input_layernorm(state_BTH), attention_mask=Nobody(), cache=keys,
            position_embeddings=(context.cos_BTD, context.sin_BTD),
        )  # fmt: skip
        if keys.kept is None:
            raise RuntimeError("the model library has kept no keys: AnswerLayer needs transformers >= 5.24")
        mask_B1NT = additive(context.layout.visible_BNT(), state_BTH.dtype)
        return self.layer(
            state_BTH[:, rows], attention_mask=Rows(mask_B1NT), cache=keys,
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

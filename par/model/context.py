"""What the decoder layers are told of a batch. Dimension letters: B prompts, T tokens, H width, D head width."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from torch import Tensor, nn

from par.model.attention import KERNELS, Visibility
from par.model.packing import Layout


@dataclass(frozen=True)
class Context:
    """What every layer needs beside the state: rotary tables (B, T, D), and who sees whom."""

    cos_BTD: Tensor
    sin_BTD: Tensor
    layout: Layout
    kernel: str

    @cached_property
    def visibility(self) -> Visibility:
        """Built when the first layer asks for it: a coda of one layer never does."""
        return KERNELS[self.kernel].of(self.layout, self.cos_BTD.dtype)

    def repeated(self, times: int) -> Self:
        """The same context for a batch that is stacked ``times`` times."""
        cos_BTD, sin_BTD = (table.repeat(times, 1, 1) for table in (self.cos_BTD, self.sin_BTD))
        return type(self)(cos_BTD, sin_BTD, self.layout.repeated(times), self.kernel)

    def part(self, first: int, last: int, rows_B: Tensor | None = None) -> Self:
        """The context of the prefix and of the branches first … last − 1, of some of the prompts."""
        if (first, last) == (0, self.layout.branches) and rows_B is None:
            return self
        cos_BTD, sin_BTD = (self.layout.take(table, first, last, rows_B) for table in (self.cos_BTD, self.sin_BTD))
        return type(self)(cos_BTD, sin_BTD, self.layout.part(first, last, rows_B), self.kernel)

    def apply(self, layers: Iterable[nn.Module], state_BTH: Tensor) -> Tensor:
        """Run the decoder layers in order."""
        layers = list(layers)
        if not layers:
            return state_BTH
        return run_layers(layers, state_BTH, (self.cos_BTD, self.sin_BTD), self.visibility)


def run_layers(
    layers: Iterable[nn.Module], state_BTH: Tensor, tables: tuple[Tensor, Tensor], visibility: Visibility
) -> Tensor:
    """Run decoder layers in order, with rotary tables cos and sin."""
    for layer in layers:
        state_BTH = layer(state_BTH, attention_mask=visibility, position_embeddings=tables)
    return state_BTH

"""What the decoder layers are told of a batch. Dimension letters: B prompts, T tokens, H width, D head width."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn

from par.model.attention import KERNELS, Visibility
from par.model.layout import Layout


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
        cos_BTD, sin_BTD = (table.repeat(times, 1, 1) for table in (self.cos_BTD, self.sin_BTD))
        return self.of(cos_BTD, sin_BTD, self.layout.repeated(times), self.kernel)

    def part(self, first: int, last: int, rows_B: Tensor | None = None) -> Self:
        """The context of the prefix and of the branches first … last − 1, of some of the prompts."""
        if (first, last) == (0, self.layout.branches) and rows_B is None:
            return self
        cos_BTD, sin_BTD = (self.layout.take(table, first, last, rows_B) for table in (self.cos_BTD, self.sin_BTD))
        return self.of(cos_BTD, sin_BTD, self.layout.part(first, last, rows_B), self.kernel)

    def apply(self, layers: Iterable[nn.Module], state_BTH: Tensor) -> Tensor:
        """Run the decoder layers in order."""
        for layer in layers:
            state_BTH = layer(
                state_BTH, attention_mask=self.visibility, position_embeddings=(self.cos_BTD, self.sin_BTD)
            )
        return state_BTH

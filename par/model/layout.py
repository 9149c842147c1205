"""Where the tokens of packed prompts lie and who sees whom.

A prompt is its prefix of P tokens, then N branches of L tokens. The prefix is causal; a branch sees the prefix up to
its own end, and itself causally.
Dimension letters: B prompts, P prefix tokens, N branches, L query tokens, Q = N·L, T = P + Q.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor


class Movable:
    """A dataclass with tensors."""

    __slots__ = ()

    def to(self, device: torch.device) -> Self:
        """The same values with all tensors in them on a device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]
        moved = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value.to(device)
            for name, value in values.items()
            if isinstance(value, Tensor | Movable)
        }
        return replace(self, **moved)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class Layout(Movable):
    """The places of one batch."""

    prefix_tokens: int
    """P, right-sided padding of shorter prompts included."""
    query_tokens: int
    """L."""
    ends_BN: Tensor
    """Prefix tokens that each branch sees."""

    @property
    def branches(self) -> int:
        """N."""
        return self.ends_BN.shape[1]

    @property
    def tokens(self) -> int:
        """T."""
        return self.prefix_tokens + self.branches * self.query_tokens

    @property
    def answer_rows(self) -> slice:
        """The last token of every branch: there the answer is read."""
        return slice(self.prefix_tokens + self.query_tokens - 1, None, self.query_tokens)

    def part(self, first: int, last: int, rows_B: Tensor | None = None) -> Self:
        """The places left when only the branches first … last − 1 follow the prefix, of some of the prompts."""
        ends_BN = self.ends_BN if rows_B is None else self.ends_BN[rows_B]
        return replace(self, ends_BN=ends_BN[:, first:last])

    def repeated(self, times: int) -> Self:
        """The places of a batch that is stacked ``times`` times."""
        return replace(self, ends_BN=self.ends_BN.repeat(times, 1))

    def take(self, values_BT: Tensor, first: int, last: int, rows_B: Tensor | None = None) -> Tensor:
        """Of values (B, T, …) those of the prefix and of the branches first … last − 1, of some of the prompts."""
        P, L = self.prefix_tokens, self.query_tokens
        values_BT = values_BT if rows_B is None else values_BT[rows_B]
        if first == 0:
            return values_BT[:, : P + last * L].contiguous()
        return torch.cat([values_BT[:, :P], values_BT[:, P + first * L : P + last * L]], dim=1)

    def spread(self, chosen_BN: Tensor) -> Tensor:
        """A boolean per branch (…, B, N) for all tokens of the branch (…, B, T); False on the prefix."""
        rows = chosen_BN.repeat_interleave(self.query_tokens, dim=-1)
        return torch.nn.functional.pad(rows, (self.prefix_tokens, 0), value=False)

    def visible_BQT(self) -> Tensor:
        """Which tokens each branch token may attend to; every one sees at least itself."""
        return self._visible(slice(None))

    def visible_BNT(self) -> Tensor:
        """The same for the last token of each branch alone."""
        return self._visible(slice(self.query_tokens - 1, None, self.query_tokens))

    def _visible(self, chosen: slice) -> Tensor:
        """The rows of some branch tokens."""
        device, L = self.ends_BN.device, self.query_tokens
        columns_Q = torch.arange(self.branches * L, device=device)
        rows_R = columns_Q[chosen]
        prefix_BRP = torch.arange(self.prefix_tokens, device=device) < self.ends_BN[:, rows_R // L].unsqueeze(-1)
        own_RQ = (rows_R[:, None] // L == columns_Q // L) & (columns_Q <= rows_R[:, None])
        return torch.cat([prefix_BRP, own_RQ.expand(len(self.ends_BN), -1, -1)], dim=2)

    def sees(self, b: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """The same rule for one pair of tokens, the prefix included, as FlexAttention asks for it."""
        P, L = self.prefix_tokens, self.query_tokens
        own_end = self.ends_BN[b, ((query - P) // L).clamp_min(0)]
        in_prefix = (key < P) & torch.where(query < P, key <= query, key < own_end)
        in_branch = (key >= P) & (key <= query) & ((key - P) // L == (query - P) // L)
        return in_prefix | in_branch

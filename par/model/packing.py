"""Packed branches: many (prefix length, box) questions on one operation prefix, each as if it stood alone.

A prompt is its prefix of P tokens, then N branches of L tokens. Causal attention lets no operation see a query, so a
branch needs only its own visibility and positions: it sees the prefix up to its own end, and itself causally.
Dimension letters: B prompts, P prefix tokens, J prefix lengths (0 … D operations), X boxes, N branches, L query tokens,
Q = N·L, T = P + Q packed tokens, C candidates.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from par.tasks.prompts import Prompts


class Movable:
    """A dataclass with tensors."""

    __slots__ = ()

    def to(self, device: torch.device, *, non_blocking: bool = True) -> Self:
        """The same values with all tensors in them on a device."""
        moved = {
            field.name: value.to(device, non_blocking=non_blocking)
            for field in fields(self)  # pyright: ignore[reportArgumentType]
            if isinstance(value := getattr(self, field.name), Tensor | Movable)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed(Movable):
    """The tensors of one forward pass."""

    ids_BT: Tensor
    positions_BT: Tensor
    """Float positions: a stretch multiplies them."""
    real_BT: Tensor
    """False at padding."""
    candidates_BC: Tensor
    """Token ids whose logits are wanted."""
    layout: Layout

    def stretched(self, factor: float) -> Self:
        """The same tokens with positions ``factor`` times as far apart."""
        return replace(self, positions_BT=self.positions_BT * factor)


@dataclass(frozen=True, slots=True)
class Branches:
    """The questions asked of every prompt."""

    operations_BN: np.ndarray
    """Prefix length j of each branch, in operations."""
    boxes_BN: np.ndarray
    """Box that each branch asks for."""

    @classmethod
    def all_boxes(cls, operations_BP: np.ndarray, boxes: int) -> "Branches":
        """Ask for every box at every prefix length; the branches of one length are neighbours."""
        batch, lengths = operations_BP.shape
        return cls(operations_BP.repeat(boxes, axis=1), np.tile(np.arange(boxes), (batch, lengths)))

    def targets(self, prompts: Prompts, completed: int) -> np.ndarray:
        """Candidate index (B, N) that each branch holds after ``completed`` operations, at most all of its own."""
        batch = np.arange(len(self.operations_BN))[:, None]
        return prompts.answers_BJN[batch, np.minimum(completed, self.operations_BN), self.boxes_BN]


def pack(prompts: Prompts, branches: Branches, extra_candidates: tuple[int, ...] = ()) -> Packed:
    """Lay the branches behind their prefix.

    A branch of j operations sees the prefix up to operation j and itself, at the positions that it would have alone.
    ``extra_candidates`` (Yes, No) follow the prompt's own candidates.
    """
    batch = np.arange(len(branches.operations_BN))[:, None]
    ends_BN = prompts.ends_BJ[batch, branches.operations_BN]
    query_BNL = prompts.query_BNL[batch, branches.boxes_BN]
    B, N, L = query_BNL.shape
    starts_BN = prompts.starts_BJ[batch, branches.operations_BN]
    query_positions_BNL = starts_BN[:, :, None] + np.arange(L)
    P = prompts.prefix_BP.shape[1]
    extra_BC = np.broadcast_to(np.array(extra_candidates, dtype=np.int64), (B, len(extra_candidates)))
    return Packed(
        ids_BT=torch.from_numpy(np.concatenate([prompts.prefix_BP, query_BNL.reshape(B, N * L)], axis=1)),
        positions_BT=torch.from_numpy(
            np.concatenate([prompts.positions_BP, query_positions_BNL.reshape(B, N * L)], axis=1)
        ).float(),
        real_BT=torch.from_numpy(np.arange(P + N * L) < prompts.length_B[:, None]) | (torch.arange(P + N * L) >= P),
        candidates_BC=torch.from_numpy(np.concatenate([prompts.candidates_BN, extra_BC], axis=1)),
        layout=Layout(P, L, torch.from_numpy(ends_BN)),
    )

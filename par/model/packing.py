"""Packed branches: many (prefix length, box) questions on one operation prefix, each as if it stood alone.

Causal attention lets no operation see a query, so a branch needs only its own visibility and positions.
Dimension letters: B prompts, P prefix tokens, J prefix lengths (0 … D operations), X boxes, N branches, L query tokens,
T = P + N·L packed tokens, C candidates.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from par.tasks.prompts import Prompts


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed:
    """The tensors of one forward pass."""

    ids_BT: Tensor
    positions_BT: Tensor
    """Float positions: a stretch multiplies them."""
    visible_BTT: Tensor
    """True where the row token may attend to the column token; every row sees at least itself."""
    real_BT: Tensor
    """False at padding."""
    rows_BN: Tensor
    """The row of every branch's last query token: there the answer is read."""
    candidates_BC: Tensor
    """Token ids whose logits are wanted."""
    prefix_tokens: int
    """P: the branches follow from there on."""

    def additive_mask(self, dtype: torch.dtype) -> Tensor:
        """(B, 1, T, T): 0 where visible, the least number elsewhere. Always explicit: without a mask the model library
        reads positions that step by other than 1 as the borders of packed sequences and hides them from each other.
        """
        hidden_BTT = torch.zeros_like(self.visible_BTT, dtype=dtype)
        return hidden_BTT.masked_fill_(~self.visible_BTT, torch.finfo(dtype).min).unsqueeze(1)

    def stretched(self, factor: float) -> Self:
        """The same tokens with positions ``factor`` times as far apart."""
        return replace(self, positions_BT=self.positions_BT * factor)

    def to(self, device: torch.device) -> Self:
        """The same tensors on a device."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "prefix_tokens"}
        return replace(self, **{name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()})


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
        visible_BTT=torch.from_numpy(_visible(prompts.length_B, ends_BN, P, L)),
        real_BT=torch.from_numpy(np.arange(P + N * L) < prompts.length_B[:, None]) | (torch.arange(P + N * L) >= P),
        rows_BN=torch.from_numpy(np.broadcast_to(P + L * np.arange(1, N + 1) - 1, (B, N)).copy()),
        candidates_BC=torch.from_numpy(np.concatenate([prompts.candidates_BN, extra_BC], axis=1)),
        prefix_tokens=P,
    )


def _visible(length_B: np.ndarray, ends_BN: np.ndarray, P: int, L: int) -> np.ndarray:
    """Who sees whom, (B, T, T): the prefix causally, a branch its part of the prefix and itself causally."""
    B, N = ends_BN.shape
    visible_BTT = np.zeros((B, P + N * L, P + N * L), dtype=bool)
    columns_P = np.arange(P)
    visible_BTT[:, :P, :P] = np.tri(P, dtype=bool) & (columns_P < length_B[:, None])[:, None, :]
    prefix_BNP = columns_P < ends_BN[:, :, None]
    visible_BTT[:, P:, :P] = prefix_BNP.repeat(L, axis=1)
    visible_BTT[:, P:, P:] = np.kron(np.eye(N, dtype=bool), np.tri(L, dtype=bool))
    visible_BTT |= np.eye(P + N * L, dtype=bool)
    return visible_BTT


def branch_rows(chosen_BN: Tensor, packed: Packed) -> Tensor:
    """Spread a boolean per branch (…, B, N) over all tokens of the branch: (…, B, T), False on the prefix."""
    T, N = packed.ids_BT.shape[1], chosen_BN.shape[-1]
    rows = chosen_BN.repeat_interleave((T - packed.prefix_tokens) // N, dim=-1)
    return torch.nn.functional.pad(rows, (packed.prefix_tokens, 0), value=False)

"""Packed branches: many (prefix length, box) questions on one operation prefix, each as if it stood alone.

Causal attention lets no operation see a query, so a branch needs only its own visibility and positions.
Dimension letters: B prompts, P prefix tokens, J prefix lengths (0 … D operations), X boxes, N branches, L query tokens,
T = P + N·L packed tokens, C candidates.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from par.model.layout import Layout, Movable
from par.tasks.prompts import Prompts


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

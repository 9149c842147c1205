"""Who sees whom in packed prompts, written out pair by pair."""

import torch
from torch import Tensor

from par.model.packing import Layout


def visible_BTT(layout: Layout) -> Tensor:
    """True where the row token may attend to the column token: the prefix causally, a branch its part and itself."""
    B, T, P, L = len(layout.ends_BN), layout.tokens, layout.prefix_tokens, layout.query_tokens
    visible = torch.zeros(B, T, T, dtype=torch.bool)
    for row in range(T):
        branch, place = divmod(row - P, L)
        for b in range(B):
            seen = range(row + 1) if row < P else [*range(layout.ends_BN[b, branch]), *range(row - place, row + 1)]
            visible[b, row, list(seen)] = True
    return visible


def answer_rows(layout: Layout) -> list[int]:
    """The row of every branch's last token."""
    return [layout.prefix_tokens + layout.query_tokens * (n + 1) - 1 for n in range(layout.branches)]

"""The halting rule as it is defined, on all iterations at once. Dimension letters: K iterations, S sequences."""

import torch
from torch import Tensor

from par.config.groups import HaltingConfig


def first_firing(p_yes_KS: Tensor, rule: HaltingConfig) -> Tensor:
    """The iteration (1-based) at which each sequence halts, (S,); 0 where it does not.

    It is the first R with p_yes[R] > tau and at least k of p_yes[R … R+m−1] > tau, the window lying inside 1 … K_max.
    """
    yes_KS = p_yes_KS > rule.tau
    if len(yes_KS) < rule.m:
        return torch.zeros(yes_KS.shape[1], dtype=torch.long, device=yes_KS.device)
    counts_RS = yes_KS.long().unfold(0, rule.m, 1).sum(-1)
    fires_RS = yes_KS[: len(counts_RS)] & (counts_RS >= rule.k)
    return torch.where(fires_RS.any(0), fires_RS.long().argmax(0) + 1, 0)

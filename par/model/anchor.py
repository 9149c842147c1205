"""State-norm anchoring. Dimension letters: B batch, T tokens, H width."""

import torch
from torch import Tensor

EPS = 1e-6


def rms(state_BTH: Tensor) -> Tensor:
    """Root mean square over the width, in fp32: (B, T, H) gives (B, T, 1)."""
    return state_BTH.float().square().mean(dim=-1, keepdim=True).add(EPS**2).sqrt()


def anchor_rms(state_BTH: Tensor, rms_BT1: Tensor, anchor_BT1: Tensor) -> Tensor:
    """Rescale each token from its own RMS to its anchor RMS and keep its direction.

    state (B, T, H) of any float type, its rms and the anchor (B, T, 1) in fp32, give (B, T, H) of the state's type.
    A zero token stays zero. Raises ValueError if the anchor still has width H.
    Source: algorithm §2; the RMS is that of arXiv:1910.07467. Why it is anchored: docs/adr/0008.
    """
    if anchor_BT1.shape[-1] != 1:
        raise ValueError(f"anchor is {tuple(anchor_BT1.shape)}, must end in 1: pass rms(state), not state")
    return (state_BTH.float() * (anchor_BT1 / rms_BT1)).to(state_BTH.dtype)


def mean_drift(rms_BT1: Tensor, anchor_BT1: Tensor, real_BT: Tensor) -> Tensor:
    """rms(s_k) / rms(s_1) before rescaling, averaged over the real (not padded) tokens: a scalar without gradient."""
    with torch.no_grad():
        ratio_BT = (rms_BT1 / anchor_BT1).squeeze(-1)
        return (ratio_BT * real_BT).sum() / real_BT.sum()

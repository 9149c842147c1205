"""Attention of packed prompts, which the model library's own layers call through its attention interface.

No kind of visibility here holds a (T, T) mask: the prefix is causal, and only branches need a mask of their own.
Dimension letters: B prompts, A heads, T tokens, P prefix tokens, N branches, Q = N·L branch tokens, D head width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from par.model.packing import Layout

NAME = "par_packed"


class Visibility(Protocol):
    """Who sees whom; layers get it in place of a mask."""

    def attend(self, layer: nn.Module, q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, scaling: float) -> Tensor:
        """What every query token gathers from the values that it sees: (B, T, A, D)."""
        ...


def use_packed_attention(parent: PreTrainedModel) -> None:
    """Let the parent's layers take a Visibility as their attention mask."""
    AttentionInterface.register(NAME, _attend)
    parent.config._attn_implementation = NAME  # pyright: ignore[reportPrivateUsage]  # its setter refuses other forms of mask


def _attend(
    layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Visibility, *, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    return attention_mask.attend(layer, query, key, value, scaling), None


def _masked(layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask_B1QT: Tensor | None, scaling: float) -> Tensor:
    """The library's call of the fused kernel: causal without a mask, grouped heads as the device likes them."""
    return sdpa_attention_forward(layer, q, k, v, mask_B1QT, scaling=scaling)[0]


@dataclass(frozen=True, slots=True)
class PrefixAndBranches:
    """The prefix by the causal kernel, the branches by a mask of their own rows (B, 1, Q, T). Runs on every device."""

    prefix_tokens: int
    mask_B1QT: Tensor
    """0 where visible, the least number elsewhere."""

    @classmethod
    def of(cls, layout: Layout, dtype: torch.dtype) -> "PrefixAndBranches":
        """Build it for states of ``dtype``."""
        return cls(layout.prefix_tokens, additive(layout.visible_BQT(), dtype))

    def attend(self, layer: nn.Module, q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, scaling: float) -> Tensor:
        """Two calls of the kernel; right-sided padding needs no mask, as no real token looks to its right."""
        P = self.prefix_tokens
        prefix_BPAD = _masked(layer, q_BATD[:, :, :P], k_BATD[:, :, :P], v_BATD[:, :, :P], None, scaling)
        branches_BQAD = _masked(layer, q_BATD[:, :, P:], k_BATD, v_BATD, self.mask_B1QT, scaling)
        return torch.cat([prefix_BPAD, branches_BQAD], dim=1)


@dataclass(frozen=True, slots=True)
class Blocks:
    """All tokens in one FlexAttention kernel that skips blocks nobody sees. For GPUs; elsewhere a slow reference."""

    mask: BlockMask

    @classmethod
    def of(cls, layout: Layout, dtype: torch.dtype) -> "Blocks":
        """Build it; the type of the states does not matter."""
        B, T = layout.ends_BN.shape[0], layout.tokens
        device = layout.ends_BN.device
        build = _on(device, create_block_mask)
        return cls(build(lambda b, h, q, k: layout.sees(b, q, k), B, None, T, T, device=device))

    def attend(self, layer: nn.Module, q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, scaling: float) -> Tensor:
        """One call of the kernel."""
        grouped = q_BATD.shape[1] != k_BATD.shape[1]
        kernel = _on(q_BATD.device, flex_attention)
        return kernel(q_BATD, k_BATD, v_BATD, block_mask=self.mask, scale=scaling, enable_gqa=grouped).transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows only, (B, 1, Q, T): the queries are fewer than the keys."""

    mask_B1QT: Tensor

    def attend(self, layer: nn.Module, q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, scaling: float) -> Tensor:
        """One call of the kernel."""
        return _masked(layer, q_BATD, k_BATD, v_BATD, self.mask_B1QT, scaling)


class Nobody:
    """Nothing is gathered: for a layer that is called for the sake of its keys and values."""

    def attend(self, layer: nn.Module, q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, scaling: float) -> Tensor:
        """The queries in the place of an answer that nobody reads."""
        return q_BATD.transpose(1, 2)


class Keys:
    """The keys and values of all tokens, in the place of the library's cache.

    The first call keeps them; the second one, made for some of the same tokens, gets all of them back.
    """

    def __init__(self) -> None:
        self.kept: tuple[Tensor, Tensor] | None = None

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """What the attention of the calling layer shall look at."""
        self.kept = self.kept or (key, value)
        return self.kept


KERNELS = {"split": PrefixAndBranches, "flex": Blocks}
"""How the attention of a whole packed prompt is computed; the numbers are the same."""


@cache
def _on(device: torch.device, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it runs well on a device: FlexAttention is fast only when compiled, which needs a GPU."""
    return torch.compile(function, dynamic=True) if device.type == "cuda" else function


def additive(visible_BQT: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, 1, Q, T): 0 where visible, the least number of the type elsewhere."""
    hidden_BQT = torch.zeros_like(visible_BQT, dtype=dtype)
    return hidden_BQT.masked_fill_(~visible_BQT, torch.finfo(dtype).min).unsqueeze(1)

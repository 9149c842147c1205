"""Optimizers and their rate over the run."""

from collections.abc import Sequence
from math import cos, pi

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW, Muon, Optimizer

from par.config.groups import OptimConfig, TrainConfig
from par.model.looped import LoopedModel


def build_optimizers(model: LoopedModel, cfg: OptimConfig) -> list[Optimizer]:
    """AdamW; with ``matrices: muon`` a Muon for adapter and layers' matrices beside it. The adapter has its own rate.

    Why the adapter goes with the matrices: docs/adr/0015.
    """
    adapter = {"params": list(model.recurrence.adapter.parameters()), "lr": cfg.adapter_rate}
    layers = [*model.prelude.parameters(), *model.recurrence.layers.parameters(), *model.coda.parameters()]
    with_muon = [p for p in layers if p.dim() == 2] if cfg.matrices == "muon" else []
    matrices = {"params": with_muon, "lr": cfg.muon_lr}
    special = {id(p) for group in (adapter, matrices) for p in group["params"]}
    rest = {"params": [p for p in model.parameters() if id(p) not in special], "lr": cfg.lr}
    with_adamw = [rest] if cfg.matrices == "muon" else [rest, adapter]
    optimizers: list[Optimizer] = [AdamW(with_adamw, weight_decay=cfg.weight_decay)]
    if cfg.matrices == "muon":
        optimizers.append(Muon([matrices, adapter], weight_decay=cfg.weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def rate_factor(cfg: OptimConfig, train: TrainConfig, step: int) -> float:
    """Share of the peak rate at a step (0-based): linear warm-up, then constant, or decaying to 0 at the end."""
    if step < cfg.warmup_steps:
        return (step + 1) / cfg.warmup_steps
    start = max(cfg.warmup_steps, (1 - cfg.decay_share) * train.steps)
    if cfg.decay == "constant" or step <= start:
        return 1.0
    share = min(1.0, (step - start) / (train.steps - start))
    return (1 + cos(pi * share)) / 2 if cfg.decay == "cosine" else 1.0 - share


def set_rate(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Give every parameter group ``factor`` of its peak rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor


def clip_gradients(model: nn.Module, limit: float) -> torch.Tensor:
    """Scale all gradients so that their global norm is at most ``limit``; return the norm before, on the device."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm

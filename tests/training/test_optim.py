"""Which optimizer moves which parameter, at what rate, and how far."""

from itertools import pairwise
from math import cos, pi

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from par.config.groups import OptimConfig, TrainConfig
from par.model.build import build_model, build_rendering
from par.model.looped import LoopedModel
from par.testing import tiny_run
from par.training.optim import build_optimizers, clip_gradients, rate_factor, set_rate

BACKBONES = ("tiny-qwen2", "tiny-qwen2-untied", "tiny-qwen3", "tiny-llama")


def tiny_model(backbone: str = "tiny-qwen2") -> LoopedModel:
    run = tiny_run(backbone=backbone)
    return build_model(run, build_rendering(run), seed=0)


@pytest.mark.parametrize("matrices", ["adamw", "muon"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_parameter_is_in_exactly_one_group(backbone, matrices):
    """No parameter is left out and none is moved twice; a tied matrix counts once."""
    model = tiny_model(backbone)
    optimizers = build_optimizers(model, OptimConfig(matrices=matrices))
    grouped = [id(p) for o in optimizers for group in o.param_groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in set(model.parameters()))


@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_the_adapter_has_its_own_rate(matrices):
    """The adapter, and nothing else, learns at ``adapter_lr``."""
    model, cfg = tiny_model(), OptimConfig(matrices=matrices, lr=1e-3, adapter_lr=2e-3, muon_lr=3e-3)
    rates = {
        id(p): group["lr"]
        for optimizer in build_optimizers(model, cfg)
        for group in optimizer.param_groups
        for p in group["params"]
    }
    assert [name for name, p in model.named_parameters() if rates[id(p)] == 2e-3] == ["recurrence.adapter.weight"]


def test_by_default_the_adapters_rate_suits_its_optimizer():
    """Without ``adapter_lr`` the adapter learns at 1e-4 under AdamW, and like other matrices under Muon."""
    model = tiny_model()
    for cfg, rate in ((OptimConfig(), 1e-4), (OptimConfig(matrices="muon", muon_lr=3e-3), 3e-3)):
        groups = [group for optimizer in build_optimizers(model, cfg) for group in optimizer.param_groups]
        [found] = [g for g in groups if any(p is model.recurrence.adapter.weight for p in g["params"])]
        assert found["lr"] == found["peak_lr"] == rate


@pytest.mark.parametrize("backbone", BACKBONES)
def test_muon_moves_the_matrices_only(backbone):
    """Muon has those of prelude, core, coda and the adapter; embedding, head, norms and biases stay with AdamW."""
    model, cfg = tiny_model(backbone), OptimConfig(matrices="muon")
    adamw, muon = build_optimizers(model, cfg)
    moved = {id(p) for group in muon.param_groups for p in group["params"]}
    matrices = ("proj.weight", "adapter.weight")
    assert moved == {id(p) for name, p in model.named_parameters() if name.endswith(matrices)}
    assert isinstance(adamw, torch.optim.AdamW)
    assert [type(o) for o in build_optimizers(model, OptimConfig())] == [torch.optim.AdamW]


@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_weight_decay_reaches_every_group(matrices):
    """The configured decay is that of all groups of all optimizers."""
    optimizers = build_optimizers(tiny_model(), OptimConfig(matrices=matrices, weight_decay=0.3))
    assert {group["weight_decay"] for o in optimizers for group in o.param_groups} == {0.3}


def factors(steps: int = 100, **changes: object) -> list[float]:
    cfg = OptimConfig(**{"warmup_steps": 10} | changes)
    return [rate_factor(cfg, TrainConfig(steps=steps), step) for step in range(steps + 1)]


def test_warm_up_is_linear():
    """The first step has 1/n of the peak rate, the n-th and all later ones the whole of it; without warm-up, all."""
    assert factors()[:12] == pytest.approx([step / 10 for step in range(1, 11)] + [1, 1])
    assert factors()[10:] == [1.0] * 91
    assert factors(warmup_steps=0) == [1.0] * 101


def test_decay_ends_at_zero():
    """Over the last share of the run the rate falls to 0 at its end, along half a cosine or a line; before, it is 1."""
    cosine, linear = (factors(decay=decay, decay_share=0.4) for decay in ("cosine", "linear"))
    for step in range(10, 60):
        assert cosine[step] == linear[step] == 1
    for step in range(60, 101):
        share = (step - 60) / 40
        assert cosine[step] == pytest.approx((1 + cos(pi * share)) / 2)
        assert linear[step] == pytest.approx(1 - share)


@settings(max_examples=60, deadline=None)
@given(
    decay=st.sampled_from(["constant", "cosine", "linear"]),
    decay_share=st.floats(0, 1),
    warmup=st.integers(0, 40),
    steps=st.integers(41, 200),
)
def test_rates_rise_then_fall(decay, decay_share, warmup, steps):
    """Whatever the shape, every step's share of the peak rate is in (0, 1], rising in warm-up and never after it."""
    shares = factors(steps, decay=decay, decay_share=decay_share, warmup_steps=warmup)[:-1]
    assert all(0 < share <= 1 for share in shares)
    assert all(a < b for a, b in pairwise(shares[:warmup]))
    assert all(a >= b for a, b in pairwise(shares[warmup:]))


def test_a_rate_is_a_share_of_its_groups_peak():
    """Setting a rate twice does not compound, and every group keeps its own peak."""
    optimizers = build_optimizers(tiny_model(), OptimConfig(matrices="muon", lr=1e-3, adapter_lr=2e-3, muon_lr=4e-3))
    for factor in (0.5, 0.25, 1.0):
        set_rate(optimizers, factor)
        rates = [group["lr"] for o in optimizers for group in o.param_groups]
        assert rates == pytest.approx([factor * peak for peak in (1e-3, 4e-3, 2e-3)])


@settings(max_examples=20, deadline=None)
@given(scale=st.floats(-3, 3), limit=st.floats(-2, 2))
def test_clipping_bounds_the_global_norm(scale, limit):
    """Gradients above the limit are scaled to it, all by one factor; those below stay; the norm before is returned."""
    model, limit = torch.nn.Linear(4, 3), 10**limit
    rng = torch.Generator().manual_seed(0)
    for p in model.parameters():
        p.grad = 10**scale * torch.randn(p.shape, generator=rng)
    before = torch.cat([p.grad.flatten().clone() for p in model.parameters()])
    norm = clip_gradients(model, limit)
    after = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert norm.item() == pytest.approx(before.norm().item(), rel=1e-5)
    torch.testing.assert_close(after, before * min(1.0, limit / before.norm().item()), rtol=1e-4, atol=1e-12)

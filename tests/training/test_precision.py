"""bf16 computes, fp32 remembers."""

from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.nn.functional import cosine_similarity

from par.errors import ConfigError
from par.testing import run_processes, tiny_run
from par.training.loop import Trainer
from par.training.parallel import data_mesh


def first_step(precision: str) -> tuple[float, dict[str, torch.Tensor], set[torch.dtype]]:
    """Loss and gradients of a step, and the types of the states that the core hands on."""
    run = tiny_run(train__precision=precision, task__rendering="text", task__name="s4-full")
    trainer = Trainer(run, data_mesh(precision))
    seen: set[torch.dtype] = set()
    for layer in trainer.model.recurrence.layers:
        layer.register_forward_hook(lambda module, args, out: seen.add(out.dtype))
    trainer.step = 3
    loss, *_ = trainer._forward_backward(trainer.batch())
    gradients = {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}
    whole = {name: g.full_tensor() if isinstance(g, DTensor) else g for name, g in gradients.items()}
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    return loss.item(), whole, seen


def record(rank: int, out: Path) -> None:
    torch.save({precision: first_step(precision) for precision in ("fp32", "bf16")}, out / "steps")


@pytest.mark.dist
def test_bf16_computes_and_fp32_remembers(tmp_path):
    """In a single process, too: states are bf16, weights and gradients fp32, and the gradient points the same way.

    The prompts are of unequal length, so padding is among what must stay finite.
    """
    run_processes(1, record, tmp_path)
    steps = torch.load(tmp_path / "steps", weights_only=True)
    (loss, gradients, dtypes), (half_loss, half_gradients, half_dtypes) = steps["fp32"], steps["bf16"]
    assert (dtypes, half_dtypes) == ({torch.float32}, {torch.bfloat16})
    assert half_loss == pytest.approx(loss, rel=2e-2)
    assert half_loss != loss
    assert half_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert half_gradients[name].dtype == torch.float32
        assert half_gradients[name].isfinite().all(), name
        alike = cosine_similarity(half_gradients[name].flatten(), gradient.flatten(), dim=0)
        assert alike > 0.98 or gradient.norm() < 1e-6, name


def test_flex_attention_is_refused_without_a_gpu(monkeypatch):
    """Its backward pass exists for GPUs only: the setting, the reason and the way out are said before a step."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"compute\.attention=flex needs a GPU.*split"):
        Trainer(tiny_run(compute__attention="flex"))

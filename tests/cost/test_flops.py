"""The cost model against counted matrix products and counted parameters."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from statistics import fmean

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from par.config.backbones import BACKBONES
from par.config.run import RunConfig
from par.cost import flops as cost
from par.cost.sizes import layer_entries, recorded_iterations
from par.evaluation.accuracy import depth_curve
from par.evaluation.exam import Exam
from par.evaluation.halting import halting_curve
from par.evaluation.tracing import record_traces
from par.model.build import build_model, build_rendering
from par.testing import tiny_run
from par.training.loop import Trainer

SETTINGS = {
    "forced": {},
    "hold, three prefixes": {"schedule__kind": "hold", "schedule__iterations": 6, "train__branches__prefixes": 3},
    "fixed, last only": {"schedule__kind": "fixed", "schedule__iterations": 6, "objective": "final_only"},
    "two operations an iteration": {"recurrence__step_size": 2, "train__branches__boxes": "one"},
    "micro-batches": {"compute__micro_batch": 3},
    "learned halting": {
        "schedule__kind": "fixed",
        "schedule__iterations": 6,
        "halting__mode": "learned",
        "halting__trace_sequences": 5,
        "halting__tau": 0.999,
        "halting__k": 1,
        "halting__m": 1,  # every iteration is read, and nobody halts
    },
    "label-free": {"objective": "prefix_distill", "recurrence__gradient_window": 3},
    "label-free, hold": {"objective": "prefix_distill", "schedule__kind": "hold", "schedule__iterations": 4},
    "split": {"recurrence__split": (1, 3, 2), "backbone": "six-layers"},
    "checkpointing": {"compute__activation_checkpointing": True, "backbone": "six-layers"},
    "few at a time": {"evaluation__memory_gib": 1.5e-4, "evaluation__sequences": 3},
    "text, swap-s3": {"task__rendering": "text"},
    "text, a5": {"task__rendering": "text", "task__name": "a5"},
    "text, s4-full": {"task__rendering": "text", "task__name": "s4-full"},
}


@pytest.fixture(autouse=True)
def counted_backbones(monkeypatch):
    """A backbone whose parts may have different numbers of layers."""
    six = replace(BACKBONES["tiny-qwen3"], name="six-layers", layers=6)
    monkeypatch.setitem(BACKBONES, "six-layers", six)


def counted_run(settings: str) -> RunConfig:
    return tiny_run(**{"task__train_depth": 8, "train__steps": 200, "evaluation__depths": (8, 16)} | SETTINGS[settings])


def fused(query, key, *_, out_shape=None, **__) -> int:
    """The two products of the fused kernel over all pairs of its tokens, hidden ones included."""
    return 4 * prod(query) * key[2]


def fused_backward(_, query, key, *__, out_shape=None, **___) -> int:
    """Twice the forward pass: the scores that the kernel computes again are not counted."""
    return 2 * fused(query, key)


def counted(work: Callable[[], object]) -> int:
    """Matrix products of ``work``, those of the CPU's fused attention included, which the counter does not know."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    with FlopCounterMode(display=False, custom_mapping={kernel: fused, backward: fused_backward}) as counter:
        work()
    assert {kernel, backward} & counter.get_flop_counts()["Global"].keys()
    return counter.get_total_flops()


@pytest.mark.parametrize("settings", SETTINGS)
def test_training_flops_are_those_counted(settings):
    """The matrix products of a step, forward and backward, are counted to 2 %, whatever is drawn and asked.

    Where sentences differ in length the padding of each batch is its own: then it holds of the mean, to 10 %.
    """
    run = counted_run(settings)
    trainer = Trainer(run)
    found, estimated = [], []
    for step in range(16):
        trainer.step = step
        found.append(counted(partial(trainer._forward_backward, trainer.batch())))
        estimated.append(cost.step_flops(run, step))
    if run.task.name == "s4-full":
        assert fmean(estimated) == pytest.approx(fmean(found), rel=0.1)
    else:
        assert estimated == pytest.approx(found, rel=0.02)


@pytest.mark.parametrize("settings", SETTINGS)
def test_evaluation_flops_are_those_counted(settings):
    """The products of the depth curve, and of halting curve and traces where there are any, are counted to 2 %."""
    run = counted_run(settings)
    rendering = build_rendering(run)
    exam = Exam.of(run, build_model(run, rendering, seed=0), rendering)
    found = counted(lambda: depth_curve(exam))
    if run.halting.mode == "learned":
        found += counted(lambda: halting_curve(exam, run.halting))
        traced = replace(exam, sequences=run.halting.trace_sequences)
        found += counted(lambda: record_traces(traced, recorded_iterations(run)))
    assert cost.seed_cost(run).evaluation_flops == pytest.approx(found, rel=0.02)


def test_a_seed_costs_its_steps():
    """Training costs the sum over all steps of what each draws."""
    run = counted_run("hold, three prefixes")
    found = cost.seed_cost(run)
    assert found.train_flops == pytest.approx(sum(cost.step_flops(run, step) for step in range(run.train.steps)))
    assert found.flops == found.train_flops + found.evaluation_flops


def test_workers_share_a_step():
    """A step has the same products however many workers and passes it is cut into."""
    whole, cut = tiny_run(), tiny_run(compute__workers=2, compute__micro_batch=2)
    assert cost.step_flops(whole, 0) == cost.step_flops(cut, 0)


@pytest.mark.parametrize("family", ["qwen2", "qwen2-untied", "qwen3", "llama"])
def test_parameters_are_all_matrices(family):
    """Parameters are exactly the entries of all matrices, a tied one once; norms and biases are left out."""
    run = tiny_run(backbone=f"tiny-{family}")
    model = build_model(run, build_rendering(run), seed=0)
    assert cost.seed_cost(run).parameters == sum(p.numel() for p in model.parameters() if p.dim() == 2)
    layer = model.coda.answer
    assert layer_entries(BACKBONES[run.backbone]) == sum(p.numel() for p in layer.parameters() if p.dim() == 2)


def test_the_smallest_qwen_has_its_published_size():
    """Qwen2.5-0.5B has 14.91 million matrix entries a layer and 0.49 billion parameters in all."""
    assert layer_entries(BACKBONES["qwen2.5-0.5b"]) == pytest.approx(14.91e6, rel=1e-3)
    adapter = 2 * 896**2
    assert cost.seed_cost(RunConfig()).parameters - adapter == pytest.approx(0.494e9, rel=1e-2)


def test_a_checkpoint_holds_weights_and_two_moments():
    """Of AdamW its bytes are three fp32 numbers a parameter, however many workers write it."""
    found = cost.seed_cost(RunConfig())
    assert found.checkpoint_bytes == 3 * 4 * found.parameters
    shared = cost.seed_cost(RunConfig.from_dotted({"compute.workers": 8}))
    assert shared.checkpoint_bytes == found.checkpoint_bytes


@pytest.mark.parametrize(
    "changes", [{}, {"task__name": "s4-full", "task__rendering": "text", "schedule__kind": "hold"}]
)
def test_speed_counts_the_tokens_that_were_trained_on(changes):
    """It is the tokens of all passes over the seconds of all records, whatever their lengths; without a record none."""
    trainer = Trainer(tiny_run(**changes))
    batches = [micro for step in range(8) for micro in trainer.batches.micro_batches(step, rank=0, workers=1)]
    tokens = sum(micro.packed.real_BT.numel() for micro in batches)
    assert cost.tokens_per_s(trainer.run, [(2, 1.0), (8, 2.0)]) == pytest.approx(tokens / 5, rel=0.02)
    assert cost.tokens_per_s(trainer.run, []) is None

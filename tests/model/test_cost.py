"""The cost model against counted matrix products and counted parameters."""

from dataclasses import replace
from statistics import fmean

import pytest
from torch.utils.flop_counter import FlopCounterMode

from par.config import RunConfig
from par.evaluation.accuracy import depth_curve
from par.evaluation.halting import halting_curve
from par.model import cost
from par.model.backbones import BACKBONES
from par.model.build import build_model, build_rendering
from par.tasks.groups import parse_task
from par.testing import tiny_run
from par.training.loop import Trainer

SETTINGS = {
    "forced": {},
    "hold, three prefixes": {"schedule__kind": "hold", "schedule__iterations": 6, "train__branches__prefixes": 3},
    "fixed, last only": {"schedule__kind": "fixed", "schedule__iterations": 6, "objective": "final_only"},
    "two operations an iteration": {"recurrence__step_size": 2, "train__branches__boxes": "one"},
    "micro-batches": {"train__micro_batch": 3},
    "learned halting": {"schedule__kind": "fixed", "schedule__iterations": 6, "halting__mode": "learned"},
    "split": {"recurrence__split": (1, 3, 2), "backbone": "six-layers"},
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


@pytest.mark.parametrize("settings", SETTINGS)
def test_training_flops_are_those_counted(settings):
    """The matrix products of a step, forward and backward, are counted to 2 %, whatever is drawn and asked.

    Where sentences differ in length the padding of each batch is its own: then it holds of the mean, to 10 %.
    """
    run = counted_run(settings)
    trainer = Trainer(run)
    counted, estimated = [], []
    for step in range(16):
        trainer.step = step
        with FlopCounterMode(display=False) as counter:
            trainer._forward_backward()
        counted.append(counter.get_total_flops())
        estimated.append(run.train.batch_size * cost._train_prompt(run, step))
    if run.task.name == "s4-full":
        assert fmean(estimated) == pytest.approx(fmean(counted), rel=0.1)
    else:
        assert estimated == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize("settings", SETTINGS)
def test_evaluation_flops_are_those_counted(settings):
    """The matrix products of the depth curve, and of the halting curve where there is one, are counted to 2 %."""
    run = counted_run(settings)
    rendering, task = build_rendering(run), parse_task(run.task.name)
    grid = {
        "depths": (*run.short_grid(), *run.depth_grid()),
        "step_size": run.recurrence.step_size,
        "sequences": run.evaluation.sequences,
        "batch_size": run.evaluation.batch_size,
    }
    model = build_model(run, rendering, seed=0)
    with FlopCounterMode(display=False) as counter:
        depth_curve(model, task, rendering, **grid)
        if run.halting.mode == "learned":
            halting_curve(model, task, rendering, run.halting, **grid)
    assert cost.seed_cost(run).evaluation_flops == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_a_seed_costs_its_steps():
    """Training costs the sum over all steps of what each draws, times the prompts of a batch."""
    run = counted_run("hold, three prefixes")
    per_prompt = fmean(cost._train_prompt(run, step) for step in range(run.train.steps))
    found = cost.seed_cost(run)
    assert found.train_flops == pytest.approx(per_prompt * run.train.steps * run.train.batch_size)
    assert found.flops == found.train_flops + found.evaluation_flops


@pytest.mark.parametrize("family", ["qwen2", "qwen2-untied", "qwen3", "llama"])
def test_parameters_are_all_matrices(monkeypatch, family):
    """Parameters are exactly the entries of all matrices, a tied one once; norms and biases are left out."""
    sized = replace(BACKBONES[f"tiny-{family}"], vocabulary=50)
    monkeypatch.setitem(BACKBONES, sized.name, sized)
    run = tiny_run(backbone=sized.name)
    model = build_model(run, build_rendering(run), seed=0)
    assert cost.seed_cost(run).parameters == sum(p.numel() for p in model.parameters() if p.dim() == 2)
    layer = model.coda.answer
    assert cost.layer_parameters(sized) == sum(p.numel() for p in layer.parameters() if p.dim() == 2)


def test_the_smallest_qwen_has_its_published_size():
    """Qwen2.5-0.5B has 14.91 million matrix entries a layer and 0.49 billion parameters in all."""
    assert cost.layer_parameters(BACKBONES["qwen2.5-0.5b"]) == pytest.approx(14.91e6, rel=1e-3)
    adapter = 2 * 896**2
    assert cost.seed_cost(RunConfig()).parameters - adapter == pytest.approx(0.494e9, rel=1e-2)


def test_a_checkpoint_holds_weights_and_two_moments():
    """Its bytes are three fp32 numbers a parameter."""
    found = cost.seed_cost(RunConfig())
    assert found.checkpoint_bytes == 3 * 4 * found.parameters

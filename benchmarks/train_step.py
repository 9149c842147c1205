"""One training step: forward, backward, clip and update, at the deepest prompt and with a full gradient window."""

from collections.abc import Mapping
from copy import deepcopy
from itertools import count
from typing import Any

from benchmarks.harness import Case, Target
from benchmarks.reference import PlainTrainer
from benchmarks.wide import WIDE, registered
from par.config.run import RunConfig
from par.cost.flops import step_flops
from par.tasks.groups import parse_task
from par.training.draws import answered_iterations, draw_depth
from par.training.loop import Trainer

SETTING = {
    "backbone": "mini-qwen3",
    "task.name": "swap-s5",
    "task.rendering": "compact",
    "task.train_depth": 16,
    "recurrence.gradient_window": 8,
    "train.batch_size": 64,
    "train.branches.boxes": "all",
    "optim.matrices": "adamw",
}
WIDE_SETTING = SETTING | {"backbone": WIDE.name, "train.batch_size": 8}


def case() -> Case:
    """64 prompts that ask for all five boxes, beside 320 prompts that ask for one; loss and gradient norm agree.

    Drawing the examples and wording the prompts belong to the step.
    """
    return _case("train_step", SETTING)


def wide_case() -> Case:
    """The same with 8 prompts and 40, on layers wide enough for matrix products to matter: how well are they used?"""
    with registered(WIDE):
        return _case("train_step_wide", WIDE_SETTING)


def deepest_step(run: RunConfig) -> int:
    """The first step (0-based) whose prompts are as deep as any."""
    return next(step for step in count() if draw_depth(run, step).operations == run.task.train_depth)


def _case(name: str, setting: Mapping[str, Any]) -> Case:
    run = RunConfig.from_dotted(setting)
    trainer, deepest = Trainer(run), deepest_step(run)
    plain = PlainTrainer(run, deepcopy(trainer.model), trainer.rendering)

    def product() -> tuple[float, float]:
        trainer.step = deepest
        report = next(trainer.steps())
        return report.loss, report.grad_norm

    read = answered_iterations(run, draw_depth(run, deepest).iterations)
    return Case(
        name=name,
        setting=setting,
        amount=run.train.batch_size * parse_task(run.task.name).boxes * len(read),
        product=product,
        reference=lambda: plain.step(deepest),
        target=Target("≥", 3),
        flops=step_flops(run, deepest) if run.backbone == WIDE.name else None,
    )

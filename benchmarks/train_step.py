"""One training step: forward, backward, clip and update, at the deepest prompt and with a full gradient window."""

from copy import deepcopy
from itertools import count

from benchmarks.harness import Case
from benchmarks.reference import PlainTrainer
from par.config import RunConfig
from par.tasks.groups import parse_task
from par.training.depth import answered_iterations, draw_depth
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


def case() -> Case:
    """64 prompts that ask for all five boxes, beside 320 prompts that ask for one; loss and gradient norm agree.

    Drawing the examples and wording the prompts belong to the step.
    """
    run = RunConfig.from_dotted(SETTING)
    trainer = Trainer(run)
    plain = PlainTrainer(run, deepcopy(trainer.model), trainer.rendering)
    deepest = next(step for step in count() if draw_depth(run, step).operations == run.task.train_depth)

    def product() -> tuple[float, float]:
        trainer.step = deepest
        report = next(trainer.steps())
        return report.loss, report.grad_norm

    read = answered_iterations(run, draw_depth(run, deepest).iterations)
    return Case(
        name="train_step",
        setting=SETTING,
        answers=run.train.batch_size * parse_task(run.task.name).boxes * len(read),
        product=product,
        reference=lambda: plain.step(deepest),
    )

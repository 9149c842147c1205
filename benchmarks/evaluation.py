"""The whole depth curve: accuracy of every depth of the grid and of every box."""

from dataclasses import replace

from benchmarks.harness import Case, Target
from benchmarks.reference import plain_curve
from par.config.run import RunConfig
from par.evaluation.accuracy import DepthCurve, depth_curve
from par.evaluation.exam import Exam
from par.model.build import build_model, build_rendering
from par.tasks.groups import parse_task
from par.training.draws import Stream, integer_seed
from par.training.parallel import device_of_this_worker

SETTING = {  # with adapter_init=state an untrained core forgets the prompt, and both ways agree on any answer
    "backbone": "mini-qwen3",
    "task.name": "swap-s5",
    "task.rendering": "compact",
    "task.train_depth": 32,
    "recurrence.adapter_init": "sum",
    "evaluation.sequences": 4,
    "evaluation.batch_size": 4,
}
QUESTIONS_PER_PASS = 8
"""Of the reference: on a CPU the fastest of 4, 8, 16 and 64, as 4 prompts are for the product (of 4, 8 and 16)."""


def case() -> Case:
    """One packed pass that answers all depths and boxes, beside passes for each depth and box; accuracies agree."""
    run = RunConfig.from_dotted(SETTING)
    rendering, task = build_rendering(run), parse_task(run.task.name)
    model = build_model(run, rendering, seed=integer_seed(Stream.INITIALISATION, run.seed))
    model = model.to(device_of_this_worker())
    asked = {
        "depths": run.depth_grid(),
        "step_size": run.recurrence.step_size,
        "sequences": run.evaluation.sequences,
    }
    exam = replace(Exam.of(run, model, rendering), depths=run.depth_grid(), batch_size=run.evaluation.batch_size)
    return Case(
        name="evaluation",
        setting=SETTING | {"depths": asked["depths"], "questions per pass of the reference": QUESTIONS_PER_PASS},
        amount=run.evaluation.sequences * len(asked["depths"]) * task.boxes,
        product=lambda: _accuracies(depth_curve(exam)),
        reference=lambda: _accuracies(plain_curve(model, task, rendering, **asked, batch_size=QUESTIONS_PER_PASS)),
        target=Target("≥", 6),
        repeats=3,
    )


def _accuracies(curve: DepthCurve) -> tuple[float, ...]:
    return (*curve.single_query, *curve.full_state)

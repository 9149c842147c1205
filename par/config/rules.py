"""Rules between the settings of a run. Loads without torch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from par.config.backbones import BACKBONES, split_layers
from par.errors import ConfigError

if TYPE_CHECKING:
    from par.config.run import RunConfig, ScheduleConfig


def disagreements(run: "RunConfig") -> Iterator[str]:
    """Yield what no run can do, each as a message with the settings, their values and the way out."""
    train, d = run.train, run.task.train_depth
    yield from _backbone_faults(run)
    yield from _schedule_faults(run.schedule)
    if train.batch_size % train.workers:
        yield f"train.batch_size={train.batch_size} is not a multiple of train.workers={train.workers}"
    if train.micro_batch is not None and train.micro_batch > train.batch_size // train.workers:
        share = f"train.batch_size={train.batch_size} / train.workers={train.workers}"
        yield f"train.micro_batch={train.micro_batch} is above the prompts of a worker, {share}"
    if run.optim.warmup_steps >= train.steps:
        yield f"optim.warmup_steps={run.optim.warmup_steps} must be below train.steps={train.steps}"
    if run.schedule.kind == "random" and run.objective in ("progress", "prefix_distill"):
        yield f"schedule.kind=random has no targets for objective={run.objective}: use final_only or final_every"
    if run.objective == "final_only" and run.halting.mode == "learned":
        few = "objective=final_only reads the last iteration alone, too little to learn from it when to stop"
        yield f"{few} (halting.mode=learned): use objective=final_every, or halting.mode=forced"
    if run.objective == "prefix_distill" and train.branches.prefixes > 1:
        prefixes = f"train.branches.prefixes={train.branches.prefixes}"
        yield f"{prefixes} labels truncated prompts, which objective=prefix_distill does without: use 1"
    depths = run.evaluation.depths
    if depths is not None and (not depths or list(depths) != sorted(set(depths)) or depths[0] != d):
        yield f"evaluation.depths={list(depths)} must ascend from task.train_depth={d}"


def _schedule_faults(schedule: "ScheduleConfig") -> Iterator[str]:
    kind, iterations = schedule.kind, schedule.iterations
    if kind in ("fixed", "random") and iterations != int(iterations):
        yield f"schedule.iterations={iterations} must be whole for schedule.kind={kind}"
    if kind == "hold" and schedule.distribution == "uniform" and 2 * iterations % 1:
        yield f"schedule.iterations={iterations} is no mean of a uniform R: use a multiple of 0.5"


def _backbone_faults(run: "RunConfig") -> Iterator[str]:
    backbone = BACKBONES[run.backbone]
    if backbone.source is not None and run.task.rendering == "compact":
        yield f"task.rendering=compact needs a random-init backbone, {run.backbone} is pretrained: use text"
    try:
        split_layers(backbone.layers, run.recurrence.split)
    except ConfigError as fault:
        yield f"{fault} (backbone {run.backbone})"

"""One run as a value that checks itself: frozen, checked, addressed by dotted keys. Loads without torch."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from par.config.backbones import BACKBONES, split_layers
from par.config.groups import (
    ComputeConfig,
    EvaluationConfig,
    HaltingConfig,
    OptimConfig,
    Part,
    RecurrenceConfig,
    ScheduleConfig,
    StretchConfig,
    TaskConfig,
    TrainConfig,
)
from par.config.keys import explain, leaves, nest
from par.errors import ConfigError

SHORT_OF_TRAINING = (0.125, 0.25, 0.5, 0.75)
"""Depths below d_train that are always read, as multiples: G of a seed that fails at d_train needs them."""
BEYOND_TRAINING = (1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16)


class RunConfig(Part):
    """Everything that decides the result of one (configuration, seed), and how it is computed."""

    backbone: str = "qwen2.5-0.5b"
    """A name of the registry of backbones."""
    task: TaskConfig = TaskConfig()
    recurrence: RecurrenceConfig = RecurrenceConfig()
    objective: Literal["progress", "final_every", "final_only", "prefix_distill"] = "progress"
    """What an iteration is trained to read: the state after its own operations (progress), the final answer on every
    iteration or on the last only, or what a teacher reads of the truncated prompt (prefix_distill).
    """
    schedule: ScheduleConfig = ScheduleConfig()
    train: TrainConfig = TrainConfig()
    compute: ComputeConfig = ComputeConfig()
    optim: OptimConfig = OptimConfig()
    stretch: StretchConfig = StretchConfig()
    halting: HaltingConfig = HaltingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: Annotated[int, Field(ge=0)] = 0
    """Decides initialisation, examples and every draw of training."""

    @field_validator("backbone")
    @classmethod
    def _registered(cls, name: str) -> str:
        if name not in BACKBONES:
            raise ValueError(f"backbone={name} is not registered: choose one of {', '.join(BACKBONES)}")
        return name

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        faults = list(disagreements(self))
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @classmethod
    def from_dotted(cls, values: Mapping[str, Any]) -> Self:
        """Build from dotted keys, e.g. ``{"train.steps": 200}``. Raises ConfigError that lists every fault."""
        try:
            return cls.model_validate(nest(values))
        except ValidationError as fault:
            raise ConfigError("; ".join(message for _, message in explain(fault))) from None

    def dotted(self) -> dict[str, Any]:
        """Every setting under its dotted key."""
        return dict(leaves(self.model_dump(mode="json")))

    def fingerprint(self) -> str:
        """Sixteen hex digits that name the configuration: every setting that can change a result, but not the seed."""
        settings = self.model_dump(mode="json", exclude={"seed", "compute"})
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def prompts_per_pass(self) -> int:
        """Prompts of one forward pass of one worker."""
        return self.compute.micro_batch or self.train.batch_size // self.compute.workers

    def depth_grid(self) -> tuple[int, ...]:
        """Tested depths from d_train on, in operations, ascending."""
        d = self.task.train_depth
        if self.evaluation.depths is not None:
            return self.evaluation.depths
        if self.task.name == "swap-s5" and d == 32:
            return (32, 48, 64, 96, 128, 192, 256, 512)
        return tuple(sorted({round(d * multiple) for multiple in BEYOND_TRAINING}))

    def short_grid(self) -> tuple[int, ...]:
        """Tested depths below d_train, in operations, ascending."""
        d = self.task.train_depth
        return tuple(sorted({max(1, int(d * multiple)) for multiple in SHORT_OF_TRAINING} - {d}))

    def tested_depths(self) -> tuple[int, ...]:
        """All depths that are read: those below d_train and the grid, ascending."""
        return (*self.short_grid(), *self.depth_grid())


def disagreements(run: RunConfig) -> Iterator[str]:
    """Yield what no run can do, each as a message with the settings, their values and the way out."""
    train, compute, d = run.train, run.compute, run.task.train_depth
    yield from _backbone_faults(run)
    yield from _schedule_faults(run.schedule)
    if train.batch_size % compute.workers:
        yield f"train.batch_size={train.batch_size} is not a multiple of compute.workers={compute.workers}"
    if compute.micro_batch is not None and compute.micro_batch > train.batch_size // compute.workers:
        share = f"train.batch_size={train.batch_size} / compute.workers={compute.workers}"
        yield f"compute.micro_batch={compute.micro_batch} is above the prompts of a worker, {share}"
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


def _schedule_faults(schedule: ScheduleConfig) -> Iterator[str]:
    kind, iterations = schedule.kind, schedule.iterations
    if kind in ("fixed", "random") and iterations != int(iterations):
        yield f"schedule.iterations={iterations} must be whole for schedule.kind={kind}"
    if kind == "hold" and schedule.distribution == "uniform" and 2 * iterations % 1:
        yield f"schedule.iterations={iterations} is no mean of a uniform R: use a multiple of 0.5"


def _backbone_faults(run: RunConfig) -> Iterator[str]:
    backbone = BACKBONES[run.backbone]
    if backbone.source is not None and run.task.rendering == "compact":
        yield f"task.rendering=compact needs a random-init backbone, {run.backbone} is pretrained: use text"
    try:
        split_layers(backbone.layers, run.recurrence.split)
    except ConfigError as fault:
        yield f"{fault} (backbone {run.backbone})"

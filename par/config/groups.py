"""The groups of settings of a run, each a value that checks itself. Loads without torch."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from par.tasks.groups import parse_task

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


class ActsUnder(NamedTuple):
    """What an annotated setting needs to do anything: another setting, by its dotted key, with one of ``values``."""

    setting: str
    values: tuple[object, ...]


class Part(BaseModel):
    """A frozen group of settings: an unknown key is an error, a default is checked like a given value."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class TaskConfig(Part):
    """What is asked."""

    name: str = "swap-s5"
    """swap-sN, sN, sN-full or aN for N boxes."""
    rendering: Literal["text", "compact"] = "text"
    """Sentences for a tokenizer, or one token per operation in the task's own vocabulary."""
    position_spacing: Annotated[int, Field(ge=1), ActsUnder("task.rendering", ("compact",))] = 3
    """Positions between two operations of the compact rendering."""
    train_depth: Annotated[int, Field(ge=1, le=4096)] = 16
    """d_train: the deepest prompt seen in training, in operations."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        parse_task(name)
        return name


class RecurrenceConfig(Part):
    """How the core is iterated."""

    step_size: Annotated[int, Field(ge=1)] = 1
    """c: operations completed by one iteration."""
    gradient_window: Annotated[int, Field(ge=1)] = 8
    """w: trailing iterations that carry gradient and targets."""
    anchor: Literal["first", "none"] = "first"
    """Rescale every token's state to its RMS after iteration 1, or leave it."""
    adapter_init: Literal["state", "input", "sum"] = "state"
    """What the adapter passes at the start: s (the parent at R = 1), e, or both."""
    split: tuple[int, int, int] | None = None
    """Layers of prelude, core and coda; thirds by default."""


class ScheduleConfig(Part):
    """How depth d and iterations R are drawn for a step."""

    kind: Literal["forced", "hold", "fixed", "random"] = "forced"
    """forced: R = ceil(d/c); hold: R drawn, targets beyond completion held; fixed: one R; random: R uniform."""
    iterations: Annotated[float, Field(ge=1), ActsUnder("schedule.kind", ("hold", "fixed", "random"))] = 16
    """Mean R of hold, R of fixed, largest R of random; forced ignores it."""
    distribution: Annotated[Literal["heavy_tail", "uniform"], ActsUnder("schedule.kind", ("hold",))] = "heavy_tail"
    """Of the R of hold; uniform is over 1 .. 2 x mean - 1."""
    overrun: Annotated[int, Field(ge=0), ActsUnder("schedule.kind", ("forced",))] = 0
    """o: forced runs R = ceil(d/c) + U{0..o} iterations."""


class BranchesConfig(Part):
    """What one prompt is asked in training."""

    boxes: Literal["all", "one"] = "all"
    """Every box is asked for, or one drawn at random."""
    prefixes: Annotated[int, Field(ge=1)] = 1
    """Prefix lengths per prompt, each a problem of its own depth."""


class TrainConfig(Part):
    """The loop."""

    steps: Annotated[int, Field(ge=1, le=10**8)] = 6250
    """Optimizer steps of the run."""
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Prompts per optimizer step over all workers."""
    query_reset: Share = 0.0
    """Share of query branches whose state is set back to e at each iteration of training."""
    branches: BranchesConfig = BranchesConfig()
    precision: Literal["fp32", "bf16"] = "fp32"
    """Type of the computation; master weights, losses, anchoring and the reduction of gradients are fp32 always."""
    teacher_decay: Annotated[float, Field(ge=0, lt=1), ActsUnder("objective", ("prefix_distill",))] = 0.99
    """How much of itself the teacher of prefix_distill keeps at each step."""


class ComputeConfig(Part):
    """How a run is computed and recorded, which changes nothing that comes out."""

    workers: Annotated[int, Field(ge=1)] = 1
    """Devices that train one seed together (FSDP2)."""
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    """Prompts per forward pass and worker; the whole share of the worker by default."""
    attention: Literal["split", "flex"] = "split"
    """Kernel: causal prefix and masked branches apart, on any device; or one FlexAttention kernel, for GPUs."""
    activation_checkpointing: bool = False
    """Keep only the inputs of each iteration of the window for the backward pass and compute it again: less memory."""
    deterministic: bool = False
    """Only algorithms that give the same bits again on the same GPU: slower. A CPU gives them anyway."""
    compile: bool = False
    """Compile one iteration of the core: about a minute at the start, faster steps; needs a C++ compiler."""
    checkpoint_every: Annotated[int, Field(ge=1)] = 500
    """Steps between two committed checkpoints."""
    report_every: Annotated[int, Field(ge=1)] = 25
    """Steps between two reports; each is a point of the curves. A checkpoint is reported, too."""


class OptimConfig(Part):
    """AdamW, and Muon for the adapter and the matrices of prelude, core and coda if asked for."""

    matrices: Literal["adamw", "muon"] = "adamw"
    """Optimizer of the adapter and of the matrices of prelude, core and coda; AdamW has the rest."""
    lr: Positive = 2e-5
    """Peak rate of AdamW."""
    adapter_lr: Positive | None = None
    """Of the adapter, under whichever of the two has the matrices; None is 1e-4 under AdamW, muon_lr under Muon."""
    muon_lr: Annotated[Positive, ActsUnder("optim.matrices", ("muon",))] = 4e-3
    """Peak rate of Muon."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled, under both optimizers."""
    warmup_steps: Annotated[int, Field(ge=0)] = 200
    """Steps over which rates rise from zero to their peaks."""
    decay: Literal["constant", "cosine", "linear"] = "constant"
    """How rates fall after the warm-up."""
    decay_share: Annotated[Share, ActsUnder("optim.decay", ("cosine", "linear"))] = 1.0
    """Final share of the run over which the rate decays to zero."""
    clip: Positive = 1.0
    """Largest norm of the gradient; a longer one is shortened to it."""

    @property
    def adapter_rate(self) -> float:
        """Peak rate of the adapter: ``adapter_lr``, or what its default stands for."""
        if self.adapter_lr is not None:
            return self.adapter_lr
        return self.muon_lr if self.matrices == "muon" else 1e-4


STRETCHED = ActsUnder("stretch.enabled", (True,))


class StretchConfig(Part):
    """Positions multiplied by a factor s from [s_min(t), s_max(t)], one s per step."""

    enabled: bool = False
    """Whether positions are stretched in training."""
    distribution: Annotated[Literal["uniform", "log_uniform"], STRETCHED] = "uniform"
    """Of s; log_uniform draws factors near 1, at which a model is tested, more often."""
    s_min: Annotated[float, Field(gt=0, le=1), STRETCHED] = 1.0
    """Below 1, the 1 of a test lies inside the range that was trained, not at its edge."""
    s_max: Annotated[float, Field(ge=1), STRETCHED] = 8.0
    """Largest factor, reached at the end of the ramp."""
    start: Annotated[Share, STRETCHED] = 0.9
    """Share of the run after which positions stretch."""
    ramp: Annotated[Share, STRETCHED] = 0.1
    """Share of the run over which the range grows from 1 to [s_min, s_max]."""

    @model_validator(mode="after")
    def _inside_the_run(self) -> Self:
        if self.start + self.ramp > 1 + 1e-9:
            raise ValueError(
                f"stretch.start={self.start} + stretch.ramp={self.ramp} is above 1: the ramp would outlast the run"
            )
        return self


LEARNED = ActsUnder("halting.mode", ("learned",))


class HaltingConfig(Part):
    """Whether the model learns when to stop, and the rule that reads it."""

    mode: Literal["forced", "learned"] = "forced"
    """Read the answer at the known iteration, or where Yes fires."""
    weight: Annotated[Positive, LEARNED] = 0.5
    """Weight of the halting loss."""
    tau: Annotated[float, Field(gt=0, lt=1), LEARNED] = 0.5
    """Threshold of p_yes, the probability of Yes."""
    k: Annotated[int, Field(ge=1), LEARNED] = 6
    """How many iterations of the m have to be above tau."""
    m: Annotated[int, Field(ge=1), LEARNED] = 8
    """Stop at the first R with p_yes[R] > tau and at least k of p_yes[R..R+m-1] > tau."""
    trace_sequences: Annotated[int, Field(ge=1), LEARNED] = 128
    """Prompts of each of the two splits whose every iteration is recorded, to choose tau, k and m after training."""

    @model_validator(mode="after")
    def _satisfiable(self) -> Self:
        if self.k > self.m:
            raise ValueError(f"halting.k={self.k} is above halting.m={self.m}: no window could fire")
        return self


class EvaluationConfig(Part):
    """The depth grid."""

    sequences: Annotated[int, Field(ge=1)] = 1024
    """Frozen test prompts per depth."""
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Prompts per forward pass, at most; the last pass has as many as all others."""
    memory_gib: Positive = 2.0
    """Memory that the activations of one pass may take: fewer prompts per pass where they would take more."""
    depths: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """Depths from d_train on; by default d_train x (1 .. 16)."""

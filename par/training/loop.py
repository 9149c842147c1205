"""The training loop: a generator of reports. Saving, logging and stopping belong to whoever listens."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from par.config.run import RunConfig
from par.errors import ConfigError, DivergedError
from par.model.build import build_model, build_rendering
from par.tasks.groups import parse_task
from par.training.batches import Batches, MicroBatch
from par.training.distill import Teacher
from par.training.draws import StepDepth, Stream, draw_depth, integer_seed
from par.training.objectives import weighted_loss
from par.training.optim import build_optimizers, clip_gradients, rate_factor, set_rate
from par.training.parallel import device_of_this_worker, gradients_reduced, set_determinism, shard, summed, workers


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """One optimizer step."""

    step: int
    """Steps done, this one included."""
    loss: float
    """Mean over the targets of the global batch, nats."""
    grad_norm: float
    """Global norm before clipping."""
    rate_factor: float
    """Share of the peak learning rates."""
    depth: StepDepth
    """d and R of this step."""
    drift: float
    """rms(s_R) / rms(s_1) before rescaling, mean over real tokens."""
    seconds: float
    leaving: bool
    """Whether a worker wants to leave; all of them hear it after the same step."""

    def row(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, row: Mapping[str, Any], run: RunConfig) -> Self:
        """Build from plain data; those of earlier versions say of the depth only R."""
        values = {name: value for name, value in row.items() if name not in ("depth", "iterations")}
        depth = StepDepth(**row["depth"]) if "depth" in row else draw_depth(run, row["step"] - 1)
        return cls(depth=depth, **values)


class Trainer:
    """A model in training: parameters, optimizer state and the step they stand at.

    The same settings give the same updates whatever the number of workers and the micro-batch.
    """

    def __init__(self, run: RunConfig, mesh: DeviceMesh | None = None) -> None:
        self.run, self.mesh, self.step = run, mesh, 0
        self.device = device_of_this_worker()
        set_determinism(run.compute.deterministic)
        if run.compute.attention == "flex" and self.device.type == "cpu":
            raise ConfigError("compute.attention=flex needs a GPU, there is none here: use compute.attention=split")
        self.rendering = build_rendering(run)
        self.batches = Batches(run, parse_task(run.task.name), self.rendering)
        seed = integer_seed(Stream.INITIALISATION, run.seed)
        self.model = build_model(run, self.rendering, seed=seed).to(self.device)
        shard(self.model, mesh, run.train.precision)
        taught = run.objective == "prefix_distill"
        self.teacher = Teacher(run, self.rendering, seed=seed, device=self.device, mesh=mesh) if taught else None
        if run.compute.compile:
            self.model.recurrence.compile_iteration()
        self.optimizers = build_optimizers(self.model, run.optim)
        self._halting_weight = run.halting.weight if run.halting.mode == "learned" else 0.0
        self.wants_to_leave: Callable[[], bool] = lambda: False
        """Asked once per step; one worker's wish is reported by all of them."""

    def steps(self) -> Iterator[StepReport]:
        """Yield one report per optimizer step until the run is over.

        Raises DivergedError before a non-finite loss or gradient reaches the parameters.
        """
        while self.step < self.run.train.steps:
            started = perf_counter()
            batch = self.batch()
            depth = batch[0].depth
            loss, drift, grad_norm, leaving, finite = self._gradients(batch)
            if not finite:
                raise DivergedError.at(self.step + 1, loss, grad_norm, depth.iterations)
            factor = rate_factor(self.run.optim, self.run.train, self.step)
            self._update(factor)
            self.step += 1
            yield StepReport(
                step=self.step, loss=loss, grad_norm=grad_norm, rate_factor=factor, depth=depth, drift=drift,
                seconds=perf_counter() - started, leaving=leaving > 0,
            )  # fmt: skip

    def batch(self) -> list[MicroBatch]:
        """This worker's share of the next step."""
        rank, size = workers(self.mesh)
        return list(self.batches.micro_batches(self.step, rank=rank, workers=size))

    def _gradients(self, batch: list[MicroBatch]) -> tuple[float, float, float, float, bool]:
        """Clip the gradients of the global batch; return loss, drift, norm before that, leavers, and whether to step.

        The step is taken if loss and norm are finite. All are reduced over the workers, so that these decide alike,
        and leave the device in one transfer.
        """
        loss, drift, leavers = self._forward_backward(batch)
        grad_norm = clip_gradients(self.model, self.run.optim.clip)
        finite = torch.isfinite(loss) & torch.isfinite(grad_norm)
        *figures, finite = torch.stack([loss, drift, grad_norm, leavers, finite]).tolist()
        return *figures, bool(finite)

    def _forward_backward(self, batch: list[MicroBatch]) -> tuple[Tensor, Tensor, Tensor]:
        """Accumulate the gradients of the global batch; return its loss, its mean drift, and how many want to leave.

        All three are scalars on the device.
        """
        _, size = workers(self.mesh)
        totals = torch.zeros(4, device=self.device)
        for number, micro in enumerate(batch, start=1):
            micro = micro.to(self.device)
            with gradients_reduced(self.model, now=number == len(batch)):
                logits_KBNC, drift = self.model(micro.packed, micro.plan)
                loss = weighted_loss(
                    logits_KBNC, micro.targets, halting_weight=self._halting_weight, teacher_KBNC=self._teach(micro)
                )
                (loss * size).backward()  # FSDP averages over the workers; the loss is a share of the global mean
            tokens = micro.packed.real_BT.sum()
            totals[:3] += torch.stack([loss.detach(), drift * tokens, tokens])
        totals[3] = self.wants_to_leave()
        loss, drift, tokens, leavers = summed(totals, self.mesh)
        return loss, drift / tokens, leavers

    def _teach(self, micro: MicroBatch) -> Tensor | None:
        if self.teacher is None or micro.lesson is None:
            return None
        return self.teacher.answers(micro.lesson, kept=len(micro.plan.keep))

    def _update(self, factor: float) -> None:
        set_rate(self.optimizers, factor)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.teacher:
            self.teacher.follow(self.model)

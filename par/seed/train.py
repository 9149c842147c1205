"""One seed: train from the last checkpoint, evaluate, write the result. It knows no cluster and no tracking."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from par import metrics as m
from par.config.run import RunConfig
from par.cost.flops import step_flops
from par.errors import DivergedError, PassTooLargeError, StoppedError
from par.evaluation.tally import COUNTS
from par.ledger.ledger import HISTORY, SeedFolder
from par.ledger.records import SeedResult
from par.objects import Objects
from par.seed.evaluate import Report, accuracy_on_the_way, diverged_metrics, outcome, to_parquet
from par.tasks.groups import parse_task
from par.tasks.streams import evaluation_hash
from par.training import checkpoint
from par.training.commits import tidy
from par.training.loop import StepReport, Trainer
from par.training.parallel import data_mesh, device_of_this_worker, workers
from par.training.speed import forget, lacks_memory, matrix_peak, peak_memory_gib

UNRECORDED = "unrecorded"
"""Under this name a checkpoint between two records keeps the steps since the last one."""


ShouldStop = Callable[[], StoppedError | None]
"""Says why a seed is to save and leave; None while it is not."""


def _nothing() -> None:
    """Stand for a callable that is not given."""


def run_seed(
    run: RunConfig,
    folder: SeedFolder,
    *,
    report: Report,
    should_stop: ShouldStop = _nothing,
    check_owner: Callable[[], object] = _nothing,
    heartbeat: Callable[[], object] = _nothing,
    source: str = "",
) -> SeedResult:
    """Train and evaluate one seed and write its result to ``folder``; every worker of the seed calls it.

    ``report`` gets one flat record per ``compute.report_every`` steps and per evaluated batch. An interrupted
    evaluation goes on only under the same ``source``, a hash of the code. A diverged seed is a result: G = 0 with its
    failure kind. Raises what ``should_stop`` returns, with a checkpoint saved. ``check_owner`` is called before a
    checkpoint or a result is written and raises where the seed is somebody else's by now; ``heartbeat`` at every step
    and evaluated batch.
    """
    forget(device_of_this_worker())
    trainer = Trainer(run, data_mesh(run.train.precision))
    heartbeat()

    def evaluated(record: Mapping[str, Any]) -> None:
        heartbeat()
        report(record)
        if should_stop() is not None:
            raise _reason_to_leave(should_stop)

    training = _Training(
        trainer, folder.checkpoints, should_stop, check_owner, heartbeat, checkpoint.resume(trainer, folder.checkpoints)
    )
    history, files = training.history, dict[str, bytes]()
    try:
        for row in training.records():
            report({"phase": "train", **row})
        found = outcome(trainer, history, folder.checkpoints, evaluated, source)
        files |= found.files
        result = SeedResult(metrics=found.metrics, step=trainer.step, evaluation_set=_evaluation_set(run))
    except DivergedError as fault:
        metrics = diverged_metrics(trainer.step + 1, history)
        result = SeedResult(metrics=metrics, failure=fault.kind, message=str(fault), step=trainer.step)
    if workers(trainer.mesh)[0] == 0:
        check_owner()
        for name, data in {**files, HISTORY: to_parquet(history)}.items():
            folder.write(name, data)
        folder.finish(result)
        with suppress(OSError):  # the seed is done; `par gc` can still do it
            tidy(folder.checkpoints, done=True)
    return result


@dataclass(slots=True)
class _Training:
    """A trainer on its way to the last step: the records so far, and the steps since the last one."""

    trainer: Trainer
    checkpoints: Objects
    should_stop: ShouldStop
    check_owner: Callable[[], object]
    heartbeat: Callable[[], object]
    history: list[dict[str, Any]]
    recent: list[StepReport] = field(default_factory=list[StepReport])

    def records(self) -> Iterator[dict[str, Any]]:
        """Run to the last step; yield each record as it is appended to the history, commit checkpoints.

        A divergence leaves the steps before it in the history: they explain it. Raises StoppedError after a commit
        once a worker is told to leave, and PassTooLargeError where the memory of the device does not suffice.
        """
        trainer, train, compute = self.trainer, self.trainer.run.train, self.trainer.run.compute
        trainer.wants_to_leave = lambda: self.should_stop() is not None
        if trainer.step < train.steps and workers(trainer.mesh)[0] == 0:
            self.checkpoints.delete(COUNTS)  # those of weights that are now trained again
        peak = matrix_peak(trainer.device, train.precision)
        if self.history and UNRECORDED in self.history[-1]:
            self.recent = [StepReport.of(row, trainer.run) for row in self.history.pop()[UNRECORDED]]
        for step in self._steps():
            self.heartbeat()
            self.recent.append(step)
            commits = step.step % compute.checkpoint_every == 0 or step.step == train.steps
            if step.step % compute.report_every == 0 or commits:
                seen = accuracy_on_the_way(trainer) if commits else {}
                self._record(_speed(trainer, self.recent, peak) | seen)
                yield self.history[-1]
            if commits or step.leaving:
                self._save(self.history[-1][m.ON_THE_WAY.name] if commits else None)
            if step.leaving:
                raise _reason_to_leave(self.should_stop)

    def _steps(self) -> Iterator[StepReport]:
        """The trainer's steps; a divergence has those before it recorded, and lack of memory an error of its own."""
        try:
            yield from self.trainer.steps()
        except RuntimeError as fault:
            if not lacks_memory(fault):
                raise
            raise PassTooLargeError(
                f"a training pass does not fit into memory, lower compute.micro_batch: {fault}"
            ) from fault
        except DivergedError:
            if self.recent:
                self._record({})
            raise

    def _record(self, more: Mapping[str, float]) -> None:
        self.history.append({**_summary(self.recent), **more})
        self.recent = []

    def _save(self, accuracy: float | None) -> None:
        """Commit a checkpoint; between two records it keeps the steps since: whoever goes on records them as one."""
        self.check_owner()
        unrecorded = [{UNRECORDED: [report.row() for report in self.recent]}] if self.recent else []
        checkpoint.save(self.trainer, self.checkpoints, [*self.history, *unrecorded], accuracy=accuracy)


def _reason_to_leave(should_stop: ShouldStop) -> StoppedError:
    """What to raise when the workers have agreed to leave."""
    return should_stop() or StoppedError("another worker of the seed was asked to stop")


def _summary(reports: list[StepReport]) -> dict[str, Any]:
    """Averages since the last record, under the step of the last one; without a drift that is not finite."""
    seconds = sum(r.seconds for r in reports)
    values = m.by_name(
        {
            m.LOSS: sum(r.loss for r in reports) / len(reports),
            m.GRAD_NORM: max(r.grad_norm for r in reports),
            m.DRIFT: sum(r.drift for r in reports) / len(reports),
            m.ITERATIONS: sum(r.depth.iterations for r in reports) / len(reports),
            m.RATE_FACTOR: reports[-1].rate_factor,
            m.STEPS_PER_S: len(reports) / seconds,
        }
    )
    return {"step": reports[-1].step, **values}


def _speed(trainer: Trainer, reports: list[StepReport], peak: float) -> dict[str, float]:
    """What the steps cost beside what the device can do, per worker."""
    flops = sum(step_flops(trainer.run, report.step - 1, report.depth) for report in reports)
    rate = flops / trainer.run.compute.workers / sum(report.seconds for report in reports)
    memory = peak_memory_gib(trainer.device)
    return {m.FLOPS.name: rate, m.UTILISATION.name: rate / peak, m.PEAK_MEMORY.name: memory}


def _evaluation_set(run: RunConfig) -> str:
    return evaluation_hash(parse_task(run.task.name), run.tested_depths(), run.evaluation.sequences)

"""What every worker of a seed runs: train from the last commit, evaluate, write the result."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from par import metrics as m
from par.config.run import RunConfig
from par.cost.flops import step_flops
from par.errors import DivergedError, PassTooLargeError
from par.evaluation.tally import COUNTS
from par.ledger.ledger import HISTORY, SeedResult
from par.objects import Objects
from par.tasks.groups import parse_task
from par.tasks.streams import evaluation_hash
from par.training import checkpoint
from par.training.commits import tidy
from par.training.loop import StepReport, Trainer
from par.training.parallel import data_mesh, device_of_this_worker, workers
from par.training.speed import forget, lacks_memory, matrix_peak, peak_memory_gib
from ray_jobs.outcome import Report, accuracy_on_the_way, diverged_metrics, outcome, to_parquet
from ray_jobs.trial.spec import TrialSpec
from ray_jobs.trial.stop_signal import StopSignal
from ray_jobs.trial.watchdog import Watchdog

UNRECORDED = "unrecorded"
"""Under this name a checkpoint between two records keeps the steps since the last one."""


def run_seed(spec: TrialSpec, report: Report, stop_signal: StopSignal | None = None) -> SeedResult:
    """Train and evaluate one seed and write its result to the ledger; every worker of the seed calls it.

    ``report`` gets one flat record per ``train.report_every`` steps and per evaluated batch. A diverged seed is a
    result: G = 0 with its failure kind. Raises StoppedError, with a checkpoint saved, if ``stop_signal`` says so,
    and SupersededError, with nothing written, if the seed is another driver's by now.
    """
    run = spec.run
    forget(device_of_this_worker())
    trainer = Trainer(run, data_mesh(run.train.precision))
    with Watchdog(spec, workers(trainer.mesh)[0]) as watchdog:
        return _run_seed(trainer, spec, report, stop_signal or StopSignal(spec), watchdog)


def _run_seed(
    trainer: Trainer, spec: TrialSpec, report: Report, stop_signal: StopSignal, watchdog: Watchdog
) -> SeedResult:
    def evaluated(record: Mapping[str, Any]) -> None:
        watchdog.beat()
        report(record)
        if stop_signal.wants_to_leave():
            raise stop_signal.leave()

    run, ledger, checkpoints = trainer.run, spec.ledger(), spec.checkpoints
    history = checkpoint.resume(trainer, checkpoints)
    files: dict[str, bytes] = {}
    try:
        for row in _train(trainer, checkpoints, history, stop_signal, watchdog):
            report({"phase": "train", **row})
        found = outcome(trainer, history, checkpoints, evaluated)
        files |= found.files
        result = SeedResult(metrics=found.metrics, step=trainer.step, evaluation_set=_evaluation_set(run))
    except DivergedError as fault:
        metrics = diverged_metrics(trainer.step + 1, history)
        result = SeedResult(metrics=metrics, failure=fault.kind, message=str(fault), step=trainer.step)
    if workers(trainer.mesh)[0] == 0:
        stop_signal.check_ownership()
        files[HISTORY] = to_parquet(history)
        for name, data in files.items():
            ledger.write_bytes(spec.config, spec.seed, name, data)
        ledger.finish(spec.config, spec.seed, result)
        with suppress(OSError):  # the seed is done; `par gc` can still do it
            tidy(checkpoints, done=True)
    return result


def _train(
    trainer: Trainer, folder: Objects, history: list[dict[str, Any]], stop_signal: StopSignal, watchdog: Watchdog
) -> Iterator[dict[str, Any]]:
    """Run to the last step; yield a record per report, append it to ``history``, commit checkpoints.

    Raises StoppedError after a commit once a worker is told to leave.
    """
    trainer.wants_to_leave = stop_signal.wants_to_leave
    train = trainer.run.train
    if trainer.step < train.steps and workers(trainer.mesh)[0] == 0:
        folder.delete(COUNTS)  # those of weights that are now trained again
    peak = matrix_peak(trainer.device, train.precision)
    recent = _take_unrecorded(history)
    steps = trainer.steps()
    while (step := _next(steps, recent, history)) is not None:
        watchdog.beat()
        recent.append(step)
        commits = step.step % train.checkpoint_every == 0 or step.step == train.steps
        if step.step % train.report_every == 0 or commits:
            seen = accuracy_on_the_way(trainer) if commits else {}
            history.append(_record(recent) | _speed(trainer, recent, peak) | seen)
            yield history[-1]
            recent = []
        if commits or step.leaving:
            stop_signal.check_ownership()
            accuracy = history[-1][m.ON_THE_WAY.name] if commits else None
            checkpoint.save(trainer, folder, [*history, *_unrecorded(recent)], accuracy=accuracy)
        if step.leaving:
            raise stop_signal.leave()


def _unrecorded(recent: list[StepReport]) -> list[dict[str, Any]]:
    """The steps since the last record, for a checkpoint between two records: whoever goes on records them as one."""
    return [{UNRECORDED: [report.row() for report in recent]}] if recent else []


def _take_unrecorded(history: list[dict[str, Any]]) -> list[StepReport]:
    """Remove from the history of a checkpoint the steps since its last record."""
    rows = history.pop()[UNRECORDED] if history and UNRECORDED in history[-1] else []
    return [StepReport(**row) for row in rows]


def _next(steps: Iterator[StepReport], recent: list[StepReport], history: list[dict[str, Any]]) -> StepReport | None:
    """The next step, None after the last. A divergence leaves the steps before it in the history: they explain it.

    Raises PassTooLargeError where the memory of the device does not suffice for it.
    """
    try:
        return next(steps, None)
    except RuntimeError as fault:
        if not lacks_memory(fault):
            raise
        raise PassTooLargeError(
            f"a training pass does not fit into memory, lower train.micro_batch: {fault}"
        ) from fault
    except DivergedError:
        if recent:
            history.append(_record(recent))
        raise


def _record(reports: list[StepReport]) -> dict[str, Any]:
    """Averages since the last record, under the step of the last one; without a drift that is not finite."""
    seconds = sum(r.seconds for r in reports)
    values = m.by_name(
        {
            m.LOSS: sum(r.loss for r in reports) / len(reports),
            m.GRAD_NORM: max(r.grad_norm for r in reports),
            m.DRIFT: sum(r.drift for r in reports) / len(reports),
            m.ITERATIONS: sum(r.iterations for r in reports) / len(reports),
            m.RATE_FACTOR: reports[-1].rate_factor,
            m.STEPS_PER_S: len(reports) / seconds,
        }
    )
    return {"step": reports[-1].step, **values}


def _speed(trainer: Trainer, reports: list[StepReport], peak: float) -> dict[str, float]:
    """What the steps cost beside what the device can do, per worker."""
    flops = sum(step_flops(trainer.run, report.step - 1) for report in reports) / trainer.run.train.workers
    rate = flops / sum(report.seconds for report in reports)
    memory = peak_memory_gib(trainer.device)
    return {m.FLOPS.name: rate, m.UTILISATION.name: rate / peak, m.PEAK_MEMORY.name: memory}


def _evaluation_set(run: RunConfig) -> str:
    return evaluation_hash(parse_task(run.task.name), run.tested_depths(), run.evaluation.sequences)

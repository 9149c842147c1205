"""What every worker of a seed runs: train from the last commit, evaluate, write the result."""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from par import metrics as m
from par.config import RunConfig
from par.errors import DivergedError, PassTooLargeError
from par.evaluation.accuracy import DepthCurve, batch_drift, depth_curve
from par.evaluation.extrapolation import extrapolation, extrapolation_auc, full_state_at
from par.evaluation.halting import HaltingCurve, halting_curve
from par.evaluation.tally import Tally
from par.metrics import Metric
from par.model.cost import step_flops
from par.model.memory import evaluation_prompts
from par.study.ledger import ACCURACY, HALTING, HISTORY, SeedResult
from par.tasks.groups import parse_task
from par.tasks.streams import evaluation_hash
from par.training import checkpoint
from par.training.loop import StepReport, Trainer
from par.training.parallel import agreed, data_mesh, device_of_this_worker, workers
from par.training.speed import forget, lacks_memory, matrix_peak, peak_memory_gib
from ray_jobs.provenance import source_hash
from ray_jobs.ticket import Ticket

COUNTS = "evaluation.json"
"""Beside the checkpoints: what an interrupted evaluation has counted."""
Report = Callable[[Mapping[str, Any]], None]


def run_seed(ticket: Ticket, report: Report) -> SeedResult:
    """Train and evaluate one seed and write its result to the ledger; every worker of the seed calls it.

    ``report`` gets one flat record per ``train.report_every`` steps and per evaluated batch. A diverged seed is a
    result: G = 0 with its failure kind.
    """
    run, ledger = ticket.run, ticket.ledger()
    forget(device_of_this_worker())
    trainer = Trainer(run, data_mesh(run.train.precision))
    history = checkpoint.resume(trainer, ticket.checkpoints)
    files: dict[str, bytes] = {}
    try:
        for row in _train(trainer, ticket.checkpoints, history):
            report({"phase": "train", **row})
        curve = _evaluate(trainer, ticket.checkpoints / COUNTS, report)
        files[ACCURACY] = to_parquet(list(curve_rows(curve)))
        metrics = seed_metrics(run, curve) | _evaluation_facts(trainer)
        if run.halting.mode == "learned":
            halting = _evaluate_halting(trainer)
            files[HALTING] = to_parquet(list(curve_rows(halting)))
            metrics |= halting_metrics(run, halting)
        result = SeedResult(metrics=metrics, step=trainer.step, evaluation_set=_evaluation_set(run))
    except DivergedError as fault:
        result = SeedResult(metrics={m.G.name: 0.0}, failure=fault.kind, message=str(fault), step=trainer.step)
    if workers(trainer.mesh)[0] == 0:
        files[HISTORY] = to_parquet(history)
        for name, data in files.items():
            ledger.write_bytes(ticket.config, ticket.seed, name, data)
        ledger.finish(ticket.config, ticket.seed, result)
    return result


def _train(trainer: Trainer, folder: Path, history: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Run to the last step; yield a record per report, append it to ``history``, commit checkpoints."""
    train = trainer.run.train
    if trainer.step < train.steps and workers(trainer.mesh)[0] == 0:
        (folder / COUNTS).unlink(missing_ok=True)  # those of weights that are now trained again
    peak = matrix_peak(trainer.device, train.precision)
    recent: list[StepReport] = []
    steps = trainer.steps()
    while (step := _next(steps, recent, history)) is not None:
        recent.append(step)
        commits = step.step % train.checkpoint_every == 0 or step.step == train.steps
        if step.step % train.report_every == 0 or commits:
            history.append(_record(recent) | _speed(trainer, recent, peak))
            yield history[-1]
            recent = []
        if commits:
            checkpoint.save(trainer, folder, history)


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
    """Averages since the last record, under the step of the last one."""
    seconds = sum(r.seconds for r in reports)
    values: dict[Metric, float] = {
        m.LOSS: sum(r.loss for r in reports) / len(reports),
        m.GRAD_NORM: max(r.grad_norm for r in reports),
        m.DRIFT: sum(r.drift for r in reports) / len(reports),
        m.ITERATIONS: sum(r.iterations for r in reports) / len(reports),
        m.RATE_FACTOR: reports[-1].rate_factor,
        m.STEPS_PER_S: len(reports) / seconds,
    }
    return {"step": reports[-1].step, **{metric.name: value for metric, value in values.items()}}


def _speed(trainer: Trainer, reports: list[StepReport], peak: float) -> dict[str, float]:
    """What the steps cost beside what the device can do, per worker."""
    flops = sum(step_flops(trainer.run, report.step - 1) for report in reports) / trainer.run.train.workers
    rate = flops / sum(report.seconds for report in reports)
    memory = peak_memory_gib(trainer.device)
    return {m.FLOPS.name: rate, m.UTILISATION.name: rate / peak, m.PEAK_MEMORY.name: memory}


def _evaluate(trainer: Trainer, kept: Path, report: Report) -> DepthCurve:
    """Read the depth grid; an evaluation of the same weights that was interrupted goes on from its last batch."""
    run = trainer.run
    owner = {"fingerprint": run.fingerprint(), "seed": run.seed, "step": trainer.step, "source": source_hash()}

    def keep(tally: Tally) -> None:
        if workers(trainer.mesh)[0] == 0:
            tally.save(kept, owner)
        report(
            {"phase": "evaluate", "step": trainer.step, "prompts": tally.prompts, "sequences": run.evaluation.sequences}
        )

    begun = agreed(Tally.load(kept, owner, len(run.tested_depths())), trainer.mesh)
    task = parse_task(run.task.name)
    return depth_curve(trainer.model, task, trainer.rendering, **_grid(trainer), begun=begun, keep=keep)


def _evaluation_facts(trainer: Trainer) -> dict[str, float]:
    """How the accuracies were computed, and how much that could matter to them."""
    run, prompts = trainer.run, evaluation_prompts(trainer.run)
    drift = batch_drift(
        trainer.model, parse_task(run.task.name), trainer.rendering, depth=run.task.train_depth,
        step_size=run.recurrence.step_size, batch_size=prompts,
    )  # fmt: skip
    return {m.BATCH_DRIFT.name: drift, m.EVALUATION_PROMPTS.name: float(prompts)}


def _evaluate_halting(trainer: Trainer) -> HaltingCurve:
    run = trainer.run
    return halting_curve(trainer.model, parse_task(run.task.name), trainer.rendering, run.halting, **_grid(trainer))


def _evaluation_set(run: RunConfig) -> str:
    return evaluation_hash(parse_task(run.task.name), run.tested_depths(), run.evaluation.sequences)


def _grid(trainer: Trainer) -> dict[str, Any]:
    """What is read: the depth grid on the frozen test prompts."""
    run = trainer.run
    return {
        "depths": run.tested_depths(),
        "step_size": run.recurrence.step_size,
        "sequences": run.evaluation.sequences,
        "batch_size": evaluation_prompts(run),
        "mesh": trainer.mesh,
    }


def curve_rows(curve: DepthCurve | HaltingCurve) -> Iterator[dict[str, float | int]]:
    """One record per depth."""
    columns = {name: values for name, values in asdict(curve).items() if name not in ("depths", "sequences")}
    for place, depth in enumerate(curve.depths):
        values = {name: column[place] for name, column in columns.items()}
        yield {"depth": depth, **values, "sequences": curve.sequences}


def seed_metrics(run: RunConfig, curve: DepthCurve) -> dict[str, float]:
    """What is compared between seeds, by metric name."""
    d = run.task.train_depth
    found = extrapolation(curve.depths, curve.single_query, train_depth=d)
    values: dict[Metric, float | None] = {
        m.G: found.G,
        m.D50: found.d50,
        m.CENSORED: float(found.censored),
        m.N_CROSSINGS: float(found.n_crossings),
        m.EXTRAPOLATION_AUC: extrapolation_auc(curve.depths, curve.full_state, train_depth=d),
        m.FULL_STATE_16X: full_state_at(curve.depths, curve.full_state, 16, d),
        m.AT_TRAIN_DEPTH: curve.single_query[curve.depths.index(d)],
    }
    return {metric.name: value for metric, value in values.items() if value is not None}


def halting_metrics(run: RunConfig, curve: HaltingCurve) -> dict[str, float]:
    """What learned halting achieves, by metric name."""
    d = run.task.train_depth
    at_d_train = curve.depths.index(d)
    return {
        m.HALTING_AUC.name: extrapolation_auc(curve.depths, curve.full_state, train_depth=d),
        m.NOT_HALTED.name: curve.not_halted[at_d_train],
        m.HALTING_ITERATIONS.name: curve.mean_iterations[at_d_train],
    }


def to_parquet(records: list[dict[str, Any]]) -> bytes:
    """Flat records as one Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), buffer)
    return buffer.getvalue()

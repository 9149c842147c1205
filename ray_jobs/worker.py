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
from par.errors import DivergedError
from par.evaluation.accuracy import DepthCurve, depth_curve
from par.evaluation.extrapolation import extrapolation, extrapolation_auc, full_state_at
from par.evaluation.halting import HaltingCurve, halting_curve
from par.metrics import Metric
from par.study.ledger import ACCURACY, HALTING, HISTORY, SeedResult
from par.tasks.groups import parse_task
from par.tasks.streams import evaluation_hash
from par.training import checkpoint
from par.training.loop import StepReport, Trainer
from par.training.parallel import data_mesh, workers
from ray_jobs.ticket import Ticket

Report = Callable[[Mapping[str, Any]], None]


def run_seed(ticket: Ticket, report: Report) -> SeedResult:
    """Train and evaluate one seed and write its result to the ledger; every worker of the seed calls it.

    ``report`` gets one flat record per ``train.report_every`` steps and per evaluated batch. A diverged seed is a
    result: G = 0 with its failure kind.
    """
    run, ledger = ticket.run, ticket.ledger()
    trainer = Trainer(run, data_mesh())
    history = checkpoint.resume(trainer, ticket.checkpoints)
    files: dict[str, bytes] = {}
    try:
        for row in _train(trainer, ticket.checkpoints, history):
            report({"phase": "train", **row})
        curve = _evaluate(trainer, report)
        files[ACCURACY] = to_parquet(list(curve_rows(curve)))
        metrics = seed_metrics(run, curve)
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
    recent: list[StepReport] = []
    steps = trainer.steps()
    while (step := _next(steps, recent, history)) is not None:
        recent.append(step)
        commits = step.step % train.checkpoint_every == 0 or step.step == train.steps
        if step.step % train.report_every == 0 or commits:
            history.append(_record(recent))
            yield history[-1]
            recent = []
        if commits:
            checkpoint.save(trainer, folder, history)


def _next(steps: Iterator[StepReport], recent: list[StepReport], history: list[dict[str, Any]]) -> StepReport | None:
    """The next step, None after the last. A divergence leaves the steps before it in the history: they explain it."""
    try:
        return next(steps, None)
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


def _evaluate(trainer: Trainer, report: Report) -> DepthCurve:
    def progress(done: int, total: int) -> None:
        report({"phase": "evaluate", "step": trainer.step, "batch": done, "batches": total})

    return depth_curve(
        trainer.model, parse_task(trainer.run.task.name), trainer.rendering, **_grid(trainer), progress=progress
    )


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
        "batch_size": run.evaluation.batch_size,
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

"""What a trained seed achieves: accuracies, halting, signals of instability, as metrics and as files."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from par import metrics as m
from par.config.run import RunConfig
from par.cost.sizes import recorded_iterations
from par.evaluation.accuracy import DepthCurve, batch_drift, depth_curve
from par.evaluation.exam import Exam, Heard
from par.evaluation.extrapolation import accuracy_at, extrapolation, extrapolation_auc
from par.evaluation.halting import HaltingCurve, halting_curve
from par.evaluation.signals import drift_profile
from par.evaluation.tally import Tally
from par.evaluation.thresholds import Grid, known_depth, score, search
from par.evaluation.traces import Traces
from par.evaluation.tracing import record_traces
from par.ledger.ledger import ACCURACY, HALTING, TRACE
from par.metrics import Metric
from par.objects import Objects
from par.statistics.trends import spikes
from par.tasks.streams import Split
from par.training.loop import Trainer
from par.training.parallel import agreed, workers

ON_THE_WAY_PROMPTS = 32
Report = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one seed."""

    metrics: dict[str, float]
    files: dict[str, bytes]
    """Parquet, by name in the ledger."""


def outcome(trainer: Trainer, history: list[dict[str, Any]], kept: Objects, report: Report, source: str) -> Outcome:
    """Evaluate a trained seed; every worker calls it.

    ``kept`` is where an evaluation that was interrupted finds its counts, those of the same code, ``source``.
    """
    run, exam = trainer.run, Exam.of(trainer.run, trainer.model, trainer.rendering, trainer.mesh)
    at_d_train = replace(exam, depths=(run.task.train_depth,))
    curve = _depth_curve(trainer, exam, kept, report, source)
    metrics = seed_metrics(run, curve)
    metrics |= m.by_name({m.BATCH_DRIFT: batch_drift(at_d_train), m.EVALUATION_PROMPTS: float(exam.batch_size)})
    metrics |= signal_metrics(drift_profile(at_d_train), history)
    files = {ACCURACY: to_parquet(list(curve_rows(curve)))}
    if run.halting.mode == "learned":
        traced = replace(exam, sequences=run.halting.trace_sequences)
        halting = halting_curve(exam, run.halting, _told(report, trainer, "halting", exam))
        files[HALTING] = to_parquet(list(curve_rows(halting)))
        traces = record_traces(traced, recorded_iterations(run), _told(report, trainer, "trace", traced))
        files[TRACE] = traces.to_parquet()
        metrics |= halting_metrics(run, halting) | threshold_metrics(run, traces)
    return Outcome(metrics, files)


def _told(report: Report, trainer: Trainer, phase: str, exam: Exam) -> Heard:
    """Report how far a phase of the evaluation has come."""

    def heard(prompts: int) -> None:
        report({"phase": phase, "step": trainer.step, "prompts": prompts, "sequences": exam.sequences})

    return heard


def _depth_curve(trainer: Trainer, exam: Exam, kept: Objects, report: Report, source: str) -> DepthCurve:
    """Read the depth grid; an evaluation of the same weights that was interrupted goes on from its last batch."""
    run = trainer.run
    owner = {"fingerprint": run.fingerprint(), "seed": run.seed, "step": trainer.step, "source": source}

    heard = _told(report, trainer, "evaluate", exam)

    def keep(tally: Tally) -> None:
        if workers(trainer.mesh)[0] == 0:
            tally.save(kept, owner)
        heard(tally.prompts)

    begun = agreed(Tally.load(kept, owner, len(exam.depths)), trainer.mesh)
    return depth_curve(exam, begun=begun, keep=keep)


def accuracy_on_the_way(trainer: Trainer) -> dict[str, float]:
    """Single-query accuracy at d_train on one batch of validation prompts, for the training record."""
    whole = Exam.of(trainer.run, trainer.model, trainer.rendering, trainer.mesh)
    exam = replace(
        whole, depths=(trainer.run.task.train_depth,), sequences=ON_THE_WAY_PROMPTS, split=Split.VALIDATION,
        batch_size=min(ON_THE_WAY_PROMPTS, whole.batch_size),
    )  # fmt: skip
    return {m.ON_THE_WAY.name: depth_curve(exam).single_query[0]}


def curve_rows(curve: DepthCurve | HaltingCurve) -> Iterator[dict[str, float | int | None]]:
    """One record per depth; what the curve has once is the same in all of them."""
    columns = {name: values for name, values in asdict(curve).items() if name != "depths"}
    for place, depth in enumerate(curve.depths):
        values = {name: value[place] if isinstance(value, tuple) else value for name, value in columns.items()}
        yield {"depth": depth, **values}


def seed_metrics(run: RunConfig, curve: DepthCurve) -> dict[str, float]:
    """What is compared between seeds, by metric name."""
    d = run.task.train_depth
    found = extrapolation(curve.depths, curve.single_query, train_depth=d)
    return m.by_name(
        {
            m.G: found.G,
            m.D50: found.d50,
            m.CENSORED: float(found.censored),
            m.N_CROSSINGS: float(found.n_crossings),
            m.EXTRAPOLATION_AUC: extrapolation_auc(curve.depths, curve.full_state, train_depth=d),
            m.FULL_STATE_16X: accuracy_at(curve.depths, curve.full_state, 16, d),
            m.ACC_1X: accuracy_at(curve.depths, curve.single_query, 1, d),
            m.ACC_8X: accuracy_at(curve.depths, curve.single_query, 8, d),
            m.ACC_16X: accuracy_at(curve.depths, curve.single_query, 16, d),
        }
    )


def halting_metrics(run: RunConfig, curve: HaltingCurve) -> dict[str, float]:
    """What learned halting achieves, by metric name; no mean iterations where nothing halted."""
    d = run.task.train_depth
    at_d_train = curve.depths.index(d)
    return m.by_name(
        {
            m.HALTING_AUC: extrapolation_auc(curve.depths, curve.full_state, train_depth=d),
            m.HALTING_FULL_STATE: curve.full_state[at_d_train],
            m.NOT_HALTED: curve.not_halted[at_d_train],
            m.HALTING_ITERATIONS: curve.mean_iterations[at_d_train],
            m.HALTING_READS: curve.mean_reads[at_d_train],
            m.HALTING_COMPUTED: curve.mean_computed[at_d_train],
            m.HALTING_CODA_CALLS: curve.coda_calls,
        }
    )


def threshold_metrics(run: RunConfig, traces: Traces) -> dict[str, float]:
    """The rule that is best on calibration, what it achieves there, and what it and others achieve on test.

    The others are the configured rule and the known iteration.
    """
    choice, test = search(traces), traces.of(Split.TEST)
    rule = run.halting
    configured = score(test, Grid(np.array([rule.tau]), np.array([rule.k]), np.array([rule.m])))[0]
    return m.by_name(
        {
            m.CHOSEN_TAU: choice.rule.tau,
            m.CHOSEN_K: float(choice.rule.k),
            m.CHOSEN_M: float(choice.rule.m),
            m.TRACE_KNOWN_DEPTH: known_depth(test),
            m.TRACE_CONFIGURED: configured.full_state,
            m.TRACE_CALIBRATED: choice.calibration.full_state,
            m.TRACE_CHOSEN: choice.test.full_state,
        }
    )


def signal_metrics(drifts: tuple[float, float, float], history: list[dict[str, Any]]) -> dict[str, float]:
    """Signals of instability, by metric name; a drift that is not finite is left out, and then the largest, too."""
    half, once, twice = drifts
    return m.by_name(
        {
            m.DRIFT_HALF: half,
            m.DRIFT_ONCE: once,
            m.DRIFT_TWICE: twice,
            m.DRIFT_MAX: float(np.max([*drifts, *_recorded(m.DRIFT, history)])),
            m.GRAD_SPIKES: _spikes(history),
        }
    )


def diverged_metrics(step: int, history: list[dict[str, Any]]) -> dict[str, float]:
    """What is known of a seed that diverged at ``step``, by metric name: G = 0, and how it stood until then."""
    return m.by_name(
        {
            m.G: 0.0,
            m.DIVERGED_STEP: float(step),
            m.GRAD_SPIKES: _spikes(history),
            m.LAST_GRAD_NORM: _last(m.GRAD_NORM, history),
            m.LAST_DRIFT: _last(m.DRIFT, history),
            m.DRIFT_MAX: max(_recorded(m.DRIFT, history), default=None),
        }
    )


def _spikes(history: list[dict[str, Any]]) -> float:
    return float(spikes([row[m.GRAD_NORM.name] for row in history]))


def _last(metric: Metric, history: list[dict[str, Any]]) -> float | None:
    """The value in the last record that has one."""
    return next(reversed(_recorded(metric, history)), None)


def _recorded(metric: Metric, history: list[dict[str, Any]]) -> list[float]:
    """The values of all records that have one."""
    return [row[metric.name] for row in history if metric.name in row]


def to_parquet(records: Sequence[Mapping[str, Any]], about: Mapping[str, str] | None = None) -> bytes:
    """Flat records as one Parquet file; a value that only some records have is null in the others.

    ``about`` goes to the file's metadata.
    """
    names = dict.fromkeys(name for record in records for name in record)
    buffer = io.BytesIO()
    columns = {name: [record.get(name) for record in records] for name in names}
    pq.write_table(pa.table(columns, metadata=dict(about or {})), buffer)
    return buffer.getvalue()

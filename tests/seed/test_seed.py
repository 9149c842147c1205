"""What one seed writes, without a cluster."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from par.config.run import RunConfig
from par.cost.sizes import LONGEST_WINDOW
from par.errors import DivergedError
from par.evaluation.accuracy import DepthCurve
from par.evaluation.halting import HaltingCurve
from par.evaluation.thresholds import search
from par.evaluation.traces import Traces
from par.ledger.ledger import ACCURACY, HALTING, HISTORY, TRACE, Ledger, SeedFolder
from par.ledger.records import ConfigRecord, SeedResult, SweepRecord
from par.model.readout import NO_ANSWER
from par.objects import Objects
from par.seed.evaluate import (
    Report,
    curve_rows,
    diverged_metrics,
    halting_metrics,
    seed_metrics,
    signal_metrics,
    to_parquet,
)
from par.seed.train import _summary, run_seed
from par.testing import tiny_run
from par.training import checkpoint
from par.training.batches import MicroBatch
from par.training.checkpoint import load_weights
from par.training.commits import MANIFEST, STATE
from par.training.draws import StepDepth
from par.training.loop import StepReport, Trainer

DEPTHS = (1, 2, 3, 4, 8, 64)


@dataclass(frozen=True)
class Seed:
    """A seed of a ledger, and its settings."""

    run: RunConfig
    folder: SeedFolder

    @property
    def checkpoints(self) -> Objects:
        return self.folder.checkpoints

    @property
    def result(self) -> SeedResult:
        return self.folder.ledger.read_config(self.folder.config).results[self.folder.seed]

    def train(self, report: Report = lambda record: None) -> SeedResult:
        return run_seed(self.run, self.folder, report=report)


def seed_in(folder, **changes) -> Seed:
    run = tiny_run(**changes)
    ledger = Ledger.create(folder, "demo", SweepRecord(space=""))
    record = ConfigRecord.of(run, number=0, suggested={})
    ledger.add_config(record)
    return Seed(run, SeedFolder(ledger, record.id, 0))


def rows(seed: Seed, name: str) -> list[dict]:
    return pq.read_table(pa.BufferReader(seed.folder.ledger.read_bytes(seed.folder.config, 0, name))).to_pylist()


def test_metrics_are_those_of_the_curve():
    """G comes from single-query accuracy; the score and the value at 16 times d_train from full-state accuracy."""
    curve = DepthCurve(DEPTHS, (1.0, 1.0, 1.0, 0.9, 0.5, 0.25), (1.0, 1.0, 1.0, 0.8, 0.4, 0.1), 16)
    found = seed_metrics(tiny_run(), curve)
    assert found["G"] == found["d50"] / 4 == 2.0
    assert found["censored"] == 0
    assert found["n_crossings"] == 1
    assert found["full_state_16x"] == 0.1
    assert found["acc_1x"] == 0.9
    assert (found["acc_16x"], "acc_8x" in found) == (0.25, False)
    # (0.8 + 0.4) / 2 over one doubling and (0.4 + 0.1) / 2 over three
    assert found["extrapolation_auc"] == pytest.approx((0.6 + 3 * 0.25) / 4)


def test_the_largest_drift_is_that_of_training_and_of_the_model():
    """It may be from the way or from the end, and is missing where the model's own is not finite."""
    history = [{"step": 1, "train/drift": 3.0, "train/grad_norm": 1.0}, {"step": 2, "train/grad_norm": 1.0}]
    assert signal_metrics((1.0, 1.5, 2.0), history)["drift_max"] == 3.0
    assert signal_metrics((1.0, 1.5, 4.0), history)["drift_max"] == 4.0
    assert "drift_max" not in signal_metrics((1.0, 1.5, math.inf), history)
    assert "drift_max" not in signal_metrics((1.0, math.nan, 1.0), history)


def test_halting_metrics_are_those_at_the_training_depth():
    """The share that never halts and the mean iterations are read at d_train, the area over the full-state curve."""
    curve = HaltingCurve(
        DEPTHS, (1.0,) * 6, (1.0, 1.0, 1.0, 0.8, 0.4, 0.1), (0, 0, 0, 0.25, 0.5, 1), (1, 2, 3, 4.5, 9, None),
        (3, 3, 3, 5.5, 7, 33), (4, 4, 4, 6.5, 8, 33), 21.5, 16,
    )  # fmt: skip
    found = halting_metrics(tiny_run(), curve)
    assert found["not_halted_1x"] == 0.25
    assert found["halting_iterations_1x"] == 4.5
    assert found["halting_reads_1x"] == 5.5
    assert found["halting_computed_1x"] == 6.5
    assert found["halting_coda_calls"] == 21.5
    assert found["halting_full_state_1x"] == 0.8
    assert found["halting_auc"] == pytest.approx((0.6 + 3 * 0.25) / 4)


def test_no_mean_iterations_where_nothing_halted():
    """A metric of which less is better is missing where nothing halted, and null in the curve's file; it is not 0."""
    curve = HaltingCurve((4, 8), (0, 0), (0, 0), (1, 1), (None, None), (3, 5), (3, 5), 7.0, 16)
    found = halting_metrics(tiny_run(), curve)
    assert "halting_iterations_1x" not in found
    assert found["not_halted_1x"] == 1
    table = pq.read_table(pa.BufferReader(to_parquet(list(curve_rows(curve)))))
    assert table["mean_iterations"].to_pylist() == [None, None]
    assert table["coda_calls"].to_pylist() == [7.0, 7.0]


def test_curves_become_one_row_per_depth():
    """Each depth is a row with its own values and the number of prompts."""
    curve = DepthCurve((1, 4), (1.0, 0.5), (0.75, 0.25), 16)
    assert list(curve_rows(curve)) == [
        {"depth": 1, "single_query": 1.0, "full_state": 0.75, "sequences": 16},
        {"depth": 4, "single_query": 0.5, "full_state": 0.25, "sequences": 16},
    ]


def report(step: int, iterations: int = 4, **values: float) -> StepReport:
    usual = {"loss": 1.0, "grad_norm": 1.0, "rate_factor": 1.0, "drift": 2.0, "seconds": 0.5}
    return StepReport(step=step, leaving=False, depth=StepDepth(4, iterations, True), **usual | values)


def test_a_report_is_read_as_it_was_written():
    """So is one of an earlier version, which has only R: its depth is drawn again."""
    run, first = tiny_run(), next(Trainer(tiny_run()).steps())
    row = json.loads(json.dumps(first.row()))
    assert StepReport.of(row, run) == first
    del row["depth"]
    assert StepReport.of({**row, "iterations": first.depth.iterations}, run) == first


def test_record_sums_up_its_steps():
    """A record has the means of its steps, the largest gradient norm, the last rate, and the speed."""
    found = _summary([report(1, loss=3.0, grad_norm=9.0, drift=1.0), report(2, iterations=8, rate_factor=0.5)])
    assert found == {
        "step": 2, "train/loss": 2.0, "train/grad_norm": 9.0, "train/drift": 1.5, "train/iterations": 6.0,
        "train/rate_factor": 0.5, "train/steps_per_s": 2.0,
    }  # fmt: skip


def test_a_seed_is_written_whole(tmp_path):
    """A run leaves its history, its curves and a result with the hash of the prompts that were read."""
    seed = seed_in(
        tmp_path, halting__mode="learned", halting__k=1, halting__m=1, train__steps=10, compute__report_every=4
    )
    reports: list[dict] = []
    result = seed.train(lambda record: reports.append(dict(record)))
    assert [row["step"] for row in rows(seed, HISTORY)] == [4, 5, 8, 10]
    assert [row["step"] for row in reports if row["phase"] == "train"] == [4, 5, 8, 10]
    assert [row["depth"] for row in rows(seed, ACCURACY)] == [row["depth"] for row in rows(seed, HALTING)]
    assert seed.result == result
    assert len(result.evaluation_set) == 16
    assert {"G", "extrapolation_auc", "halting_auc", "drift_once", "grad_spikes"} <= result.metrics.keys()
    watched = [row["train/single_query_1x"] for row in rows(seed, HISTORY)]
    assert [value is not None for value in watched] == [False, True, False, True]  # at each checkpoint
    assert not [path for path in seed.checkpoints.sizes() if STATE in path.split("/")]
    assert load_weights(Trainer(seed.run).model, seed.checkpoints).step == 10


def test_a_trace_says_what_the_model_does(tmp_path):
    """Scored from the trace, known depth and the configured rule have the accuracies that the model itself reached."""
    changes = {"halting__k": 2, "halting__m": 3, "halting__tau": 0.45, "halting__trace_sequences": 16}
    seed = seed_in(tmp_path, halting__mode="learned", train__steps=20, **changes)
    found = seed.train().metrics
    for name, metric in ((ACCURACY, "trace_known_depth"), (HALTING, "trace_configured")):
        full_state = [row["full_state"] for row in rows(seed, name)]
        assert found[metric] == pytest.approx(sum(full_state) / len(full_state))
    traces = Traces.from_parquet(seed.folder.ledger.read_bytes(seed.folder.config, 0, TRACE))
    choice = search(traces)
    rule = choice.rule
    assert (found["chosen_tau"], found["chosen_k"], found["chosen_m"]) == (rule.tau, rule.k, rule.m)
    assert found["trace_chosen"] == choice.test.full_state
    assert found["trace_calibrated"] == choice.calibration.full_state
    assert traces.iterations == 64 + LONGEST_WINDOW


def test_every_batch_of_an_evaluation_is_heard_of(tmp_path):
    """Depth curve, halting and traces give a sign of life, and ask whether to stop, after each batch."""
    seed, beats, heard = seed_in(tmp_path, halting__mode="learned", evaluation__batch_size=8), [], []
    run_seed(seed.run, seed.folder, report=heard.append, heartbeat=lambda: beats.append(len(heard)))
    phases = [row["phase"] for row in heard if row["phase"] != "train"]
    batches = -(-seed.run.evaluation.sequences // 8)
    traced = 2 * -(-seed.run.halting.trace_sequences // 8)
    assert phases == ["evaluate"] * batches + ["halting"] * batches + ["trace"] * traced
    assert len(beats) >= seed.run.train.steps + len(phases)


def test_a_value_that_some_records_lack_is_null():
    """Records with different keys become one table; nothing is lost because the first one does not have it."""
    table = pq.read_table(pa.BufferReader(to_parquet([{"a": 1}, {"a": 2, "b": 0.5}])))
    assert table.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 0.5}]


def test_a_diverged_seed_is_a_result_with_its_history(tmp_path, monkeypatch):
    """A seed that diverges ends with G = 0, its kind, message and step, how it stood, and the records until then."""
    original = Trainer._forward_backward

    def diverging(self: Trainer, batch: list[MicroBatch]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        loss, drift, leavers = original(self, batch)
        return (loss * torch.nan if self.step == 6 else loss), drift, leavers

    monkeypatch.setattr(Trainer, "_forward_backward", diverging)
    seed = seed_in(tmp_path, compute__report_every=4)
    result = seed.train()
    assert (result.failure, result.step) == (DivergedError.kind, 6)
    last = rows(seed, HISTORY)[-1]
    assert result.metrics == {
        "G": 0.0, "diverged_step": 7.0, "grad_spikes": 0.0,
        "last_grad_norm": last["train/grad_norm"], "last_drift": last["train/drift"],
        "drift_max": max(row["train/drift"] for row in rows(seed, HISTORY)),
    }  # fmt: skip
    assert "step 7" in result.message
    assert [row["step"] for row in rows(seed, HISTORY)] == [4, 5, 6]
    assert json.loads(json.dumps(result.to_dict()))["failure"] == "NUMERIC"


def test_a_drift_that_is_not_finite_is_left_out():
    """A record with an infinite drift lacks it, and of a diverged seed the last finite one is told."""
    calm, wild = _summary([report(1)]), _summary([report(2), report(3, drift=math.inf, grad_norm=50.0)])
    assert calm.keys() - wild.keys() == {"train/drift"}
    found = diverged_metrics(4, [calm, calm, wild])
    assert found == {
        "G": 0,
        "diverged_step": 4,
        "grad_spikes": 1,
        "last_grad_norm": 50.0,
        "last_drift": 2.0,
        "drift_max": 2.0,
    }
    assert diverged_metrics(1, []) == {"G": 0, "diverged_step": 1, "grad_spikes": 0}


@pytest.mark.parametrize("factor", [20, 1e6])
@pytest.mark.parametrize("mode", ["forced", "learned"])
def test_a_model_that_overflows_has_a_result(tmp_path, mode, factor):
    """Without an anchor and with an adapter that amplifies, deep read-outs are wrong, and what is stored is finite."""
    changes = {"halting__mode": mode, "halting__k": 1, "halting__m": 2, "halting__trace_sequences": 4}
    seed = seed_in(tmp_path, recurrence__anchor="none", **changes)
    trained = Trainer(seed.run)
    with torch.no_grad():
        trained.model.recurrence.adapter.weight.mul_(factor)
    trained.step = seed.run.train.steps
    checkpoint.save(trained, seed.checkpoints, [])
    result = seed.train()
    assert seed.result == result
    assert result.failure is None
    assert all(map(math.isfinite, result.metrics.values()))
    assert rows(seed, ACCURACY)[-1]["single_query"] == result.metrics["full_state_16x"] == 0
    assert ("drift_twice" in result.metrics) == (factor == 20)  # or else it overflows within 2R iterations, too
    if mode == "learned":
        traces = Traces.from_parquet(seed.folder.ledger.read_bytes(seed.folder.config, 0, TRACE))
        assert (traces.answer_SK[:, -1] == NO_ANSWER).all()
        assert (traces.p_yes_SK[:, -1] == 0).all()


class Stopped(Exception):
    """Raised where a test stops an evaluation."""


def read_prompts(seed: Seed, stop_after: int | None = None) -> list[int]:
    """Run the seed; the counts that its evaluation reports, until it is stopped."""
    prompts: list[int] = []

    def report(record: Mapping[str, Any]) -> None:
        if record["phase"] == "evaluate":
            prompts.append(record["prompts"])
            if len(prompts) == stop_after:
                raise Stopped

    with suppress(Stopped):
        seed.train(report)
    return prompts


def test_an_interrupted_evaluation_is_not_begun_anew(tmp_path):
    """A seed that died after the first batch of its evaluation reads the others, and has the same result."""
    seed, whole = seed_in(tmp_path / "a"), seed_in(tmp_path / "b")
    assert read_prompts(seed, stop_after=1) == [8]
    assert read_prompts(seed) == [16]
    assert read_prompts(whole) == [8, 16]
    results = [each.result for each in (seed, whole)]
    assert results[0] == results[1]


def test_a_seed_in_an_object_store(tmp_path, s3):
    """Ledger, checkpoints and counts in an object store: interrupted and resumed, the same result as on a disk."""
    seed, whole = seed_in(s3.format("seed")), seed_in(tmp_path)
    assert read_prompts(seed, stop_after=1) == [8]
    assert read_prompts(seed) == [16]
    assert read_prompts(whole) == [8, 16]
    results = [each.result for each in (seed, whole)]
    assert results[0] == results[1]
    assert seed.checkpoints.sizes().keys() == whole.checkpoints.sizes().keys()


def test_counts_of_other_weights_are_not_kept(tmp_path):
    """Where the last checkpoint is lost, training goes on and the whole evaluation is done again."""
    seed = seed_in(tmp_path)
    assert read_prompts(seed, stop_after=1) == [8]
    for path in seed.checkpoints.sizes():
        if path.endswith(MANIFEST):
            seed.checkpoints.delete(path)
    assert read_prompts(seed) == [8, 16]

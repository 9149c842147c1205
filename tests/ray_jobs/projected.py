"""A small ledger whose sweep tests project into MLflow, and what MLflow then has of it."""

import sqlite3
from dataclasses import replace
from pathlib import Path

from mlflow import MlflowClient

from par.ledger.ledger import ACCURACY, HISTORY, Ledger
from par.ledger.records import Attempt, ConfigRecord, SeedResult, SweepRecord, Verdict
from par.seed.evaluate import to_parquet
from par.testing import tiny_run
from ray_jobs.mlflow_runs.store import EXPERIMENT

NOON, LATER, LAST = (f"2026-01-01T{hour}:00:00+00:00" for hour in (12, 13, 14))
SPACE = """
question: which?
backbones: [tiny-qwen2]
fixed: {task.name: swap-s3, task.rendering: compact}
search: {recurrence.gradient_window: {choice: [2, 3]}}
sampler: grid
seeds: 2
"""
RECORDS = [{"step": step, "train/loss": 1.0 / step, "train/drift": 1.5} for step in (5, 10, 15)]
ACCURACIES = [{"depth": d, "single_query": 0.9, "full_state": 0.8, "sequences": 16} for d in (4, 8, 16)]
GOOD = SeedResult(metrics={"G": 4.0, "censored": 0.0, "extrapolation_auc": 0.25})
DIVERGED = SeedResult(metrics={"G": 0.0, "diverged_step": 7.0}, failure="NUMERIC", message="loss=nan")


def new_ledger(storage: Path, name: str = "demo", created: str = NOON) -> Ledger:
    """Two configurations, no seed begun."""
    ledger = Ledger.create(storage, name, SweepRecord(space=SPACE, space_path="demo.yaml", created=created))
    for number, window in enumerate((2, 3)):
        run = tiny_run(recurrence__gradient_window=window)
        ledger.add_config(ConfigRecord.of(run, number=number, suggested={"recurrence.gradient_window": window}))
    return ledger


def ids(ledger: Ledger) -> tuple[str, ...]:
    return tuple(config.id for config in ledger.read().configs)


def begin(ledger: Ledger, config: str, seed: int, **record) -> Attempt:
    return ledger.begin_attempt(config, seed, Attempt(**{"start": NOON, "micro_batch": 8} | record))


def fail(ledger: Ledger, config: str, seed: int, kind: str, message: str = "gone", **begun) -> None:
    attempt = begin(ledger, config, seed, **begun)
    ledger.end_attempt(config, seed, replace(attempt, end=LATER, failure=kind, message=message))


def finish(ledger: Ledger, config: str, seed: int, result: SeedResult = GOOD, **begun) -> None:
    attempt = begin(ledger, config, seed, **begun)
    ledger.write_bytes(config, seed, HISTORY, to_parquet(RECORDS))
    ledger.write_bytes(config, seed, ACCURACY, to_parquet(ACCURACIES))
    ledger.finish(config, seed, result)
    ledger.end_attempt(config, seed, replace(attempt, end=LATER))


def everything_finished(ledger: Ledger) -> None:
    for config in ids(ledger):
        for seed in (0, 1):
            finish(ledger, config, seed)
        ledger.give_verdict(config, Verdict(score=0.5, seeds=(0, 1), metrics={"G_mean": 2.0}))


def everything(uri: str) -> dict[str, tuple]:
    """By key of each run: its state, tags, parameters, and every point of every metric in order of step."""
    client, found = MlflowClient(uri), {}
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    runs = client.search_runs([experiment], max_results=1000)
    keys = {run.info.run_id: run.data.tags["par.key"] for run in runs}
    assert len(set(keys.values())) == len(keys), "two runs have one key"
    for run in runs:
        points = {
            name: sorted((point.step, point.value) for point in client.get_metric_history(run.info.run_id, name))
            for name in run.data.metrics
        }
        tags = {name: keys.get(value, value) for name, value in run.data.tags.items()}
        found[keys[run.info.run_id]] = (run.info.status, tags, run.data.params, points)
    return found


def dump(database: Path) -> list[str]:
    """Every row of a store."""
    with sqlite3.connect(database) as connection:
        return list(connection.iterdump())

"""MLflow as a projection of the ledger: runs are found by their tag, or else created; nothing is logged twice."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import time
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME

from par import metrics as m
from par.config import RunConfig
from par.study.ledger import ACCURACY, HISTORY, ConfigRecord, ConfigState, Ledger, SweepState
from ray_jobs.store import Store

KEY = "par.key"
PARAMS_PER_BATCH = 100
METRICS_PER_BATCH = 1000

T = TypeVar("T")
Point = tuple[str, float, int]
"""Metric name, value, step."""


class Projection:
    """One sweep in MLflow: a sweep run, its configuration runs, their seed runs. Only the driver writes.

    Every call names its run; the process has no active run that two trials could share.
    """

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self.ledger, self.client, self.experiment = ledger, store.client, store.experiment
        self.ids: dict[str, str] = {}
        self.last_steps: dict[str, int] = {}

    def sweep_run(self) -> str:
        """Id of the sweep's run."""
        texts = {"space.yaml": self.ledger.sweep["space"]}
        return self._find_or_create(self.ledger.name, name=self.ledger.name, parent=None, texts=texts)

    def config_run(self, record: ConfigRecord) -> str:
        """Id of a configuration's run, below the sweep's."""
        settings = RunConfig.model_validate(dict(record.run)).dotted()
        del settings["seed"]
        return self._find_or_create(
            f"{self.ledger.name}/{record.id}",
            name=config_name(record),
            parent=self.sweep_run(),
            tags={"par.config": record.id, "par.backbone": record.backbone},
            params={**record.suggested, **settings},
        )

    def seed_run(self, record: ConfigRecord, seed: int) -> str:
        """Id of a seed's run, below its configuration's."""
        return self._find_or_create(
            f"{self.ledger.name}/{record.id}/seed-{seed}",
            name=f"{config_name(record)}·seed{seed}",
            parent=self.config_run(record),
            tags={"par.config": record.id, "par.backbone": record.backbone, "par.seed": str(seed)},
            params={**record.suggested, "seed": seed},
        )

    def log_steps(self, run_id: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Log training records whose step is above the last one logged, whoever logged it."""
        last = self._last_step(run_id)
        fresh = [row for row in rows if row["step"] > last]
        if fresh:
            points = [
                (name, value, row["step"])
                for row in fresh
                for name, value in row.items()
                if name != "step" and value is not None
            ]
            self._log(run_id, points)
            self.last_steps[run_id] = fresh[-1]["step"]

    def sync(self, state: SweepState, *, status: str) -> None:
        """Make every run say what the ledger says: results logged, states right, nothing twice.

        Nothing runs meanwhile: a begun seed that is not done was killed or failed, and so its run ends. ``status`` is
        the sweep's own.
        """
        for config in state.configs:
            for seed in config.seeds:
                self.sync_seed(config, seed)
            self.sync_config(config)
        self._set_status(self.sweep_run(), status)

    def sync_seed(self, config: ConfigState, seed: int, *, running: bool = False) -> None:
        """Project one seed."""
        run_id, result = self.seed_run(config.record, seed), config.results.get(seed)
        attempts = config.attempts(seed)
        if result is None:
            failed = bool(attempts) and "failure" in attempts[-1].record
            self._set_status(run_id, "RUNNING" if running else "FAILED" if failed else "KILLED")
        elif self._status(run_id) != "FINISHED":
            self.log_steps(run_id, self._records(config.id, seed, HISTORY))
            self._log_missing(run_id, list(_accuracy_points(self._records(config.id, seed, ACCURACY))))
            self._log_missing(run_id, [(name, value, 0) for name, value in result.metrics.items()])
            tags = {
                "par.status": result.failure or "OK",
                "par.attempts": str(len(attempts)),
                "par.micro_batch_effective": str(attempts[-1].record.get("micro_batch")) if attempts else "",
                "par.evaluation_set": result.evaluation_set,
                **({"par.message": result.message} if result.message else {}),
            }
            self.client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
            self._set_status(run_id, "FINISHED")

    def sync_config(self, config: ConfigState, *, running: bool = False) -> None:
        """Project a configuration's verdict."""
        run_id = self.config_run(config.record)
        if config.verdict is None:
            self._set_status(run_id, "RUNNING" if running else "KILLED")
        elif self._status(run_id) != "FINISHED":
            values = {m.SCORE.name: config.verdict.score, **config.verdict.metrics}
            self._log_missing(run_id, [(name, value, 0) for name, value in values.items()])
            self._set_status(run_id, "FINISHED")

    def log_file(self, path: Path) -> None:
        """Keep a file with the sweep's run."""
        self.client.log_artifact(self.sweep_run(), str(path))

    def _find_or_create(
        self,
        key: str,
        *,
        name: str,
        parent: str | None,
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> str:
        if key not in self.ids:
            found = self._find(key)
            self.ids[key] = found.info.run_id if found else self._create(key, name, parent, tags or {})
            if found is None:
                self._describe(self.ids[key], params or {}, texts or {})
        return self.ids[key]

    def _find(self, key: str) -> Run | None:
        runs = self.client.search_runs([self.experiment], f"tags.`{KEY}` = '{key}'", max_results=1)
        return runs[0] if runs else None

    def _create(self, key: str, name: str, parent: str | None, tags: Mapping[str, str]) -> str:
        own = {KEY: key, "par.sweep": self.ledger.name, MLFLOW_RUN_NAME: name, **tags}
        below = {} if parent is None else {MLFLOW_PARENT_RUN_ID: parent}
        return self.client.create_run(self.experiment, tags={**own, **below}, run_name=name).info.run_id

    def _describe(self, run_id: str, params: Mapping[str, Any], texts: Mapping[str, str]) -> None:
        for part in _parts([Param(key, str(value)) for key, value in params.items()], PARAMS_PER_BATCH):
            self.client.log_batch(run_id, params=part)
        for name, text in texts.items():
            self.client.log_text(run_id, text, name)

    def _log(self, run_id: str, points: Sequence[Point]) -> None:
        """Log points as they are; MLflow would keep a non-finite one in a form that nobody can filter."""
        now = int(time() * 1000)
        finite = [Metric(name, value, now, step) for name, value, step in points if math.isfinite(value)]
        for part in _parts(finite, METRICS_PER_BATCH):
            self.client.log_batch(run_id, metrics=part)

    def _log_missing(self, run_id: str, points: Sequence[Point]) -> None:
        """Log the points that MLflow does not have: a driver may have died between logging and ending the run."""
        names = {name for name, _, _ in points}
        there = {(name, point.step) for name in names for point in self.client.get_metric_history(run_id, name)}
        self._log(run_id, [point for point in points if (point[0], point[2]) not in there])

    def _status(self, run_id: str) -> str:
        return self.client.get_run(run_id).info.status

    def _set_status(self, run_id: str, status: str) -> None:
        if self._status(run_id) == status:
            return
        if status == "RUNNING":
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status=status)

    def _last_step(self, run_id: str) -> int:
        """Last training step that MLflow has; 0 before the first."""
        if run_id not in self.last_steps:
            points = self.client.get_metric_history(run_id, m.LOSS.name)
            self.last_steps[run_id] = max((point.step for point in points), default=0)
        return self.last_steps[run_id]

    def _records(self, config: str, seed: int, name: str) -> list[dict[str, Any]]:
        """Rows of a Parquet file of the seed; none if the seed ended before it was written."""
        data = self.ledger.read_bytes(config, seed, name)
        return [] if data is None else pq.read_table(pa.BufferReader(data)).to_pylist()


def config_name(record: ConfigRecord) -> str:
    """A short name that a person can tell from its neighbours, e.g. ``mini-qwen3·anchor=first·step_size=2``."""
    return "·".join([record.backbone, *record.choices(short=True)])


def _accuracy_points(records: Iterable[Mapping[str, Any]]) -> Iterator[Point]:
    """Accuracy by depth as one metric whose step is the depth."""
    for record in records:
        yield m.SINGLE_QUERY.name, record["single_query"], record["depth"]
        yield m.FULL_STATE.name, record["full_state"], record["depth"]


def _parts(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))

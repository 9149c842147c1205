"""The runs of one sweep in MLflow, by key: there is one for each, and only what differs is written."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NAME

from ray_jobs.mlflow_runs.store import Store

KEY = "par.key"
SWEEP = "par.sweep"
CREATED = "par.created"
RUNS_PER_PAGE = 1000
PARAMS_PER_BATCH = 100
METRICS_PER_BATCH = 1000
LONGEST_TAG = 5000

T = TypeVar("T")


class Point(NamedTuple):
    """One value of a metric."""

    name: str
    value: float
    step: int
    at: int
    """Milliseconds since 1970. MLflow drops a point that it has in every field: with a time that is the same whenever
    and by whomever the point is logged, no repetition doubles it."""


@dataclass(slots=True)
class Known:
    """A run as MLflow has it."""

    id: str
    status: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: frozenset[str]
    """Those with a history that has not been read yet, or has been."""
    steps: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """What is logged of each metric that was asked for."""

    @classmethod
    def of(cls, run: Run) -> "Known":
        """Take over what a search returns."""
        data = run.data
        return cls(run.info.run_id, run.info.status, dict(data.tags), dict(data.params), frozenset(data.metrics))


class Runs:
    """All runs of a sweep. Each method brings MLflow to what is given, and writes nothing where it is so already.

    The sweep is the one that was created at this time: another one of its name keeps its own runs.

    What MLflow has is read once. When a call fails, nothing that is remembered holds any more: begin a new one.
    """

    def __init__(self, store: Store, sweep: str, created: str) -> None:
        self.client, self.experiment = store.client, store.experiment
        self.own = {SWEEP: sweep, CREATED: created}
        self.written = 0
        """Calls that changed something."""
        self.known: dict[str, Known] = {}
        for run in self._search(SWEEP, self.own[SWEEP]):
            self._keep(run)

    def ensure(self, key: str, name: str, tags: Mapping[str, str], params: Mapping[str, str], begun: int) -> Known:
        """The run with this key, created unless it is there. A parameter that it has stays as it is."""
        if key not in self.known:
            self._create(key, name, tags, begun)
        run = self.known[key]
        self.tag(run, {**self.own, **tags})
        missing = [Param(name, value) for name, value in params.items() if name not in run.params]
        for part in _parts(missing, PARAMS_PER_BATCH):
            self._write(self.client.log_batch, run.id, params=part)
        run.params |= {param.key: param.value for param in missing}
        return run

    def tag(self, run: Known, tags: Mapping[str, str]) -> None:
        """Set those tags that differ."""
        changed = {name: value for name, text in tags.items() if run.tags.get(name) != (value := text[:LONGEST_TAG])}
        if changed:
            self._write(self.client.log_batch, run.id, tags=[RunTag(*tag) for tag in changed.items()])
            run.tags |= changed

    def log(self, run: Known, points: Iterable[Point]) -> None:
        """Log the points whose step MLflow does not have; it would keep a non-finite one so that nobody can filter."""
        fresh: dict[tuple[str, int], Point] = {}
        for point in points:
            if math.isfinite(point.value) and point.step not in self._steps(run, point.name):
                fresh.setdefault((point.name, point.step), point)
        for part in _parts(list(fresh.values()), METRICS_PER_BATCH):
            metrics = [Metric(point.name, point.value, point.at, point.step) for point in part]
            self._write(self.client.log_batch, run.id, metrics=metrics)
            for point in part:
                run.steps[point.name].add(point.step)

    def set_status(self, run: Known, status: str, ended: int | None = None) -> None:
        """Set the run's state; one that does not run has ended at ``ended``, or now."""
        if run.status == status:
            return
        if status == "RUNNING":
            self._write(self.client.update_run, run.id, status=status)
        else:
            self._write(self.client.set_terminated, run.id, status=status, end_time=ended)
        run.status = status

    def keep_texts(self, run: Known, texts: Mapping[str, str]) -> None:
        """Keep texts with the run, by name of the file, but for files that it has."""
        there = {file.path for file in self.client.list_artifacts(run.id)}
        for name in texts.keys() - there:
            self._write(self.client.log_text, run.id, texts[name], name)

    def keep_file(self, run: Known, path: str) -> None:
        """Keep a file with the run in place of the one that it has."""
        self._write(self.client.log_artifact, run.id, path)

    def _create(self, key: str, name: str, tags: Mapping[str, str], begun: int) -> None:
        """Create a run, and look again: another process may have done so at the same time."""
        every = {KEY: key, MLFLOW_RUN_NAME: name, **self.own, **tags}
        self._write(self.client.create_run, self.experiment, start_time=begun, tags=every, run_name=name)
        for run in self._search(KEY, key):
            self._keep(run)

    def _keep(self, run: Run) -> None:
        """Remember a run; of two with one key the first in the order of the search stays, whoever looks."""
        key, created = run.data.tags.get(KEY), self.own[CREATED]
        if key is None or run.data.tags.get(CREATED, created) != created:
            return
        if self.known.setdefault(key, Known.of(run)).id != run.info.run_id:
            self._write(self.client.delete_run, run.info.run_id)

    def _search(self, tag: str, value: str) -> Iterator[Run]:
        page = None
        while True:
            found = self.client.search_runs(
                [self.experiment], f"tags.`{tag}` = '{value}'", max_results=RUNS_PER_PAGE,
                order_by=["attributes.start_time ASC"], page_token=page,
            )  # fmt: skip
            yield from list(found)
            page = found.token
            if not page:
                return

    def _steps(self, run: Known, name: str) -> set[int]:
        """The steps at which MLflow has a metric of the run."""
        if name not in run.steps:
            history = self.client.get_metric_history(run.id, name) if name in run.metrics else []
            run.steps[name] = {point.step for point in history}
        return run.steps[name]

    def _write(self, call: Callable[..., object], *arguments: object, **named: object) -> None:
        call(*arguments, **named)
        self.written += 1


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))

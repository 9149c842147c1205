"""MLflow as a projection of the ledger: what it lacks can be written at any time, by anyone, and nothing twice."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NOTE

from par import metrics as m
from par.config.run import RunConfig
from par.cost.flops import tokens_per_s
from par.ledger.current_space import current_question, current_space
from par.ledger.ledger import ACCURACY, HISTORY, Ledger
from par.ledger.records import ConfigRecord, SweepRecord, Verdict
from par.ledger.state import ConfigState, SweepState
from par.race.racing import Race
from par.race.status import Status, is_complete, last_word, seed_status
from par.race.verdicts import aggregates, optimism
from par.report.notes import configuration_note, seed_note, sweep_note
from par.space.space import Space
from ray_jobs.mlflow_runs.runs import Known, Point, Runs
from ray_jobs.mlflow_runs.store import Store

KIND = "par.kind"
"""Of a run: sweep, configuration or seed."""
STAGE = "par.stage"
"""Of a seed: search or confirm; of a configuration the last one that it has come to."""
STATUS = "par.status"
FAILURE = "par.failure"
"""Of a seed: the kind of failure that it, or else its last attempt, ended with; empty again once that is past."""
JUDGED = "par.judged_seeds"
"""Of a configuration: how many seeds the verdicts cover that are logged."""
MESSAGE = "par.message"
STATES = {
    Status.DONE: "FINISHED",
    Status.RUNNING: "RUNNING",
    Status.FAILED: "FAILED",
    Status.KILLED: "KILLED",
}
"""What MLflow calls where a seed stands."""


class Projection:
    """One sweep in MLflow: a sweep run, its configuration runs, their seed runs.

    A run is found by its key, or else created, also one that a person has deleted. Its parameters never change: what
    another attempt does differently is a tag. A run is FINISHED when all that the ledger has of it is logged. Every
    call names its run; the process has no active run that two trials could share.

    Several processes may project one sweep at once. Each logs a finished seed at the times that the ledger has, so
    that MLflow drops what another one logged before; of two runs with one key the later one is deleted by whoever sees
    both, and calls that still go to it fail. After a failed call begin a new projection.
    """

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self.ledger, self.runs = ledger, Runs(store, ledger.name, ledger.sweep.created or "")
        self.ensured: dict[str, Known] = {}

    @cached_property
    def space(self) -> Space:
        """What the sweep is to have."""
        return current_space(self.ledger)

    def sweep_run(self) -> Known:
        """The sweep's run, with the space's text, the plan that it began with, and the code and libraries."""
        if self.ledger.name not in self.ensured:
            begun = milliseconds(self.ledger.sweep.created)
            run = self.runs.ensure(self.ledger.name, self.ledger.name, {KIND: "sweep"}, {}, begun)
            self.runs.keep_texts(run, _texts_of(self.ledger.sweep))
            self.ensured[self.ledger.name] = run
        return self.ensured[self.ledger.name]

    def config_run(self, record: ConfigRecord, begun: int = 0) -> Known:
        """A configuration's run, below the sweep's, with every setting but the seed."""
        key = f"{self.ledger.name}/{record.id}"
        if key not in self.ensured:
            settings = RunConfig.model_validate(dict(record.run)).dotted()
            del settings["seed"]
            tags = _tags(record) | {KIND: "configuration", MLFLOW_PARENT_RUN_ID: self.sweep_run().id}
            params = _texts({**record.suggested, **settings})
            self.ensured[key] = self.runs.ensure(key, config_name(record), tags, params, begun)
        return self.ensured[key]

    def seed_run(self, record: ConfigRecord, seed: int, begun: int = 0) -> Known:
        """A seed's run, below its configuration's."""
        key = f"{self.ledger.name}/{record.id}/seed-{seed}"
        if key not in self.ensured:
            parent = self.config_run(record, begun).id
            tags = _tags(record) | {KIND: "seed", "par.seed": str(seed), MLFLOW_PARENT_RUN_ID: parent}
            params = _texts({**record.suggested, "seed": seed})
            self.ensured[key] = self.runs.ensure(key, f"{config_name(record)}·seed{seed}", tags, params, begun)
        return self.ensured[key]

    def log_steps(self, record: ConfigRecord, seed: int, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Log training records of a seed, each with the time in milliseconds at which it came."""
        self.runs.log(self.seed_run(record, seed), _training_points(rows))

    def sync(self, state: SweepState, *, status: str, driven: bool = False) -> None:
        """Make every run say what the ledger says: results logged, states right, nothing twice.

        ``status`` is the sweep's own. Unless it is ``driven``, a begun seed that is not done was killed or failed, and
        so its run ends. If it is, what runs is left to the driver: it logs what it has, and then closes the run.
        """
        for config in state.configs:
            for seed in config.seeds:
                stands = seed_status(config, seed, driven=driven)
                if not (driven and stands is Status.DONE and self._is_open(config, seed)):
                    self.sync_seed(config, seed, running=stands is Status.RUNNING)
            self.sync_config(config, running=driven)
        self.runs.tag(self.sweep_run(), {MLFLOW_RUN_NOTE: sweep_note(current_question(self.ledger), state)})
        self.runs.set_status(self.sweep_run(), status)

    def sync_seed(self, config: ConfigState, seed: int, *, running: bool = False) -> None:
        """Project one seed; ``running`` says that an attempt is about to begin or lives."""
        attempts = config.attempts(seed)
        begun = milliseconds(attempts[0].start) if attempts else 0
        run, result = self.seed_run(config.record, seed, begun), config.results.get(seed)
        if result is None:
            stands = Status.RUNNING if running else seed_status(config, seed, driven=False)
            kind, _ = last_word(config, seed)
            tags = {STATUS: stands.name if running else kind or stands.name}
            self._close(run, config, seed, STATES.get(stands, "KILLED"), tags)
        elif run.status != "FINISHED":
            at = _ended(config, seed)
            history = self.ledger.read_table(config.id, seed, HISTORY).to_pylist()
            self.runs.log(run, _training_points((at, row) for row in history))
            accuracies = self.ledger.read_table(config.id, seed, ACCURACY).to_pylist()
            self.runs.log(run, _accuracy_points(at, accuracies))
            found = {**result.metrics, **_cost(config, seed, history)}
            self.runs.log(run, [Point(name, value, 0, at) for name, value in found.items()])
            tags = {STATUS: result.failure or "OK", "par.evaluation_set": result.evaluation_set}
            self._close(run, config, seed, STATES[Status.DONE], tags)

    def sync_config(self, config: ConfigState, *, running: bool = False) -> None:
        """Project a configuration's verdicts, each at the step that is its number of seeds."""
        run, at = self.config_run(config.record), max((_ended(config, seed) for seed in config.seeds), default=0)
        judged = str(sum(len(verdict.seeds) for verdict in config.verdicts))
        if config.verdicts and run.tags.get(JUDGED) != judged:
            self.runs.log(run, [point for verdict in config.verdicts for point in _verdict_points(config, verdict)])
            self.runs.log(run, _optimism(config, self.space.score, at))
            self.runs.tag(run, {JUDGED: judged})
        stage = config.stage(max(config.seeds, default=0))
        self.runs.tag(run, {STAGE: stage, MLFLOW_RUN_NOTE: configuration_note(config)})
        missing = Race(self.space.stages, self.space.score, [config]).missing
        finished = config.verdict is not None and not missing
        self.runs.set_status(run, "FINISHED" if finished else "RUNNING" if running else "KILLED", at)

    def log_file(self, path: Path) -> None:
        """Keep a file with the sweep's run."""
        self.runs.keep_file(self.sweep_run(), str(path))

    def _close(self, run: Known, config: ConfigState, seed: int, status: str, tags: Mapping[str, str]) -> None:
        """Set the tags of a seed's run, and its state last: it says that all before it is there."""
        attempts, (kind, message) = config.attempts(seed), last_word(config, seed)
        facts = {"par.attempts": str(len(attempts)), STAGE: config.stage(seed)}
        if attempts and attempts[-1].micro_batch is not None:
            facts["par.micro_batch_effective"] = str(attempts[-1].micro_batch)
        texts = {MLFLOW_RUN_NOTE: seed_note(config, seed), **_replacing(run, {FAILURE: kind, MESSAGE: message})}
        self.runs.tag(run, {**facts, **tags, **texts})
        self.runs.set_status(run, status, _ended(config, seed))

    def _is_open(self, config: ConfigState, seed: int) -> bool:
        """Whether MLflow has a run of the seed that is RUNNING."""
        run = self.runs.known.get(f"{self.ledger.name}/{config.id}/seed-{seed}")
        return run is not None and run.status == "RUNNING"


def sweep_status(state: SweepState, space: Space, *, driven: bool = False) -> str:
    """What MLflow calls where the sweep stands; ``driven`` says whether a driver is alive."""
    return "RUNNING" if driven else "FINISHED" if is_complete(state, space) else "KILLED"


def config_name(record: ConfigRecord) -> str:
    """A short name that a person can tell from its neighbours, e.g. ``mini-qwen3·anchor=first·step_size=2``."""
    return "·".join([record.backbone, *record.choices(short=True)])


def milliseconds(time: str | None) -> int:
    """A time of the ledger as MLflow has it; 0, which MLflow reads as now, where the ledger has none."""
    return int(datetime.fromisoformat(time).timestamp() * 1000) if time else 0


def _ended(config: ConfigState, seed: int) -> int:
    """When the last attempt of a seed ended, or began if it ended without a word; 0 if there was none."""
    times = [one.end or one.start for one in config.attempts(seed)]
    return max(map(milliseconds, times), default=0)


def _cost(config: ConfigState, seed: int, history: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What a seed took, which no two attempts at it share: so it is no part of its result."""
    run = RunConfig.model_validate({**config.record.run, "seed": seed})
    speeds = [(row["step"], row[m.STEPS_PER_S.name]) for row in history if m.STEPS_PER_S.name in row]
    return m.by_name({m.GPU_HOURS: config.device_hours(seed), m.TOKENS_PER_S: tokens_per_s(run, speeds)})


def _tags(record: ConfigRecord) -> dict[str, str]:
    return {"par.config": record.id, "par.backbone": record.backbone}


def _texts_of(sweep: SweepRecord) -> dict[str, str]:
    """What a sweep's record says, by name of the file that the sweep's run keeps; one without a plan keeps none."""
    apart = ("space", "plan", "warm_start")
    environment = {name: value for name, value in sweep.to_dict().items() if name not in apart}
    texts = {"space.yaml": sweep.space, "environment.json": json.dumps(environment, indent=2)}
    return texts | ({"plan.txt": sweep.plan} if sweep.plan else {})


def _replacing(run: Known, tags: Mapping[str, str]) -> dict[str, str]:
    """What an earlier failure left in these tags is replaced, also by nothing; else an empty one is not set."""
    return {name: text for name, text in tags.items() if text or name in run.tags}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _training_points(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Point]:
    for at, row in rows:
        for name, value in row.items():
            if name != "step" and value is not None:
                yield Point(name, value, row["step"], at)


def _verdict_points(config: ConfigState, verdict: Verdict) -> Iterator[Point]:
    """The score and the aggregates; those of a confirmation under names of their own."""
    prefix, at = "" if verdict.stage == "search" else "confirm_", max(_ended(config, seed) for seed in verdict.seeds)
    for name, value in {m.SCORE.name: verdict.score, **aggregates(config, verdict.seeds)}.items():
        yield Point(prefix + name, value, len(verdict.seeds), at)


def _optimism(config: ConfigState, score: str, at: int) -> Iterator[Point]:
    """How much the search flattered a configuration that is confirmed, at the step that is the number of all seeds."""
    if found := optimism(config, score):
        seeds = sum(len(verdict.seeds) for verdict in (config.verdict, config.confirmation) if verdict)
        yield Point(m.OPTIMISM.name, found.difference, seeds, at)


def _accuracy_points(at: int, records: Iterable[Mapping[str, Any]]) -> Iterator[Point]:
    """Accuracy by depth as one metric whose step is the depth."""
    for record in records:
        yield Point(m.SINGLE_QUERY.name, record["single_query"], record["depth"], at)
        yield Point(m.FULL_STATE.name, record["full_state"], record["depth"], at)

"""Run a sweep: the ledger decides, Tune starts the trials, MLflow and the console follow."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from rich.console import Console

from par.study.ledger import Ledger
from par.study.records import ConfigRecord, SweepState
from par.study.report.plots import accuracy_by_depth
from par.study.report.table import results_table
from par.study.space import Space
from ray_jobs.cluster import Demand, concurrency, connected, demand
from ray_jobs.plan import BackbonePlan, mean_cost, plan_table, sampled_runs, seeds_done
from ray_jobs.progress import Progress
from ray_jobs.proposals import LedgerSearch, shares
from ray_jobs.ticket import Ticket
from ray_jobs.tracking import Projection, default_uri
from ray_jobs.trial import run_trial

RETRIES = 1
"""How often a driver starts a failed seed again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Where and how wide a sweep runs; none of it changes a result."""

    storage: str
    address: str | None
    tracking_uri: str | None
    max_concurrent: int | None
    cpus_per_worker: float
    gpus_per_worker: float | None

    def demand(self, workers: int, resources: Mapping[str, float]) -> Demand:
        """What one trial takes."""
        return demand(workers, resources, cpus=self.cpus_per_worker, gpus=self.gpus_per_worker)


def show_plan(space: Space, ledger: Ledger | None, options: Options, console: Console) -> None:
    """Print what would run."""
    state = ledger.read() if ledger else SweepState({}, ())
    with connected(options.address) as resources:
        console.print(plan_table(space, plans(space, state, options, resources)))


def plans(space: Space, state: SweepState, options: Options, resources: Mapping[str, float]) -> list[BackbonePlan]:
    """The plan of every backbone. Raises ConfigError if a trial does not fit the cluster."""
    found: list[BackbonePlan] = []
    for backbone, configurations in shares(space).items():
        runs = sampled_runs(space, backbone)
        needs = options.demand(max(run.train.workers for run in runs), resources)
        found.append(
            BackbonePlan(
                backbone=backbone,
                configurations=configurations,
                seeds=configurations * space.seeds,
                done=seeds_done(state, backbone),
                demand=needs,
                concurrency=options.max_concurrent or concurrency(needs, resources),
                cost=mean_cost(runs),
            )
        )
    return found


def drive(space: Space, ledger: Ledger, options: Options, console: Console) -> bool:
    """Run what is left of the sweep and show the results; True when every wanted seed has one."""
    for name in ("ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    projection = Projection(ledger, options.tracking_uri or default_uri(options.storage))
    projection.sync(ledger.read())
    console.print(f"Sweep {ledger.name}: {space.question}")
    with connected(options.address) as resources:
        todo = plans(space, ledger.read(), options, resources)
        console.print(plan_table(space, todo))
        left = sum(plan.left for plan in todo)
        if left:
            _run_trials(space, ledger, options, projection, console, resources, todo)
    state = ledger.read()
    projection.sync(state)
    _show(space, ledger, state, options, projection, console)
    return all(len(config.results) >= space.seeds for config in state.configs)


def _run_trials(
    space: Space,
    ledger: Ledger,
    options: Options,
    projection: Projection,
    console: Console,
    resources: Mapping[str, float],
    todo: list[BackbonePlan],
) -> None:
    """Start Tune on what is left; it returns when nothing more can be started."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"

    def ticket(record: ConfigRecord, seed: int) -> dict[str, Any]:
        needs = options.demand(record.run["train"]["workers"], resources)
        return Ticket.of(ledger, record, seed, gpus=needs.gpus_per_worker, cpus=needs.cpus_per_worker).to_dict()

    def placement(config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return options.demand(Ticket(**config["ticket"]).run.train.workers, resources).placement()

    total = sum(plan.seeds for plan in todo)
    tune.Tuner(
        tune.with_resources(run_trial, placement),
        tune_config=tune.TuneConfig(
            search_alg=LedgerSearch(ledger, space, ticket),
            num_samples=sum(plan.left for plan in todo),
            max_concurrent_trials=min(plan.concurrency for plan in todo),
            reuse_actors=True,
            trial_name_creator=_trial_name,
            trial_dirname_creator=_trial_name,
        ),
        run_config=tune.RunConfig(
            name=f"{datetime.now():%Y%m%d-%H%M%S}",
            storage_path=f"{ledger.storage}/{ledger.name}/tune",
            callbacks=[Progress(ledger, projection, total, console)],
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            verbose=0,
        ),
    ).fit()


def _trial_name(trial: Trial) -> str:
    return Ticket(**trial.config["ticket"]).trial_name


def _show(
    space: Space, ledger: Ledger, state: SweepState, options: Options, projection: Projection, console: Console
) -> None:
    """The table, the plot, and where to look further."""
    console.print(results_table(state, space.seeds))
    plot = accuracy_by_depth(ledger, Path(ledger.storage) / ledger.name / "accuracy_by_depth.png")
    projection.log_file(plot)
    console.print(f"Accuracy by depth, a line per seed: {plot}", soft_wrap=True)
    console.print(f"Compare the seeds in MLflow: make ui   (store: {projection.uri})", soft_wrap=True)

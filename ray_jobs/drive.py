"""Run a sweep: the ledger decides, Tune starts the trials, MLflow and the console follow."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from rich.console import Console

from par.errors import ConfigError
from par.study.ledger import Ledger
from par.study.records import ConfigRecord, SweepState
from par.study.report.plots import accuracy_by_depth
from par.study.report.table import results_table
from par.study.space import Space
from ray_jobs.cluster import REPOSITORY, Demand, concurrency, connected, demand
from ray_jobs.plan import BackbonePlan, mean_cost, plan_table, sampled_runs, seeds_done
from ray_jobs.progress import Progress
from ray_jobs.proposals import LedgerSearch, shares
from ray_jobs.spool import Spool
from ray_jobs.store import Store, default_uri, open_store
from ray_jobs.ticket import Ticket
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

    @property
    def scales_up(self) -> bool:
        """Whether the cluster may grow to what a trial needs: said by naming it and how many trials it is to hold."""
        return self.max_concurrent is not None and bool(self.address or os.environ.get("RAY_ADDRESS"))

    def demand(self, workers: int, resources: Mapping[str, float]) -> Demand:
        """What one trial takes."""
        return demand(workers, resources, cpus=self.cpus_per_worker, gpus=self.gpus_per_worker)


def show_plan(space: Space, ledger: Ledger | None, options: Options, console: Console) -> None:
    """Print what would run."""
    state = ledger.read() if ledger else SweepState({}, ())
    with connected(options.address) as resources:
        console.print(plan_table(space, plans(space, state, options, resources)))


def plans(space: Space, state: SweepState, options: Options, resources: Mapping[str, float]) -> list[BackbonePlan]:
    """The plan of every backbone. Raises ConfigError if a trial does not fit the cluster or its devices."""
    found: list[BackbonePlan] = []
    for backbone, configurations in shares(space).items():
        runs = sampled_runs(space, backbone)
        needs = options.demand(max(run.train.workers for run in runs), resources)
        if not needs.gpus_per_worker and any(run.train.attention == "flex" for run in runs):
            raise ConfigError(
                "train.attention=flex needs a GPU, and a worker gets none: use split, or --gpus-per-worker 1"
            )
        fitting = None if options.scales_up else concurrency(needs, resources)
        found.append(
            BackbonePlan(
                backbone=backbone,
                configurations=configurations,
                seeds=configurations * space.seeds,
                done=seeds_done(state, backbone),
                demand=needs,
                concurrency=options.max_concurrent or fitting or 1,
                cost=mean_cost(runs),
            )
        )
    return found


def drive(space: Space, ledger: Ledger | None, begin: Callable[[], Ledger], options: Options, console: Console) -> bool:
    """Run what is left of the sweep and show the results; True when every wanted seed has one.

    A new sweep (``ledger`` None) is begun once its plan is known to fit the cluster.
    """
    for name in ("ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with connected(options.address) as resources:
        todo = plans(space, ledger.read() if ledger else SweepState({}, ()), options, resources)
        console.print(plan_table(space, todo))
        store = open_store(options.tracking_uri or default_uri(options.storage))
        ledger = ledger or begin()
        with Spool(ledger, store, partial(console.print, style="yellow", markup=False, soft_wrap=True)) as projection:
            return Driver(space, ledger, options, resources, store, projection, console).run(todo)


@dataclass(frozen=True, slots=True)
class Driver:
    """One driver's work on one sweep, connected to a cluster."""

    space: Space
    ledger: Ledger
    options: Options
    resources: Mapping[str, float]
    store: Store
    projection: Spool
    console: Console

    def run(self, todo: list[BackbonePlan]) -> bool:
        """Run what is left and show the results; True when every wanted seed has one."""
        self.projection.sync(self.ledger.read(), status="RUNNING")
        search = LedgerSearch(self.ledger, self.space, self.ticket)
        if any(plan.left for plan in todo):
            self._fit(search, todo)
        state, complete = self.ledger.read(), search.complete()
        self.projection.sync(state, status="FINISHED" if complete else "KILLED")
        for backbone in sorted(search.exhausted):
            self.console.print(f"{backbone}: the space has no further configurations than these")
        self._show(state)
        if not complete:
            name = self.ledger.name
            self.console.print(f"Some seeds of {name} have no result yet: go on with --resume {name}", style="yellow")
        return complete

    def ticket(self, record: ConfigRecord, seed: int) -> dict[str, Any]:
        """What the trial of one seed is told."""
        needs = self.options.demand(record.run["train"]["workers"], self.resources)
        ticket = Ticket.of(self.ledger, record, seed, gpus=needs.gpus_per_worker, cpus=needs.cpus_per_worker)
        return ticket.to_dict()

    def _fit(self, search: LedgerSearch, todo: list[BackbonePlan]) -> None:
        """Hand what is left to Tune; it returns when nothing more can be started."""
        os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
        os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
        done, total = sum(plan.done for plan in todo), sum(plan.seeds for plan in todo)
        tune.Tuner(
            tune.with_resources(run_trial, partial(_placement, self.options, dict(self.resources))),
            tune_config=tune.TuneConfig(
                search_alg=search,
                num_samples=sum(plan.left for plan in todo),
                max_concurrent_trials=min(plan.concurrency for plan in todo),
                reuse_actors=True,
                trial_name_creator=_trial_name,
                trial_dirname_creator=_trial_name,
            ),
            run_config=tune.RunConfig(
                name=f"{datetime.now():%Y%m%d-%H%M%S}",
                storage_path=f"{self.ledger.storage}/{self.ledger.name}/tune",
                callbacks=[Progress(self.ledger, self.projection, self.console, done=done, total=total)],
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                verbose=0,
            ),
        ).fit()

    def _show(self, state: SweepState) -> None:
        """The table, the plot, and where to look further."""
        self.console.print(results_table(state, self.space.seeds))
        plot = accuracy_by_depth(self.ledger, Path(self.ledger.storage) / self.ledger.name / "accuracy_by_depth.png")
        self.projection.log_file(plot)
        self.console.print(f"Accuracy by depth, a line per seed: {plot}", soft_wrap=True)
        self.console.print(f"Compare the seeds in MLflow: {self._ui()}", soft_wrap=True)

    def _ui(self) -> str:
        """What opens MLflow on this store."""
        uri = self.store.uri
        if uri.startswith("http"):
            return uri
        if uri != default_uri(self.ledger.storage):
            return f"mlflow ui --backend-store-uri {uri}"
        default = Path(self.ledger.storage) == REPOSITORY / "results"
        return "make ui" if default else f"make ui RESULTS={self.ledger.storage}"


def _placement(
    options: Options, resources: Mapping[str, float], config: Mapping[str, Any]
) -> tune.PlacementGroupFactory:
    """What Tune reserves for a trial."""
    return options.demand(Ticket.of_trial(config).run.train.workers, resources).placement()


def _trial_name(trial: Trial) -> str:
    return Ticket.of_trial(trial.config).trial_name

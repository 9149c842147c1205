"""Run a sweep: the ledger decides, Tune starts the trials, MLflow and the console follow."""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from tempfile import mkdtemp
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from par.errors import ConfigError, FailureKind, ParError
from par.ledger.lease import Lease, break_lease, hold, holder, require_free
from par.ledger.ledger import Ledger
from par.ledger.records import Computing, ConfigRecord, now
from par.ledger.state import ConfigState, SweepState
from par.race.racing import Race
from par.race.verdicts import winners
from par.report.overview import Overview
from par.report.page.page import write_page
from par.report.plots import accuracy_by_depth
from par.report.table import results_table
from par.space.space import Space
from par.training.checkpoint import committed_step
from ray_jobs import REPOSITORY
from ray_jobs.console import as_text, out, say, warn
from ray_jobs.driver.attempts import Attempts
from ray_jobs.driver.callbacks import Progress
from ray_jobs.driver.plan import BackbonePlan, mean_cost, plan_table, sampled_runs, seeds_done
from ray_jobs.driver.searcher import LedgerSearch
from ray_jobs.driver.stopping import GraceOver, StopCallback, Stopping
from ray_jobs.mlflow_runs.background import BackgroundProjection
from ray_jobs.mlflow_runs.projection import sweep_status
from ray_jobs.mlflow_runs.store import default_uri, open_store
from ray_jobs.options import GRACE_S
from ray_jobs.provenance import source_hash
from ray_jobs.trial.cluster import Demand, concurrency, connected, demand
from ray_jobs.trial.spec import HANG_AFTER_S, TrialSpec
from ray_jobs.trial.trial import run_trial


@dataclass(frozen=True, kw_only=True)
class Options(Computing):
    """Where and how wide a sweep runs, with its defaults; none of it changes a result."""

    storage: str
    address: str | None = None
    cpus_per_worker: float = 1.0
    max_failed_share: float = 1.0
    hang_after_s: float = HANG_AFTER_S
    grace_s: float = GRACE_S
    kinds: Collection[FailureKind] = ()
    """Failures whose seeds are started again though they were given up."""
    device_hours: float | None = None
    break_lease: str | None = None
    """Why a driver that still seems to live loses the sweep."""
    kept: Computing = field(default_factory=Computing)
    """What of these a resume takes up again."""

    @property
    def scales_up(self) -> bool:
        """Whether the cluster may grow to what a trial needs: said by naming it and how many trials it is to hold."""
        return self.max_concurrent is not None and bool(self.address or os.environ.get("RAY_ADDRESS"))

    def demand(self, workers: int, resources: Mapping[str, float]) -> Demand:
        """What one trial takes."""
        return demand(workers, resources, cpus=self.cpus_per_worker, gpus=self.gpus_per_worker)


def show_plan(space: Space, ledger: Ledger | None, options: Options) -> None:
    """Print what would run."""
    known = ledger.read().configs if ledger else ()
    with connected(options.address) as resources:
        out.print(plan_table(space, plans(space, known, options, resources)))


def plans(
    space: Space, known: Sequence[ConfigState], options: Options, resources: Mapping[str, float]
) -> list[BackbonePlan]:
    """The plan of every backbone. Raises ConfigError if a trial does not fit the cluster or its devices."""
    found: list[BackbonePlan] = []
    for backbone, configurations in space.shares().items():
        runs = sampled_runs(space, backbone)
        needs = options.demand(max(run.compute.workers for run in runs), resources)
        if not needs.gpus_per_worker and any(run.compute.attention == "flex" for run in runs):
            raise ConfigError(
                "compute.attention=flex needs a GPU, and a worker gets none: use split, or --gpus-per-worker 1"
            )
        fitting = None if options.scales_up else concurrency(needs, resources)
        found.append(
            BackbonePlan(
                backbone=backbone,
                configurations=configurations,
                fewest=space.stages.fewest(configurations),
                most=max(space.stages.most(configurations), done := seeds_done(known, backbone)),
                done=done,
                demand=needs,
                concurrency=options.max_concurrent or fitting or 1,
                cost=mean_cost(runs),
            )
        )
    return found


def drive(space: Space, ledger: Ledger | None, begin: Callable[[str], Ledger], options: Options) -> int:
    """Run what is left of the sweep and show the results; the exit code is 0 when every seed has one.

    A new sweep (``ledger`` None) is begun, with the text of its plan, once that is known to fit the cluster. One that
    another driver holds is refused before anything else.
    """
    if ledger and not options.break_lease:
        require_free(ledger)
    for name in ("ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with connected(options.address) as resources:
        todo = plans(space, ledger.read().configs if ledger else (), options, resources)
        plan = plan_table(space, todo)
        out.print(plan)
        store = open_store(options.tracking_uri or default_uri(options.storage))
        ledger, stopping = ledger or begin(as_text(plan)), Stopping()
        if options.break_lease and holder(ledger):
            break_lease(ledger, options.break_lease)
        with (
            stopping.on_signals(),
            hold(ledger, code=source_hash(), on_lost=stopping.ask) as lease,
            BackgroundProjection(ledger, store, warn) as projection,
        ):
            ledger.keep_computing(options.kept)
            folder = ledger.checkpoints
            attempts = Attempts(
                ledger, space.stages.all_seeds, lambda *seed: committed_step(folder(*seed)), options.kinds
            )
            state = attempts.take_over(ledger.read(), lease.last_seen)
            return Driver(space, attempts, state, options, resources, projection, lease, stopping).run(todo)


class Driver:
    """One driver's work on one sweep, connected to a cluster, with the sweep's lease in its hand."""

    def __init__(
        self, space: Space, attempts: Attempts, state: SweepState, options: Options, resources: Mapping[str, float],
        projection: BackgroundProjection, lease: Lease, stopping: Stopping,
    ) -> None:  # fmt: skip
        """Take the sweep as it stands, ``state``."""
        self.attempts, self.ledger, self.options = attempts, attempts.ledger, options
        self.resources, self.projection, self.lease, self.stopping = resources, projection, lease, stopping
        self.projection.sync(state, status="RUNNING")
        self.search = LedgerSearch(attempts, space, self.spec, state.configs)

    def run(self, todo: list[BackbonePlan]) -> int:
        """Run what is left and show the results; 0 when every seed has one."""
        done, self.total = sum(plan.done for plan in todo), sum(plan.most for plan in todo)
        self._look()
        if self.stopping.reason is not None:
            warn(f"{self.stopping.reason}: nothing is started")
        elif not self.search.complete():
            self._fit(done, concurrency=min(plan.concurrency for plan in todo))
        state, complete = self.attempts.end_open(self.ledger.read(), now()), self.search.complete()
        self.projection.sync(state, status=sweep_status(state, self.search.space))
        for backbone in sorted(self.search.exhausted):
            say(f"{backbone}: the space has no further configurations than these")
        self._show(state)
        if not complete:
            self._say_how_to_go_on()
        return 0 if complete else self.stopping.exit_code

    def spec(self, record: ConfigRecord, seed: int) -> dict[str, Any]:
        """What the trial of one seed is told."""
        needs = self.options.demand(record.run["compute"]["workers"], self.resources)
        asked_for = (record.id, seed) in self.attempts.asked_for
        self.attempts.asked_for.discard((record.id, seed))
        return TrialSpec.of(
            self.ledger, record, seed, gpus=needs.gpus_per_worker, cpus=needs.cpus_per_worker,
            driver=self.lease.record.owner, asked_for=asked_for, hang_after_s=self.options.hang_after_s,
        ).to_dict()  # fmt: skip

    def _fit(self, done: int, *, concurrency: int) -> None:
        """Hand what is left to Tune; it returns when nothing more can be started.

        Tune starts nothing again by itself: a seed that failed is suggested once more, or given up.
        """
        os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
        os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
        os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
        sessions = self.ledger.objects.below("tune")
        progress = Progress(self.ledger, self.projection, out, done=done, total=self.total, settle=self.search.settle)
        tuner = tune.Tuner(
            tune.with_resources(run_trial, partial(_placement, self.options, dict(self.resources))),
            tune_config=tune.TuneConfig(
                search_alg=self.search,
                num_samples=-1,
                max_concurrent_trials=concurrency,
                reuse_actors=True,
                trial_name_creator=_trial_name,
                trial_dirname_creator=_trial_name,
            ),
            run_config=tune.RunConfig(
                name=f"{datetime.now():%Y%m%d-%H%M%S}",
                storage_path=sessions.root,
                storage_filesystem=sessions.filesystem,
                callbacks=[progress, StopCallback(self.stopping, self._look, self._stop)],
                stop=GraceOver(self.stopping, self.options.grace_s),
                failure_config=tune.FailureConfig(max_failures=0),
                verbose=0,
            ),
        )
        with suppress(UnpicklingError, EOFError):  # Tune sums up its trials' error files, which a full disk cuts short
            tuner.fit()

    def _look(self) -> None:
        """Ask for the end when a limit is reached."""
        limit, used = self.options.device_hours, self.search.device_hours()
        failed = len(self.search.given_up())
        if limit is not None and used >= limit:
            self.stopping.ask(f"BUDGET: {used:.2f} of {limit:g} device-hours are used")
        elif failed > self.options.max_failed_share * self.total:
            self.stopping.ask(
                f"{failed} of {self.total} seeds are given up, --max-failed-share allows no more: "
                "a resume with a larger one goes on"
            )

    def _stop(self, reason: str) -> None:
        """Start nothing more, and have the trials save and leave."""
        warn(f"{reason}: trials save and leave, up to {self.options.grace_s:g} s")
        self.search.stopping = True
        self.lease.ask_to_stop(reason)

    def _say_how_to_go_on(self) -> None:
        """Which seeds wait, and the command that goes on with them."""
        name, given_up = self.ledger.name, self.search.given_up()
        for fate in sorted({fate.reason for fate in given_up.values()}):
            count = sum(other.reason == fate for other in given_up.values())
            warn(f"{count} seeds are given up. {fate}")
        if given_up:
            warn(f"Once that is put right: par resume {name} --failed")
        warn(f"Some seeds of {name} have no result yet: go on with par resume {name}")

    def _show(self, state: SweepState) -> None:
        """The table, plot and report, and where to look further."""
        space = self.search.space
        out.print(results_table(state, space))
        for winner in winners(Race(space.stages, space.score, state.configs)):
            say(str(winner))
        folder = Path(self.ledger.objects.root if self.ledger.objects.is_local else mkdtemp())
        overview = Overview(name=self.ledger.name, space=space, state=state, driver=None, now=datetime.now(UTC))
        plot, report = folder / "accuracy_by_depth.png", folder / "report.html"
        self._keep("Accuracy by depth, a line per seed", partial(accuracy_by_depth, self.ledger, plot))
        self._keep("The whole report, for a browser", partial(write_page, overview, self.ledger, report))
        say(f"Compare the seeds in MLflow: {self._ui()}")

    def _keep(self, what: str, draw: Callable[[], Path]) -> None:
        """Name a file and keep it in MLflow; without it the sweep is no worse, as the table says the same."""
        try:
            path = draw()
        except (OSError, ParError) as fault:
            say(f"{what}: none, {fault}")
        else:
            self.projection.log_file(path)
            say(f"{what}: {path}")

    def _ui(self) -> str:
        """What opens MLflow on this store."""
        uri = self.projection.uri
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
    return options.demand(TrialSpec.of_trial(config).run.compute.workers, resources).placement()


def _trial_name(trial: Trial) -> str:
    return TrialSpec.of_trial(trial.config).trial_name

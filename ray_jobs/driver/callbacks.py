"""What a person sees and MLflow gets while trials run."""

from collections.abc import Callable, Sequence
from datetime import datetime
from time import monotonic
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from rich.console import Console

from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, ConfigRecord
from par.race.retry import GiveUp, StartAgain
from ray_jobs.console import PRINT_EVERY_S
from ray_jobs.driver.progress import described
from ray_jobs.driver.stopping import NotPickled
from ray_jobs.mlflow_runs.background import BackgroundProjection
from ray_jobs.mlflow_runs.projection import config_name
from ray_jobs.trial.failure_kind import kind_of
from ray_jobs.trial.spec import TrialSpec


class Progress(NotPickled, Callback):
    """Tune's events as lines on the console and points in MLflow, both from the driver alone; neither holds it up."""

    def __init__(
        self,
        ledger: Ledger,
        projection: BackgroundProjection,
        console: Console,
        *,
        done: int,
        total: int,
        settle: Callable[[str, BaseException], StartAgain | GiveUp | None],
    ) -> None:
        self.ledger, self.projection, self.console = ledger, projection, console
        self.done, self.total, self.settle = done, total, settle
        self.records: dict[str, ConfigRecord] = {}
        self.printed: dict[str, float] = {}

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Open the seed's run."""
        spec = TrialSpec.of_trial(trial.config)
        config = self.ledger.read_config(spec.config)
        self.projection.sync_seed(config, spec.seed, running=True)
        self.projection.sync_config(config, running=True)
        self._print(spec, "starts")

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Have a training record logged; print one every few seconds."""
        spec = TrialSpec.of_trial(trial.config)
        if result.get("phase") == "train":
            self.projection.log_steps(self._record(spec), spec.seed, result)
        now = monotonic()
        if now - self.printed.get(trial.trial_id, float("-inf")) >= PRINT_EVERY_S:
            self.printed[trial.trial_id] = now
            self._print(spec, described(result, spec.settings["train"]["steps"]))

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Project the seed's result, and its configuration's verdict if it is the last one."""
        spec = TrialSpec.of_trial(trial.config)
        config = self.ledger.read_config(spec.config)
        self.projection.sync_seed(config, spec.seed)
        self.projection.sync_config(config, running=True)
        result = config.results.get(spec.seed)
        if result is None:
            self._print(spec, f"left at step {config.attempts(spec.seed)[-1].saved_step}, goes on from there")
            return
        self.done += 1
        self._print(spec, f"done: {result.outcome()} ({self.done} of {self.total} seeds)")

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Have it decided what follows for a seed whose trial failed, and say so."""
        spec = TrialSpec.of_trial(trial.config)
        fault = _error(trial)
        decision = self.settle(trial.trial_id, fault)
        config = self.ledger.read_config(spec.config)
        self.projection.sync_seed(config, spec.seed)
        self._print(spec, f"failed ({_said(config.attempts(spec.seed), fault)})")
        match decision:
            case StartAgain(reason):
                self._print(spec, f"starts again ({reason})")
            case GiveUp(reason):
                self._print(spec, f"is given up ({reason})")
            case None:
                self.done += 1

    def _record(self, spec: TrialSpec) -> ConfigRecord:
        if spec.config not in self.records:
            self.records[spec.config] = self.ledger.read_config(spec.config).record
        return self.records[spec.config]

    def _print(self, spec: TrialSpec, message: str) -> None:
        name = config_name(self._record(spec))
        line = f"{datetime.now():%H:%M:%S}  {name}·seed{spec.seed}  {message}"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)  # a message may hold anything


def _said(attempts: Sequence[Attempt], fault: BaseException) -> str:
    """Kind and last line of a failure, as the last attempt has them, or else as the cluster says."""
    last = attempts[-1] if attempts else Attempt()
    lines = (str(fault) if last.message is None else last.message).strip().splitlines()
    return f"{last.failure or kind_of(fault)}: {lines[-1] if lines else 'without a word'}"


def _error(trial: Trial) -> BaseException:
    """What the cluster says of a trial that failed."""
    try:
        return trial.get_pickled_error() or trial.get_error() or RuntimeError("the trial ended without a word")
    except Exception as unreadable:  # noqa: BLE001  # an error of a class that this process does not have
        return RuntimeError(f"the trial failed, and its error cannot be read: {unreadable}")

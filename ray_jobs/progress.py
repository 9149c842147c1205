"""What a person sees and MLflow gets while trials run."""

from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from rich.console import Console

from par import metrics as m
from par.study.ledger import ConfigState, Ledger
from ray_jobs.ticket import Ticket
from ray_jobs.tracking import Projection, config_name

PRINT_EVERY_S = 5.0


class Progress(Callback):
    """Tune's events as lines on the console and points in MLflow, both from the driver alone."""

    def __init__(
        self,
        ledger: Ledger,
        projection: Projection,
        total: int,
        console: Console,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.ledger, self.projection, self.total, self.console, self.clock = ledger, projection, total, console, clock
        self.printed: dict[str, float] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its callbacks, and par never reads them back."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Open the seed's run."""
        ticket, config = self._which(trial)
        self.projection.sync_seed(config, ticket.seed, running=True)
        self._print(trial, "starts")

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Log a training record; print one every few seconds."""
        ticket, config = self._which(trial)
        if result.get("phase") == "train":
            names = {metric.name for metric in m.TRAINING}
            row = {name: value for name, value in result.items() if name == "step" or name in names}
            self.projection.log_steps(self.projection.seed_run(config, ticket.seed), [row])
        if self.clock() - self.printed.get(trial.trial_id, float("-inf")) >= PRINT_EVERY_S:
            self.printed[trial.trial_id] = self.clock()
            self._print(trial, _describe(result, ticket.run.train.steps))

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Project the seed's result, and its configuration's verdict if it is the last one."""
        ticket, config = self._which(trial)
        self.projection.sync_seed(config, ticket.seed)
        self.projection.sync_config(config, running=True)
        result = config.results.get(ticket.seed)
        outcome = "has no result" if result is None else result.failure or f"G = {result.metrics[m.G.name]:.2f}"
        done = sum(len(c.results) for c in self.ledger.read().configs)
        self._print(trial, f"done: {outcome} ({done} of {self.total} seeds)")

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Close the run of a seed that will not be tried again by this driver."""
        ticket, config = self._which(trial)
        self.projection.sync_seed(config, ticket.seed)
        self._print(trial, f"failed; it goes on from its last checkpoint with --resume {self.ledger.name}")

    def _which(self, trial: Trial) -> tuple[Ticket, ConfigState]:
        ticket = Ticket(**trial.config["ticket"])
        return ticket, next(c for c in self.ledger.read().configs if c.id == ticket.config)

    def _print(self, trial: Trial, message: str) -> None:
        ticket, config = self._which(trial)
        name = config_name(config.record.backbone, config.record.suggested)
        self.console.print(f"{datetime.now():%H:%M:%S}  {name}·seed{ticket.seed}  {message}", highlight=False)


def _describe(result: dict[str, Any], steps: int) -> str:
    if result.get("phase") == "train":
        rate = result[m.STEPS_PER_S.name]
        left = (steps - result["step"]) / rate
        return f"step {result['step']}/{steps}  loss {result[m.LOSS.name]:.4f}  {rate:.1f} steps/s  {left:.0f} s left"
    if result.get("phase") == "evaluate":
        return f"evaluates batch {result['batch']}/{result['batches']}"
    return f"attempt {result.get('attempt', 1)}"

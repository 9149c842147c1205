"""What a person sees while trials run."""

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from par.errors import FailureKind
from par.ledger.ledger import Ledger
from par.ledger.records import Attempt
from par.race.retry import StartAgain
from ray_jobs.driver.callbacks import Progress
from ray_jobs.trial.spec import TrialSpec
from tests.ray_jobs.projected import ids, new_ledger

GLOO = "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:537] Connection reset by peer [127.0.0.1]:6857"


class Silent:
    """A projection that nobody reads."""

    def sync_seed(self, *_: Any, **__: Any) -> None:
        """Nothing."""


def failed(ledger: Ledger, config: str, message: str) -> str:
    """What is said of a seed whose only attempt ended with this message."""
    begun = ledger.begin_attempt(config, 0, Attempt(start="2026-01-01T00:00:00.000+00:00"))
    lost = replace(begun, failure=FailureKind.WORKER_DIED, message=message)
    ledger.end_attempt(config, 0, lost.ended_at("2026-01-01T00:01:00.000+00:00", saved_step=0))
    console = Console(file=io.StringIO(), width=300)
    progress = Progress(
        ledger, Silent(), console, done=0, total=4, settle=lambda trial, fault: StartAgain("start 1 of 2 again")
    )  # pyright: ignore[reportArgumentType]
    spec = TrialSpec.of(ledger, ledger.read_config(config).record, 0, gpus=0, cpus=1)
    trial = SimpleNamespace(
        trial_id="t", config={"spec": spec.to_dict()}, get_pickled_error=lambda: RuntimeError(message)
    )
    progress.on_trial_error(0, [], trial)  # pyright: ignore[reportArgumentType]
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_failure_is_shown_in_its_own_words(tmp_path):
    """A message with brackets, as of gloo, is no markup: it is shown as it is, and the driver goes on."""
    ledger = new_ledger(tmp_path)
    shown = failed(ledger, ids(ledger)[0], f"several lines\n{GLOO}")
    assert f"failed (WORKER_DIED: {GLOO})" in shown
    assert "starts again (start 1 of 2 again)" in shown

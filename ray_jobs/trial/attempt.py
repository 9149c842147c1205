"""One try at a seed, which the ledger has from its start to its end."""

import os
import socket
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from par.config.run import RunConfig
from par.errors import FailureKind
from par.ledger.ledger import Ledger, SeedFolder
from par.ledger.records import Attempt, now
from par.race.retry import smaller_pass
from par.training.checkpoint import committed_step
from ray_jobs.provenance import source_hash
from ray_jobs.trial.failure_kind import kind_of, pass_too_large
from ray_jobs.trial.watchdog import hung


@contextmanager
def attempted(folder: SeedFolder, run: RunConfig, *, adapts: bool = False, **begun: Any) -> Iterator[Attempt]:
    """Within, the seed is attempted; ``begun`` are further fields of the attempt.

    One that ends with an exception says what it died of. If it ``adapts``, one whose training pass did not fit into a
    device also says with how many prompts per pass the next one is to try.
    """
    ledger, config, seed = folder.ledger, folder.config, folder.seed
    began = Attempt(
        node=socket.gethostname(), pid=os.getpid(), source=source_hash(), start=now(), micro_batch=run.prompts_per_pass,
        resumed_at=committed_step(folder.checkpoints), **begun,
    )  # fmt: skip
    attempt = ledger.begin_attempt(config, seed, began)
    try:
        yield attempt
    except BaseException as fault:
        kind = failure_of(ledger, config, seed, attempt, fault) if isinstance(fault, Exception) else FailureKind.STOPPED
        smaller = smaller_pass(run) if adapts and pass_too_large(fault) else None
        attempt = replace(
            attempt, failure=kind, message=str(fault), traceback=traceback.format_exc(), next_micro_batch=smaller
        )
        raise
    finally:
        ledger.end_attempt(config, seed, attempt.ended_at(now(), saved_step=committed_step(folder.checkpoints)))


def failure_of(ledger: Ledger, config: str, seed: int, attempt: Attempt, fault: BaseException) -> FailureKind:
    """What an attempt died of: a hang, if a worker of it has said so, whatever its peers and the cluster made of it."""
    return FailureKind.HANG if hung(ledger, config, seed, attempt.number) else kind_of(fault)

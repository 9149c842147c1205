"""One Tune trial = one attempt at one (configuration, seed)."""

import os
import socket
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from ray import train, tune
from ray._private.worker import global_worker

from par.errors import FailureKind
from par.race.retry import learnt_pass, smaller_pass
from par.training.checkpoint import committed_step
from par.training.parallel import BACKENDS
from ray_jobs.driver.attempts import ended_record, now
from ray_jobs.provenance import source_hash
from ray_jobs.trial.failure_kind import kind_of, pass_too_large
from ray_jobs.trial.spec import Ticket
from ray_jobs.trial.stop_signal import Orders
from ray_jobs.trial.watchdog import hung
from ray_jobs.worker import run_seed

LEFT_IN_ORDER = (FailureKind.STOPPED, FailureKind.PREEMPTED)
"""The process is sound and may go on with another seed."""


def run_trial(config: Mapping[str, Any]) -> None:
    """Run a seed until it has a result; each try is an attempt, recorded in the ledger from its start to its end.

    One device: the trainer runs in this process. More: a Ray Train run. Both run the same ``run_seed``. Where the
    memory of the device does not suffice, another attempt goes on from the last checkpoint with fewer prompts per
    pass, on all workers alike. Any other error leaves the seed without a result; what follows is the driver's decision.
    """
    ticket = _as_learnt(Ticket.of_trial(config))
    while (smaller := _attempt(ticket)) is not None:
        ticket = ticket.with_micro_batch(smaller)


def _as_learnt(ticket: Ticket) -> Ticket:
    """The ticket with the prompts per pass that earlier attempts came down to."""
    prompts = learnt_pass(ticket.ledger().read_config(ticket.config).attempts(ticket.seed))
    return ticket.with_micro_batch(prompts) if prompts else ticket


def _attempt(ticket: Ticket) -> int | None:
    """Live once. Returns the prompts per pass to try next if memory ran out, None if the seed has its result.

    An attempt that was asked to stop returns like one that is done.
    """
    ledger = ticket.ledger()
    began = {
        "node": socket.gethostname(),
        "pid": os.getpid(),
        "log": global_worker.get_err_file_path(),
        "driver": ticket.driver,
        "source": source_hash(),
        "start": now(),
        "devices": ticket.devices,
        "resumed_at": committed_step(ticket.checkpoints),
        "micro_batch": ticket.run.train.prompts_per_pass,
        **({"asked_for": True} if ticket.asked_for else {}),
    }
    attempt = ledger.begin_attempt(ticket.config, ticket.seed, began)
    ticket = replace(ticket, attempt=attempt)
    tune.report({"phase": "start", "step": 0, "attempt": attempt, "micro_batch": began["micro_batch"]})
    end: dict[str, Any] = {}
    try:
        _run(ticket)
    except Exception as fault:
        kind = FailureKind.HANG if hung(ledger, ticket.config, ticket.seed, attempt) else kind_of(fault)
        end = {"failure": kind, "message": str(fault), "traceback": traceback.format_exc()}
        smaller = smaller_pass(ticket.run) if pass_too_large(fault) else None
        if smaller is not None:
            end["next_micro_batch"] = smaller
            return smaller
        if kind not in LEFT_IN_ORDER:
            raise
    finally:
        closing = ended_record(began, end=now(), saved_step=committed_step(ticket.checkpoints))
        ledger.end_attempt(ticket.config, ticket.seed, attempt, closing | end)
    return None


def _run(ticket: Ticket) -> None:
    if ticket.run.train.workers > 1:
        _run_workers(ticket)
    else:
        torch.set_num_threads(max(1, int(ticket.cpus_per_worker)))
        run_seed(ticket, lambda record: tune.report(dict(record)), Orders(ticket))


def _run_workers(ticket: Ticket) -> None:
    """Run the seed on several Ray Train workers; their reports become the trial's."""
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    sessions = ticket.ledger().objects.below("train")
    on_gpu = ticket.gpus_per_worker > 0
    resources = {"CPU": ticket.cpus_per_worker} | ({"GPU": ticket.gpus_per_worker} if on_gpu else {})
    TorchTrainer(
        _worker,
        train_loop_config=ticket.to_dict(),
        torch_config=TorchConfig(backend=BACKENDS["cuda" if on_gpu else "cpu"]),
        scaling_config=train.ScalingConfig(
            num_workers=ticket.run.train.workers, use_gpu=on_gpu, resources_per_worker=resources
        ),
        run_config=train.RunConfig(
            name=ticket.run_name,
            storage_path=sessions.root,
            storage_filesystem=sessions.filesystem,
            callbacks=[TuneReportCallback()],
            failure_config=train.FailureConfig(max_failures=0, max_preemption_failures=0),  # the driver decides
        ),
    ).fit()


def _worker(config: Mapping[str, Any]) -> None:
    ticket = Ticket(**config)
    torch.set_num_threads(max(1, int(ticket.cpus_per_worker)))
    orders = Orders(ticket)

    def report(record: Mapping[str, Any]) -> None:
        train.report(dict(record))
        if train.get_preemption_info() is not None:  # tells all workers the same, and waits for them
            orders.node_goes()

    run_seed(ticket, report, orders)

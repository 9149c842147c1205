"""One Tune trial = one (configuration, seed)."""

import os
import socket
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import torch
from ray import train, tune

from par.errors import FailureKind, ParError
from par.training.checkpoint import committed_step
from ray_jobs.provenance import source_hash
from ray_jobs.ticket import Ticket
from ray_jobs.worker import run_seed


def run_trial(config: Mapping[str, Any]) -> None:
    """Run one attempt of a seed, recorded in the ledger from its start to its end.

    One device: the trainer runs in this process. More: a Ray Train run whose name every attempt shares. Both run the
    same ``run_seed``. An error leaves the seed without a result, so that it can go on from its last checkpoint.
    """
    ticket = Ticket.of_trial(config)
    ledger = ticket.ledger()
    began = {
        "node": socket.gethostname(),
        "pid": os.getpid(),
        "source": source_hash(),
        "start": _now(),
        "resumed_at": committed_step(ticket.checkpoints),
    }
    attempt = ledger.begin_attempt(ticket.config, ticket.seed, began)
    tune.report({"phase": "start", "step": 0, "attempt": attempt})
    end: dict[str, Any] = {}
    try:
        if ticket.run.train.workers == 1:
            torch.set_num_threads(max(1, int(ticket.cpus_per_worker)))
            run_seed(ticket, lambda record: tune.report(dict(record)))
        else:
            _run_workers(ticket)
    except Exception as fault:
        kind = fault.kind if isinstance(fault, ParError) else FailureKind.WORKER_DIED
        end = {"failure": kind, "message": str(fault), "traceback": traceback.format_exc()}
        raise
    finally:
        ledger.end_attempt(ticket.config, ticket.seed, attempt, {"end": _now(), **end})


def _run_workers(ticket: Ticket) -> None:
    """Run the seed on several Ray Train workers; their reports become the trial's."""
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    on_gpu = ticket.gpus_per_worker > 0
    resources = {"CPU": ticket.cpus_per_worker} | ({"GPU": ticket.gpus_per_worker} if on_gpu else {})
    TorchTrainer(
        _worker,
        train_loop_config=ticket.to_dict(),
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if on_gpu else "gloo"),
        scaling_config=train.ScalingConfig(
            num_workers=ticket.run.train.workers, use_gpu=on_gpu, resources_per_worker=resources
        ),
        run_config=train.RunConfig(
            name=ticket.run_name,
            storage_path=f"{ticket.storage}/{ticket.sweep}/train",
            callbacks=[TuneReportCallback()],
        ),
    ).fit()


def _worker(config: Mapping[str, Any]) -> None:
    ticket = Ticket(**config)
    torch.set_num_threads(max(1, int(ticket.cpus_per_worker)))
    run_seed(ticket, lambda record: train.report(dict(record)))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

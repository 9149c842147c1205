"""What tests of a sweep need: a tiny run, a failure at a chosen step, and real processes that train together."""

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import distributed as dist
from torch.multiprocessing.spawn import spawn

from par.config.run import RunConfig
from par.errors import ParError
from par.training.loop import StepReport

TINY: dict[str, Any] = {
    "backbone": "tiny-qwen2",
    "task.name": "swap-s3",
    "task.rendering": "compact",
    "task.train_depth": 4,
    "recurrence.gradient_window": 3,
    "train.steps": 20,
    "train.batch_size": 8,
    "compute.checkpoint_every": 5,
    "compute.report_every": 1,
    "optim.lr": 1e-2,
    "optim.adapter_lr": 1e-2,
    "optim.warmup_steps": 2,
    "evaluation.sequences": 16,
    "evaluation.batch_size": 8,
}


def tiny_run(**changes: Any) -> RunConfig:
    """A run that takes seconds; ``changes`` are dotted keys with ``__`` for the dot."""
    return RunConfig.from_dotted(TINY | {key.replace("__", "."): value for key, value in changes.items()})


class WorkerLost(ParError):
    """Injected by FailAt."""


@dataclass
class FailAt:
    """Raise once, after a chosen step: where a test lets a worker die."""

    step: int
    armed: bool = True

    def __call__(self, report: StepReport) -> None:
        """Raise WorkerLost if this is the step."""
        if self.armed and report.step == self.step:
            self.armed = False
            raise WorkerLost(f"injected after step {self.step}")


def run_processes(size: int, function: Callable[..., None], *args: Any) -> None:
    """Run ``function(rank, *args)`` in ``size`` real processes that form a gloo group; a failure of one is raised."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spawn(_member, args=(size, port, function, args), nprocs=size, join=True)


def _member(rank: int, size: int, port: int, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    try:
        function(rank, *args)
    finally:
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # a thread of gloo that lets go of a tensor while Python shuts down would abort the process

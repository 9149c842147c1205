"""What an attempt died of, and what to do about it: pure functions of what is known."""

from collections.abc import Iterator

import torch
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

from par.config import RunConfig
from par.errors import FailureKind, ParError


def kind_of(fault: BaseException) -> FailureKind:
    """The kind of failure that an exception stands for; of several workers' the first that is known."""
    known = (kind for cause in _causes(fault) if (kind := _kind(cause)) is not None)
    return next(known, FailureKind.WORKER_DIED)


def _causes(fault: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised for: those of the workers, and those that it wraps."""
    yield fault
    if isinstance(fault, WorkerGroupError):
        for failure in fault.worker_failures.values():
            yield from _causes(failure)
    elif isinstance(fault, UserExceptionWithTraceback):
        yield from _causes(fault._base_exc)  # pyright: ignore[reportPrivateUsage]  # Ray keeps the worker's own there only
    elif fault.__cause__ is not None:
        yield from _causes(fault.__cause__)


def _kind(fault: BaseException) -> FailureKind | None:
    if isinstance(fault, torch.OutOfMemoryError):
        return FailureKind.OOM_GPU
    return fault.kind if isinstance(fault, ParError) else None


def smaller_pass(run: RunConfig) -> int | None:
    """Half as many prompts per pass; the global batch, its order and its gradient stay. None below one."""
    prompts = run.train.prompts_per_pass
    return None if prompts == 1 else prompts // 2

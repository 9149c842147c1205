"""What an attempt died of: the kind of failure behind an exception."""

import re
from collections.abc import Iterator

from ray.exceptions import NodeDiedError, OutOfDiskError, OutOfMemoryError, RayActorError
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import (
    CollectiveTimeoutError,
    UserExceptionWithTraceback,
    WorkerHealthCheckTimeoutError,
)
from ray.train.v2.api.exceptions import ControllerError, NCCLHangError, PreemptionError

from par.errors import FailureKind, ParError, PassTooLargeError
from par.objects import DISK_FULL
from par.training.speed import lacks_memory

_TYPES: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (PreemptionError, FailureKind.PREEMPTED),
    (NodeDiedError, FailureKind.NODE_LOST),
    (OutOfMemoryError, FailureKind.OOM_HOST),
    (MemoryError, FailureKind.OOM_HOST),
    (OutOfDiskError, FailureKind.DISK),
    (NCCLHangError, FailureKind.HANG),
    (CollectiveTimeoutError, FailureKind.HANG),
    (WorkerHealthCheckTimeoutError, FailureKind.HANG),
)
_WORDS: tuple[tuple[str, FailureKind], ...] = (
    (r"its node has died|[Nn]ode is dead", FailureKind.NODE_LOST),
    (r"node running low on memory", FailureKind.OOM_HOST),
    (r"[Ww]atchdog caught collective operation timeout|Timed out waiting \d+ms for \w+ operation", FailureKind.HANG),
    (r"No space left on device|Disk quota exceeded", FailureKind.DISK),
)
"""What Ray, NCCL and gloo say where they have no exception of its own for it."""
_LEAST_TELLING = (FailureKind.HANG, FailureKind.STOPPED)
"""Of several workers these are believed last: the peers of one that died wait for it in vain, or are stopped."""


def kind_of(fault: BaseException) -> FailureKind:
    """The kind of failure that an exception stands for; of several workers' that of the one that tells the most."""
    known = [kind for cause in causes(fault) if (kind := _kind(cause)) is not None]
    return min(known, key=lambda kind: kind in _LEAST_TELLING, default=FailureKind.WORKER_DIED)


def pass_too_large(fault: BaseException) -> bool:
    """Whether a training pass did not fit into the memory of a device."""
    return any(isinstance(cause, PassTooLargeError) for cause in causes(fault))


def causes(fault: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised for: those of the workers, and those that it wraps."""
    yield fault
    if isinstance(fault, WorkerGroupError):
        for failure in fault.worker_failures.values():
            yield from causes(failure)
    elif isinstance(fault, ControllerError):
        yield from causes(fault.controller_failure)
    elif isinstance(fault, UserExceptionWithTraceback):
        yield from causes(fault._base_exc)  # pyright: ignore[reportPrivateUsage]  # Ray keeps the worker's own there only
    elif fault.__cause__ is not None:
        yield from causes(fault.__cause__)


def _kind(fault: BaseException) -> FailureKind | None:
    if isinstance(fault, ParError):
        return fault.kind
    if lacks_memory(fault):
        return FailureKind.OOM_GPU
    if isinstance(fault, RayActorError) and fault.preempted:
        return FailureKind.PREEMPTED
    if isinstance(fault, OSError) and fault.errno in DISK_FULL:
        return FailureKind.DISK
    by_type = next((kind for known, kind in _TYPES if isinstance(fault, known)), None)
    if by_type or isinstance(fault, WorkerGroupError):  # the text of this one is its workers', each of which is asked
        return by_type
    text = str(fault)
    return next((kind for words, kind in _WORDS if re.search(words, text)), None)

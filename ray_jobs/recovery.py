"""What an attempt died of, and what to do about it: pure functions of what is known."""

from collections.abc import Iterator, Sequence

from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

from par.config import RunConfig
from par.errors import FailureKind, ParError, PassTooLargeError
from par.study.records import Attempt
from par.training.speed import lacks_memory


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
    if lacks_memory(fault):
        return FailureKind.OOM_GPU
    return fault.kind if isinstance(fault, ParError) else None


def smaller_pass(run: RunConfig, fault: BaseException) -> int | None:
    """Half as many prompts per training pass; the global batch, its order and its gradient stay.

    None where that would not help: another fault, memory that is lacking elsewhere, or a pass of one prompt.
    """
    prompts = run.train.prompts_per_pass
    too_large = any(isinstance(cause, PassTooLargeError) for cause in _causes(fault))
    return prompts // 2 if too_large and prompts > 1 else None


def learnt_pass(attempts: Sequence[Attempt]) -> int | None:
    """The prompts per pass that earlier attempts came down to; None if none of them ran out of memory."""
    return min(
        (life.record["next_micro_batch"] for life in attempts if "next_micro_batch" in life.record), default=None
    )

"""The errors of par, and the kinds of failure that a seed can end with.

Every error carries one message, so that it survives a pickle on its way from a worker to the driver.
"""

from enum import StrEnum


class FailureKind(StrEnum):
    """Why an attempt ended before its run was done."""

    STOPPED = "STOPPED"
    """Somebody asked for it, or the driver that started it is gone."""
    PREEMPTED = "PREEMPTED"
    """The node was announced to be taken away."""
    NODE_LOST = "NODE_LOST"
    """The node went without a word."""
    WORKER_DIED = "WORKER_DIED"
    """A process died, or raised what no other kind stands for."""
    HANG = "HANG"
    """A worker stopped making progress."""
    OOM_GPU = "OOM_GPU"
    OOM_HOST = "OOM_HOST"
    DISK = "DISK"
    """The storage is full."""
    NUMERIC = "NUMERIC"
    """Loss or gradient were not finite: a result."""
    CONFIG = "CONFIG"
    DATA = "DATA"


FROM_OUTSIDE = (FailureKind.STOPPED, FailureKind.PREEMPTED, FailureKind.NODE_LOST)
"""What says nothing against the run: it was taken down."""


class ParError(Exception):
    """Base of all errors that par raises on purpose. The message names the field, the value and the next action."""

    kind = FailureKind.WORKER_DIED


class ConfigError(ParError, ValueError):
    """A setting is out of range, unknown, or contradicts another one. The same run would fail again."""

    kind = FailureKind.CONFIG


class SpaceError(ConfigError):
    """A search space has faults; the message lists all of them with their line numbers."""


class DataError(ParError):
    """A task, tokenizer or stored file is not what it must be. The same run would fail again."""

    kind = FailureKind.DATA


class CheckpointError(DataError):
    """A checkpoint is missing, incomplete, or belongs to another run."""


class LedgerError(DataError):
    """A sweep's ledger is missing, exists already, or was written by a newer version."""


class PassTooLargeError(ParError):
    """A training pass does not fit into the memory of the device: with fewer prompts per pass it may."""

    kind = FailureKind.OOM_GPU


class StoppedError(ParError):
    """The driver asked for an end; all that was trained so far is saved."""

    kind = FailureKind.STOPPED


class PreemptedError(StoppedError):
    """The node will be taken away; all that was trained so far is saved."""

    kind = FailureKind.PREEMPTED


class SupersededError(StoppedError):
    """Another attempt, or another driver, has taken the seed over: nothing more may be written."""


class DiskFullError(ParError):
    """A file did not fit on its disk, or into the quota. What was committed before is whole: it can be gone on from."""

    kind = FailureKind.DISK

    @classmethod
    def at(cls, folder: str, free: int) -> "DiskFullError":
        """Build the message here, so that the error pickles with its one argument."""
        return cls(
            f"no space left in {folder}: {free} bytes free, or its quota is used up; make room, for example with "
            "`par gc NAME`, and go on with `par resume NAME --failed`: the last committed checkpoint is whole"
        )


class DivergedError(ParError):
    """The loss or a gradient was not finite. The same step would fail again, so it is a result and never retried."""

    kind = FailureKind.NUMERIC

    @classmethod
    def at(cls, step: int, loss: float, grad_norm: float, iterations: int) -> "DivergedError":
        """Build the message here, so that the error pickles with its one argument."""
        return cls(
            f"loss={loss} grad_norm={grad_norm} at step {step}, {iterations} iterations: "
            "lower optim.lr or set recurrence.anchor to first"
        )

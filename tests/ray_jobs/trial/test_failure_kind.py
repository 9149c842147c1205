"""What an attempt died of."""

import errno

import pytest
import torch
from ray.exceptions import ActorDiedError, NodeDiedError, OutOfMemoryError, RayActorError
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import BroadcastCollectiveTimeoutError, UserExceptionWithTraceback
from ray.train.v2.api.exceptions import ControllerError, NCCLHangError, PreemptionError
from ray.train.v2.api.preemption import PreemptionInfo

from par.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    FailureKind,
    PassTooLargeError,
    PreemptedError,
    StoppedError,
)
from ray_jobs.trial.failure_kind import kind_of, pass_too_large

OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
TOO_LARGE = PassTooLargeError("8 prompts do not fit")
FULL = OSError(errno.ENOSPC, "No space left on device")
GLOO = RuntimeError(
    "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"
)
NCCL = RuntimeError("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE)")
NODE = RuntimeError("The actor died because its node has died. Node Id: 4f. the node was terminated unexpectedly")
PREEMPTION = PreemptionError(PreemptionInfo(None, {"4f": [1]}))


def of_workers(*faults: Exception) -> WorkerGroupError:
    return WorkerGroupError("x", dict(enumerate(faults)))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (OOM, FailureKind.OOM_GPU),
        (ConfigError("x"), FailureKind.CONFIG),
        (CheckpointError("x"), FailureKind.DATA),
        (DivergedError("x"), FailureKind.NUMERIC),
        (StoppedError("x"), FailureKind.STOPPED),
        (RuntimeError("x"), FailureKind.WORKER_DIED),
        (ActorDiedError(), FailureKind.WORKER_DIED),
        (NodeDiedError("x"), FailureKind.NODE_LOST),
        (NODE, FailureKind.NODE_LOST),
        (RayActorError(preempted=True), FailureKind.PREEMPTED),
        (PREEMPTION, FailureKind.PREEMPTED),
        (OutOfMemoryError("x"), FailureKind.OOM_HOST),
        (MemoryError(), FailureKind.OOM_HOST),
        (FULL, FailureKind.DISK),
        (OSError(errno.EDQUOT, "quota"), FailureKind.DISK),
        (OSError(errno.ENOENT, "gone"), FailureKind.WORKER_DIED),
        (GLOO, FailureKind.HANG),
        (NCCL, FailureKind.HANG),
        (NCCLHangError("x", {}), FailureKind.HANG),
        (ControllerError(BroadcastCollectiveTimeoutError(5.0, [1], 5.0)), FailureKind.HANG),
        (of_workers(RuntimeError("peer"), UserExceptionWithTraceback(OOM, "…")), FailureKind.OOM_GPU),
        (of_workers(RuntimeError("peer")), FailureKind.WORKER_DIED),
        (of_workers(GLOO, NODE), FailureKind.NODE_LOST),
        (of_workers(GLOO, RuntimeError("x"), GLOO), FailureKind.HANG),
        (of_workers(StoppedError("asked"), PreemptedError("node")), FailureKind.PREEMPTED),
    ],
)
def test_a_failure_has_the_kind_of_what_caused_it(fault, kind):
    """Of several workers the one that tells the most counts; what nobody knows is WORKER_DIED (T13 T14 T16)."""
    assert kind_of(fault) is kind


def test_what_an_error_was_raised_for_counts():
    """An error around another has the other's kind, unless it has one of its own."""
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("around") from OOM
    assert kind_of(caught.value) is FailureKind.OOM_GPU


@pytest.mark.parametrize("fault", [OOM, RuntimeError("x"), ConfigError("x")])
def test_only_a_training_pass_is_made_smaller(fault):
    """Memory that is lacking in the evaluation, or for the model itself, is not had by smaller training passes."""
    assert not pass_too_large(fault)
    assert pass_too_large(of_workers(fault, TOO_LARGE))

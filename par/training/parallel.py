"""One model on many devices with FSDP2. A single process runs the same code without a mesh."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

import torch
from torch import distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

from par.errors import ParError
from par.model.looped import LoopedModel

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Types of the computation, by the name in ``train.precision``."""
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""What workers talk with, by kind of device: checkpoints are coordinated on the host."""
T = TypeVar("T")


def device_of_this_worker() -> torch.device:
    """The GPU that this process was given, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def set_determinism(wanted: bool) -> None:
    """Let this process use only algorithms that repeat their bits, or any. An operation that has none is an error."""
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted)


def data_mesh(precision: str = "fp32") -> DeviceMesh | None:
    """The mesh over all processes of the initialised group; None for a single process in fp32.

    In bf16 a single process is a mesh of one, as FSDP2 is what casts the weights: once per pass, not once per use.
    """
    device = device_of_this_worker().type
    if not dist.is_initialized():
        if precision == "fp32":
            return None
        dist.init_process_group(BACKENDS[device], store=HashStore(), rank=0, world_size=1)
    if dist.get_world_size() == 1 and precision == "fp32":
        return None
    return init_device_mesh(device, (dist.get_world_size(),))


def shard(model: LoopedModel, mesh: DeviceMesh | None, precision: str = "fp32") -> None:
    """Shard the fp32 parameters in place over ``mesh``; gather them in the type of the computation, reduce in fp32.

    Units: embedding and head together (they may share a matrix), each prelude layer, the whole recurrence (so that its
    weights are gathered once however often it iterates), each coda layer, and what is left in the root.
    """
    if mesh is None:
        return
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[precision], reduce_dtype=torch.float32)
    fully_shard([model.embed, model.head], mesh=mesh, mp_policy=policy)
    for unit in (*model.prelude, model.recurrence, *model.coda.layers, model.coda.answer, model):
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=True)  # the root, too, after a reading
    register_fsdp_forward_method(model, LoopedModel.read.__name__)


@contextmanager
def gradients_reduced(model: LoopedModel, *, now: bool) -> Iterator[None]:
    """Within: the backward pass reduces the gradients over the workers, or only adds them up locally."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(now)
    yield


@contextmanager
def gathered(part: nn.Module) -> Iterator[None]:
    """Within: the weights of all units of ``part`` stay gathered, so that each worker may call it as often as it likes.

    Every worker enters and leaves it; a model without a mesh needs nothing.
    """
    units = [module for module in part.modules() if isinstance(module, FSDPModule)]
    for unit in units:
        unit.unshard()
        unit.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for unit in units:
            unit.set_reshard_after_forward(True, recurse=False)
            unit.reshard()


def workers(mesh: DeviceMesh | None) -> tuple[int, int]:
    """(rank, number of workers); (0, 1) without a mesh."""
    return (0, 1) if mesh is None else (mesh.get_rank(), mesh.size())


def agreed(value: T, mesh: DeviceMesh | None) -> T:
    """What worker 0 has, on all workers: where each has read a file, a late one may have read another version."""
    if mesh is None:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0, group=mesh.get_group())
    return box[0]


def first(action: Callable[[], T], mesh: DeviceMesh | None) -> T:
    """Let worker 0 act while the others wait; what it returns, or raises, comes to all of them."""
    if mesh is None:
        return action()
    outcome, fault = None, None
    if mesh.get_rank() == 0:
        try:
            outcome = action()
        except (ParError, OSError) as raised:
            fault = raised
    outcome, fault = agreed((outcome, fault), mesh)
    if fault is not None:
        raise fault
    return cast(T, outcome)


def summed(values: torch.Tensor, mesh: DeviceMesh | None) -> torch.Tensor:
    """The sum of ``values`` over all workers, in place."""
    if mesh is not None:
        dist.all_reduce(values, group=mesh.get_group())
    return values

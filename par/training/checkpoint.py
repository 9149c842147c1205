"""Checkpoints: DCP shards, then a manifest written last. The manifest is the commit; what has none does not exist."""

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from par.errors import CheckpointError
from par.training.loop import Trainer
from par.training.parallel import workers

MANIFEST = "COMMIT.json"
HISTORY = "history.json"
FORMAT = 1


def save(trainer: Trainer, folder: Path, history: list[dict[str, Any]], *, keep: int = 1) -> Path:
    """Write the state of all workers and the reports so far; commit; remove all but the last ``keep`` checkpoints.

    ``folder`` is visible to all workers. Every worker calls it at the same step. Returns the checkpoint's folder.
    """
    rank, size = workers(trainer.mesh)
    target = folder / f"step_{trainer.step:08d}"
    if rank == 0:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
    _barrier(trainer)
    with _quiet():
        dcp_save(dict(_state(trainer)), checkpoint_id=target, no_dist=trainer.mesh is None)
    if rank == 0:
        _write(target / HISTORY, json.dumps(history))
        _commit(target, trainer, size)
        _collect(folder, keep)
    _barrier(trainer)
    return target


def resume(trainer: Trainer, folder: Path) -> list[dict[str, Any]]:
    """Put the trainer where the last committed checkpoint stands; return the reports up to there, [] without one.

    The number of workers may differ from the one that saved. Raises CheckpointError if it belongs to other settings.
    """
    committed = list(_committed(folder))
    if not committed:
        return []
    last = committed[-1]
    manifest = json.loads((last / MANIFEST).read_text())
    owner = {"fingerprint": trainer.run.fingerprint(), "seed": trainer.run.seed}
    if found := {key: manifest[key] for key in owner if manifest[key] != owner[key]}:
        raise CheckpointError(f"{last} belongs to {found}, this run is {owner}: use another folder")
    state = dict(_state(trainer)) | _empty_optimizer_state(trainer, last)
    with _quiet():
        dcp_load(state, checkpoint_id=last, no_dist=trainer.mesh is None)
    _give_optimizers(trainer, state)
    trainer.step = manifest["step"]
    return json.loads((last / HISTORY).read_text())


def committed_step(folder: Path) -> int:
    """The step from which a trainer would go on; 0 without a checkpoint."""
    committed = list(_committed(folder))
    return int(json.loads((committed[-1] / MANIFEST).read_text())["step"]) if committed else 0


def _commit(target: Path, trainer: Trainer, size: int) -> None:
    files = {p.name: p.stat().st_size for p in sorted(target.iterdir())}
    manifest = {
        "format": FORMAT,
        "step": trainer.step,
        "world_size": size,
        "fingerprint": trainer.run.fingerprint(),
        "seed": trainer.run.seed,
        "files": files,
    }
    draft = target / f"{MANIFEST}.tmp"
    _write(draft, json.dumps(manifest, indent=1))
    draft.replace(target / MANIFEST)


def _committed(folder: Path) -> Iterator[Path]:
    """Checkpoints whose manifest is there and whose files have the recorded sizes, oldest first."""
    for path in sorted(folder.glob(f"step_*/{MANIFEST}")):
        manifest = json.loads(path.read_text())
        if manifest["format"] > FORMAT:
            raise CheckpointError(f"{path.parent} has format={manifest['format']}, known up to {FORMAT}: update par")
        files = manifest["files"]
        if all(
            (path.parent / name).is_file() and (path.parent / name).stat().st_size == n for name, n in files.items()
        ):
            yield path.parent


def _collect(folder: Path, keep: int) -> None:
    kept = list(_committed(folder))[-keep:]
    for path in folder.glob("step_*"):
        if path not in kept:
            shutil.rmtree(path)


def _state(trainer: Trainer) -> Iterator[tuple[str, Tensor]]:
    """Every parameter, the teacher's too, and the optimizer state under the parameter's name; a tied matrix once."""
    names: dict[Tensor, str] = {p: name for name, p in trainer.model.named_parameters()}
    yield from ((f"model/{name}", p.detach()) for p, name in names.items())
    if trainer.teacher:
        yield from ((f"teacher/{name}", p.detach()) for name, p in trainer.teacher.model.named_parameters())
    for optimizer in trainer.optimizers:
        for p, values in optimizer.state.items():
            yield from ((f"optim/{names[p]}/{key}", value) for key, value in values.items())


def _empty_optimizer_state(trainer: Trainer, saved: Path) -> dict[str, Tensor]:
    """Zeros to load the optimizer state into: like the parameter where it has its shape, else as saved."""
    params = dict(trainer.model.named_parameters())
    empty: dict[str, Tensor] = {}
    for name, meta in FileSystemReader(saved).read_metadata().state_dict_metadata.items():
        if name.startswith("optim/"):
            p = params[name.split("/")[1]]
            like_parameter = tuple(meta.size) == tuple(p.shape)  # pyright: ignore[reportAttributeAccessIssue]
            empty[name] = torch.zeros_like(p) if like_parameter else torch.zeros(meta.size)  # pyright: ignore
    return empty


def _give_optimizers(trainer: Trainer, state: dict[str, Tensor]) -> None:
    params = dict(trainer.model.named_parameters())
    owners = {p: o for o in trainer.optimizers for group in o.param_groups for p in group["params"]}
    for name, value in state.items():
        if name.startswith("optim/"):
            _, parameter, key = name.split("/")
            p = params[parameter]
            owners[p].state[p][key] = value


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop DCP's warning that a single process is a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _write(path: Path, text: str) -> None:
    with path.open("w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


def _barrier(trainer: Trainer) -> None:
    if trainer.mesh is not None:
        dist.barrier(group=trainer.mesh.get_group())

"""Checkpoints of a trainer: shards, then a manifest written last. The manifest is the commit; see par.training.commits.

The folder of checkpoints may lie on a disk or in an object store; all workers see it.
"""

import json
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from par.errors import CheckpointError, DiskFullError
from par.objects import Objects
from par.training import shards
from par.training.commits import HISTORY, STATE, WEIGHTS, Commit, best, committed, folder_name, last_resumable, tidy
from par.training.loop import Trainer
from par.training.parallel import first, workers


def save(trainer: Trainer, folder: Objects, history: list[dict[str, Any]], *, accuracy: float | None = None) -> Commit:
    """Write the state of all workers and the reports so far; commit; keep only this one and the weights of the best.

    ``accuracy`` is what the best is chosen by. Every worker calls it at the same step. Raises DiskFullError on all of
    them if a disk is full: the checkpoints before this one are still there, and what was written of it is not.
    """
    name, together = folder_name(trainer.step), trainer.mesh is not None
    first(partial(_make_room, folder, name), trainer.mesh)
    try:
        shards.save(_weights(trainer.model), folder.below(f"{name}/{WEIGHTS}"), together=together)
        shards.save(_state(trainer), folder.below(f"{name}/{STATE}"), together=together)
        return first(partial(_commit, trainer, folder, history, accuracy), trainer.mesh)
    except DiskFullError:
        first(partial(_abandon, folder, name), trainer.mesh)
        raise


def resume(trainer: Trainer, folder: Objects) -> list[dict[str, Any]]:
    """Put the trainer where the last committed checkpoint stands; return the reports up to there, [] without one.

    The number of workers may differ from the one that saved. Raises CheckpointError if it belongs to other settings.
    """
    found = first(partial(_last_of, trainer, folder), trainer.mesh)
    if found is None:
        return []
    commit, history = found
    place, together = folder.below(commit.name), trainer.mesh is not None
    shards.load(_weights(trainer.model), place.below(WEIGHTS), together=together)
    if commit.trainable:
        state = _teacher(trainer) | _empty_optimizer_state(trainer, place.below(STATE))
        shards.load(state, place.below(STATE), together=together)
        _give_optimizers(trainer, state)
    trainer.step = commit.step
    return history


def committed_step(folder: Objects) -> int:
    """The step from which a trainer would go on; 0 without a checkpoint."""
    last = last_resumable(committed(folder))
    return last.step if last else 0


def load_weights(model: nn.Module, folder: Objects, which: Literal["last", "best"] = "last") -> Commit:
    """Load the weights of a seed's last or best checkpoint, for evaluation; every worker of a sharded model calls it.

    Raises CheckpointError if there is none, or if it is of another model.
    """
    commits = committed(folder)
    if not commits:
        raise CheckpointError(f"{folder.root} has no committed checkpoint: train the seed first")
    commit = best(commits) if which == "best" else commits[-1]
    place, weights = folder.below(f"{commit.name}/{WEIGHTS}"), _weights(model)
    saved, here = shards.shapes(place), {name: tuple(p.shape) for name, p in weights.items()}
    if differing := {name for name in saved.keys() | here.keys() if saved.get(name) != here.get(name)}:
        name = min(differing)
        raise CheckpointError(
            f"{place.root} is of another model: {name} is {saved.get(name)} there, {here.get(name)} here; "
            "build the model from the settings of its configuration"
        )
    shards.load(weights, place, together=any(isinstance(p, DTensor) for p in weights.values()))
    return commit


def _make_room(folder: Objects, name: str) -> None:
    tidy(folder)
    folder.delete_folder(name)


def _abandon(folder: Objects, name: str) -> None:
    with suppress(OSError):
        folder.delete_folder(name)


def _commit(trainer: Trainer, folder: Objects, history: list[dict[str, Any]], accuracy: float | None) -> Commit:
    name = folder_name(trainer.step)
    folder.put(f"{name}/{HISTORY}", json.dumps(history).encode())
    commit = Commit(
        step=trainer.step,
        steps=trainer.run.train.steps,
        world_size=workers(trainer.mesh)[1],
        fingerprint=trainer.run.fingerprint(),
        seed=trainer.run.seed,
        accuracy=accuracy,
        files=folder.below(name).sizes(),
    )
    commit.write(folder)
    tidy(folder)
    return commit


def _last_of(trainer: Trainer, folder: Objects) -> tuple[Commit, list[dict[str, Any]]] | None:
    commit = last_resumable(committed(folder))
    if commit is None:
        return None
    saved, own = (commit.fingerprint, commit.seed), (trainer.run.fingerprint(), trainer.run.seed)
    if saved != own:
        raise CheckpointError(
            f"{folder.root}/{commit.name} belongs to fingerprint={saved[0]} seed={saved[1]}, "
            f"this run is fingerprint={own[0]} seed={own[1]}: use another folder"
        )
    return commit, json.loads(folder.get(f"{commit.name}/{HISTORY}"))


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter by name; a tied matrix once."""
    return {f"model/{name}": p.detach() for name, p in model.named_parameters()}


def _state(trainer: Trainer) -> dict[str, Tensor]:
    """What training needs beside the weights: the teacher's, and the optimizer state under the parameter's name."""
    names: dict[Tensor, str] = {p: name for name, p in trainer.model.named_parameters()}
    values = chain.from_iterable(optimizer.state.items() for optimizer in trainer.optimizers)
    return _teacher(trainer) | {f"optim/{names[p]}/{key}": value for p, state in values for key, value in state.items()}


def _teacher(trainer: Trainer) -> dict[str, Tensor]:
    weights = trainer.teacher.model.named_parameters() if trainer.teacher else ()
    return {f"teacher/{name}": p.detach() for name, p in weights}


def _empty_optimizer_state(trainer: Trainer, saved: Objects) -> dict[str, Tensor]:
    """Zeros to load the optimizer state into: like the parameter where it has its shape, else as saved."""
    params = dict(trainer.model.named_parameters())
    empty: dict[str, Tensor] = {}
    for name, shape in shards.shapes(saved).items():
        if name.startswith("optim/"):
            p = params[name.split("/")[1]]
            empty[name] = torch.zeros_like(p) if shape == tuple(p.shape) else torch.zeros(shape)
    return empty


def _give_optimizers(trainer: Trainer, state: dict[str, Tensor]) -> None:
    params = dict(trainer.model.named_parameters())
    owners = {p: o for o in trainer.optimizers for group in o.param_groups for p in group["params"]}
    for name, value in state.items():
        if name.startswith("optim/"):
            _, parameter, key = name.split("/")
            p = params[parameter]
            owners[p].state[p][key] = value

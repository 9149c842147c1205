"""Which sweep a command means: a new one from its space, or one that exists from its ledger."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from par.errors import ConfigError
from par.study.ledger import Ledger, plain_name, sweeps
from par.study.space import Space, load_space, parse_space
from ray_jobs.terminal import out

REPOSITORY = Path(__file__).resolve().parent.parent
RESERVED = ("mlflow.db", "artifacts")
"""Names that MLflow's files have in a storage."""
MAY_GROW = ("configurations", "seeds")
"""What a sweep may have more of when it goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """What a sweep is to have in the end, where a person said so; None leaves it as it is."""

    configurations: int | None = None
    seeds: int | None = None


def default_storage() -> str:
    """The repository's ``results``. Raises ConfigError where the repository is a job's temporary copy."""
    if "runtime_resources" in REPOSITORY.parts:
        raise ConfigError("this job runs from a temporary copy of the repository: give --storage a folder that stays")
    return str(REPOSITORY / "results")


def folder_of(storage: str | None) -> str:
    """The absolute path of a storage. Raises ConfigError for an object store, where checkpoints cannot lie yet."""
    storage = storage or default_storage()
    if "://" in storage:
        raise ConfigError(f"--storage {storage} is no folder: give a path that every node sees")
    folder = Path(storage).expanduser().resolve()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ConfigError(f"--storage {storage}: {there} is no folder that can be written")
    return str(folder)


def new_sweep(space: Path | None, name: str | None, storage: str, totals: Totals, *, dry_run: bool) -> Space:
    """The space of a sweep that does not exist yet. Raises ParError for anything that cannot be run."""
    chosen = _with_totals(load_space(space or REPOSITORY / "search_spaces" / "smoke.yaml"), totals)
    wanted = name or chosen.name
    plain_name("sweep", wanted)
    if wanted in RESERVED:
        raise ConfigError(f"sweep {wanted}: MLflow's files have that name, give another --name")
    if not dry_run and wanted in sweeps(storage):
        raise ConfigError(f"sweep {wanted} exists in {storage}: go on with --resume {wanted}, or give another --name")
    return chosen


def begin(space: Space, name: str | None, storage: str) -> Ledger:
    """Write the sweep's record. Raises ConfigError if the storage refuses."""
    from ray_jobs.provenance import provenance

    record = {
        "space": space.text,
        "space_path": f"{space.name}.yaml",
        "space_fingerprint": space.fingerprint(),
        **provenance(),
    }
    try:
        return Ledger.create(storage, name or space.name, record)
    except OSError as fault:
        raise ConfigError(f"--storage {storage} cannot be written: {fault}") from None


def resumed_sweep(
    name: str, storage: str, space: Path | None, totals: Totals, *, dry_run: bool
) -> tuple[Space, Ledger]:
    """The space and the ledger of a sweep that goes on, with what it is to have more of.

    A changed ``space`` is accepted if it adds backbones, configurations or seeds to what there is, and nothing else.
    Raises ConfigError that lists what differs.
    """
    from ray_jobs.provenance import source_hash

    ledger = Ledger.open(storage, name)
    if ledger.sweep.get("source") != source_hash():
        out.print(
            f"The code differs from that which sweep {name} began with; each attempt records its own.", style="yellow"
        )
    recorded = _recorded(ledger)
    chosen = recorded if space is None else _grown(name, recorded, load_space(space))
    chosen = _with_totals(chosen, totals)
    if chosen.meaning() != recorded.meaning() and not dry_run:
        ledger.want({"space": chosen.text, "configurations": chosen.configurations, "seeds": chosen.seeds})
    return chosen, ledger


def _recorded(ledger: Ledger) -> Space:
    """The space as the sweep began with it, or as it was last made larger."""
    wanted = ledger.wanted()
    space = parse_space(wanted.get("space", ledger.sweep["space"]), Path(ledger.sweep["space_path"]))
    totals = {key: wanted[key] for key in MAY_GROW if key in wanted}
    return replace(space, **totals)


def _with_totals(space: Space, totals: Totals) -> Space:
    """The space with other totals. Raises ConfigError where they cannot be had."""
    if totals.configurations is not None and space.sampler == "grid":
        raise ConfigError(
            f"--configurations {totals.configurations}: a grid and variants have {space.configurations}: leave it out"
        )
    asked = {"configurations": totals.configurations, "seeds": totals.seeds}
    for key, value in asked.items():
        if value is not None and value < getattr(space, key):
            raise ConfigError(
                f"--{key} {value}: there are {getattr(space, key)} in total, and nothing is taken away: give a larger "
                "number, or leave it out"
            )
    return replace(space, **{key: value for key, value in asked.items() if value is not None})


def _grown(name: str, recorded: Space, given: Space) -> Space:
    """The given space if it only adds to the recorded one. Raises ConfigError that lists what else differs."""
    before, after = recorded.meaning(), given.meaning()
    changed = {key for key in before if before[key] != after[key]}
    if changed <= {"backbones", *MAY_GROW} and _adds(before, after):
        return given
    listed = "; ".join(_difference(key, before[key], after[key]) for key in sorted(changed))
    raise ConfigError(
        f"{given.name}.yaml is not the space that sweep {name} began with ({listed}): "
        "drop --space, or start a new sweep"
    )


def _adds(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    counts = all(after[key] >= before[key] for key in MAY_GROW)  # pyright: ignore[reportOperatorIssue]
    return counts and set(before["backbones"]) <= set(after["backbones"])  # pyright: ignore[reportArgumentType]


def _difference(key: str, before: object, after: object) -> str:
    """One changed field; of a mapping only the entries that differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        entries = [entry for entry in {**before, **after} if before.get(entry) != after.get(entry)]
        return "; ".join(f"{key}.{entry}: {before.get(entry)} became {after.get(entry)}" for entry in entries)
    return f"{key}: {before} became {after}"

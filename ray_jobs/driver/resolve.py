"""Which sweep a command means: a new one from its space, or one that exists from its ledger."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from par.errors import ConfigError
from par.ledger.current_space import current_space, write_totals
from par.ledger.lease import require_free
from par.ledger.ledger import Ledger, plain_name, sweeps
from par.ledger.records import Computing, SweepRecord
from par.objects import Objects, public
from par.space.space import Space, load_space
from ray_jobs import REPOSITORY
from ray_jobs.console import warn
from ray_jobs.provenance import provenance, source_hash

HIDDEN = "***"
"""What is kept in the place of a secret."""
RESERVED = ("mlflow.db", "artifacts")
"""Names that MLflow's files have in a storage."""
MAY_GROW = {"backbones", "configurations", "seeds", "confirm", "fresh_seeds"}
"""What a space may have more of when its sweep goes on."""


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


def storage_of(storage: str | None, tracking_uri: str | None = None, *, new: bool = True) -> str:
    """The absolute path, or the URI, of a storage. Raises ConfigError if it cannot be used.

    An object store has no MLflow store beside the sweeps, so that it needs a ``tracking_uri``, unless the sweep is not
    ``new`` and may have kept one.
    """
    storage = storage or default_storage()
    if "://" not in storage:
        return writable(storage)
    if new:
        require_mlflow(storage, tracking_uri)
    try:
        Objects.at(storage).walk(recursive=False)
    except OSError as fault:
        raise ConfigError(f"--storage {public(storage)} does not answer: {fault}") from None
    return storage


def require_mlflow(storage: str, tracking_uri: str | None) -> None:
    """Raise ConfigError if there is no MLflow store: an object store has none beside the sweeps."""
    if "://" in storage and tracking_uri is None:
        raise ConfigError(f"--storage {public(storage)} has no MLflow store beside it: give --tracking-uri")


def without_password(computing: Computing) -> Computing:
    """What may be kept: of a tracking URI with a user, a password or a query the rest, and that there was more."""
    if (uri := computing.tracking_uri) is None:
        return computing
    shown, query, _ = public(uri).partition("?")
    if shown != uri.partition("?")[0]:
        shown = shown.replace("://", f"://{HIDDEN}@", 1)
    return replace(computing, tracking_uri=f"{shown}?{HIDDEN}" if query else shown)


def require_secret(tracking_uri: str | None) -> None:
    """Raise ConfigError for a kept address of MLflow whose secret was not kept, and is not given."""
    if tracking_uri is not None and HIDDEN in tracking_uri:
        raise ConfigError(
            f"the sweep logs to {tracking_uri}, and what {HIDDEN} stands for is not kept: give --tracking-uri, or set "
            "MLFLOW_TRACKING_URI"
        )


def writable(storage: str, option: str = "--storage") -> str:
    """The absolute path of a folder, which need not exist. Raises ConfigError if nothing can be written there."""
    folder = Path(storage).expanduser().resolve()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ConfigError(f"{option} {storage}: {there} is no folder that can be written")
    return str(folder)


def new_sweep(space: Path | None, name: str | None, storage: str, totals: Totals, *, dry_run: bool) -> Space:
    """The space of a sweep that does not exist yet. Raises ParError for anything that cannot be run."""
    chosen = _with_totals(None, load_space(space or REPOSITORY / "search_spaces" / "smoke.yaml"), totals)
    name = name or chosen.name
    plain_name("sweep", name)
    if name in RESERVED:
        raise ConfigError(f"sweep {name}: MLflow's files have that name, give another --name")
    if not dry_run and name in sweeps(storage):
        place = public(storage)
        raise ConfigError(f"sweep {name} exists in {place}: go on with par resume {name}, or give another --name")
    return chosen


def begin(space: Space, name: str | None, storage: str, **more: Any) -> Ledger:
    """Write the sweep's record, ``more`` of its beginning included. Raises ConfigError if the storage refuses."""
    path, fingerprint = f"{space.name}.yaml", space.fingerprint()
    record = SweepRecord(space=space.text, space_path=path, space_fingerprint=fingerprint, **more, **provenance())
    try:
        ledger = Ledger.create(storage, name or space.name, record)
        if current_space(ledger) != space:
            write_totals(ledger, space)
    except OSError as fault:
        raise ConfigError(f"--storage {public(storage)} cannot be written: {fault}") from None
    return ledger


def resumed_sweep(
    name: str, storage: str, space: Path | None, totals: Totals, *, dry_run: bool, break_lease: str | None = None
) -> tuple[Space, Ledger]:
    """The space and the ledger of a sweep that goes on, with what it is to have more of.

    A changed ``space`` is accepted if it adds backbones, configurations or seeds to what there is, and nothing else.
    Raises ConfigError that lists what differs, and LeaseError where it would grow under another driver's hands.
    """
    ledger = Ledger.open(storage, name)
    if ledger.sweep.source != source_hash():
        warn(f"The code differs from that which sweep {name} began with; each attempt records its own.")
    recorded = current_space(ledger)
    chosen = recorded if space is None else _grown(name, recorded, load_space(space))
    chosen = _with_totals(recorded, chosen, totals)
    if chosen.meaning() != recorded.meaning() and not dry_run:
        if not break_lease:
            require_free(ledger)
        write_totals(ledger, chosen)
    return chosen, ledger


def _with_totals(before: Space | None, space: Space, totals: Totals) -> Space:
    """The space with other totals. Raises ConfigError where they cannot be had, or are below those of ``before``."""
    if totals.configurations is not None and space.sampler == "grid":
        raise ConfigError(
            f"--configurations {totals.configurations}: a grid and variants have {space.configurations}: leave it out"
        )
    if before is not None:
        _refuse_less("configurations", totals.configurations, before.configurations)
        _refuse_less("seeds", totals.seeds, before.stages.rungs[-1])
    configurations = totals.configurations or space.configurations
    if configurations < len(space.backbones):
        raise ConfigError(
            f"--configurations {configurations} leaves some of the {len(space.backbones)} backbones without one: raise "
            "it"
        )
    stages = space.stages if totals.seeds is None else space.stages.up_to(totals.seeds)
    return replace(space, configurations=configurations, stages=stages)


def _refuse_less(what: str, asked: int | None, there: int) -> None:
    if asked is not None and asked < there:
        raise ConfigError(
            f"--{what} {asked}: there are {there} in total, and nothing is taken away: give a larger number, or leave "
            "it out"
        )


def _grown(name: str, recorded: Space, given: Space) -> Space:
    """The given space if it only adds to the recorded one. Raises ConfigError that lists what else differs."""
    before, after = recorded.meaning(), given.meaning()
    changed = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    adds = set(recorded.backbones) <= set(given.backbones) and recorded.configurations <= given.configurations
    if changed <= MAY_GROW and adds and recorded.stages.grows_into(given.stages):
        return replace(given, exhausted=recorded.exhausted)
    listed = "; ".join(_difference(key, before.get(key), after.get(key)) for key in sorted(changed))
    raise ConfigError(
        f"{given.name}.yaml is not the space that sweep {name} began with ({listed}): "
        "drop --space, or start a new sweep"
    )


def _difference(key: str, before: object, after: object) -> str:
    """One changed field; of a mapping only the entries that differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        entries = [entry for entry in {**before, **after} if before.get(entry) != after.get(entry)]
        return "; ".join(f"{key}.{entry}: {before.get(entry)} became {after.get(entry)}" for entry in entries)
    return f"{key}: {before} became {after}"

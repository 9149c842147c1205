"""Sweep looped models over configurations and seeds.

python ray_jobs/sweep.py --space search_spaces/smoke.yaml
ray job submit -- python ray_jobs/sweep.py --space search_spaces/smoke.yaml
"""

import os
import sys
from pathlib import Path
from typing import Annotated

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[0] = str(REPOSITORY)  # a job starts this file where par is not installed

import typer  # noqa: E402

from par.errors import ConfigError  # noqa: E402
from par.study.ledger import Ledger, plain_name, sweeps  # noqa: E402
from par.study.space import Space, load_space, parse_space  # noqa: E402
from ray_jobs.terminal import out, refusing  # noqa: E402

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

SEEDS_MISSING = 1
"""Exit code when some seeds have no result yet."""
RESERVED = ("mlflow.db", "artifacts")
"""Names that MLflow's files have in a storage."""


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def sweep(
    space: Annotated[
        Path | None,
        typer.Option(help="Search space (YAML): what to compare, over how many seeds.", show_default="smoke"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the sweep; the space's name by default.")] = None,
    resume: Annotated[str | None, typer.Option(metavar="NAME", help="Go on with this sweep; repeats no seed.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost; run nothing.")] = False,
    storage: Annotated[
        str | None, typer.Option(help="Folder of all sweeps; every node must see it.", show_default="results")
    ] = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option(help="MLflow server or store.", envvar="MLFLOW_TRACKING_URI", show_default="STORAGE/mlflow.db"),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster; RAY_ADDRESS, or else a Ray of its own.", show_default=False)
    ] = None,
    max_concurrent: Annotated[
        int | None, typer.Option(min=1, help="Trials at once; as many as fit by default.", show_default=False)
    ] = None,
    cpus_per_worker: Annotated[float, typer.Option(min=0.1, help="CPUs of each worker.")] = 1.0,
    gpus_per_worker: Annotated[
        float | None, typer.Option(min=0, help="GPUs of each worker; 1 where the cluster has any.", show_default=False)
    ] = None,
) -> None:
    """Sweep looped models over configurations and seeds: train, evaluate, compare.

    Results lie in STORAGE/NAME and in MLflow. A sweep that was interrupted goes on with --resume NAME: finished seeds
    stay as they are, interrupted ones continue from their last checkpoint.

    Exit code: 0 when every seed has a result, 1 when some have none yet, 2 for bad input.
    """
    with refusing():
        home = _folder(storage or default_storage())
        chosen, ledger = _open(space, name, resume, home, dry_run=dry_run)
        from ray_jobs.drive import Options, drive, show_plan

        options = Options(
            address=address, max_concurrent=max_concurrent, cpus_per_worker=cpus_per_worker,
            gpus_per_worker=gpus_per_worker, tracking_uri=tracking_uri, storage=home,
        )  # fmt: skip
        if dry_run:
            show_plan(chosen, ledger, options, out)
            return

        def begin() -> Ledger:
            try:
                return Ledger.create(home, name or chosen.name, _record(chosen))
            except OSError as fault:
                raise ConfigError(f"--storage {home} cannot be written: {fault}") from None

        complete = drive(chosen, ledger, begin, options, out)
    if not complete:
        raise typer.Exit(SEEDS_MISSING)


def default_storage() -> str:
    """The repository's ``results``. Raises ConfigError where the repository is a job's temporary copy."""
    if "runtime_resources" in REPOSITORY.parts:
        raise ConfigError("this job runs from a temporary copy of the repository: give --storage a folder that stays")
    return str(REPOSITORY / "results")


def _folder(storage: str) -> str:
    """The absolute path of a storage. Raises ConfigError for an object store, where checkpoints cannot lie yet."""
    if "://" in storage:
        raise ConfigError(f"--storage {storage} is no folder: give a path that every node sees")
    folder = Path(storage).expanduser().resolve()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ConfigError(f"--storage {storage}: {there} is no folder that can be written")
    return str(folder)


def _open(
    space: Path | None, name: str | None, resume: str | None, storage: str, *, dry_run: bool
) -> tuple[Space, Ledger | None]:
    """The space, and the ledger of a sweep that exists. Raises ParError for anything that cannot be run."""
    if resume is None:
        chosen = load_space(space or REPOSITORY / "search_spaces" / "smoke.yaml")
        wanted = name or chosen.name
        plain_name("sweep", wanted)
        if wanted in RESERVED:
            raise ConfigError(f"sweep {wanted}: MLflow's files have that name, give another --name")
        if not dry_run and wanted in sweeps(storage):
            raise ConfigError(
                f"sweep {wanted} exists in {storage}: go on with --resume {wanted}, or give another --name"
            )
        return chosen, None
    if name not in (None, resume):
        raise ConfigError(f"--resume {resume} goes on under its own name: drop --name {name}")
    from ray_jobs.provenance import source_hash

    ledger = Ledger.open(storage, resume)
    recorded = parse_space(ledger.sweep["space"], Path(ledger.sweep["space_path"]))
    if ledger.sweep.get("source") != source_hash():
        out.print(
            f"The code differs from that which sweep {resume} began with; each attempt records its own.", style="yellow"
        )
    if space is not None and (changed := _differences(recorded, load_space(space))):
        raise ConfigError(
            f"{space} is not the space that sweep {resume} began with ({changed}): drop --space, or start a new sweep"
        )
    return recorded, ledger


def _differences(old: Space, new: Space) -> str:
    before, after = old.meaning(), new.meaning()
    return "; ".join(f"{key}: {before[key]} became {after[key]}" for key in before if before[key] != after[key])


def _record(space: Space) -> dict[str, object]:
    """What the sweep is, for whoever finds it later."""
    from ray_jobs.provenance import provenance

    return {
        "space": space.text,
        "space_path": f"{space.name}.yaml",
        "space_fingerprint": space.fingerprint(),
        **provenance(),
    }


if __name__ == "__main__":
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    app()

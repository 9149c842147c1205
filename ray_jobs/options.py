"""The options that several commands have, each explained once."""

from pathlib import Path
from typing import Annotated

import typer

from par.errors import ConfigError, FailureKind
from par.space.stages import FRESH

GRACE_S = 60.0
"""How long trials have to save and leave."""

Storage = Annotated[
    str | None,
    typer.Option(help="Folder of all sweeps, or s3://bucket/folder; every node must see it.", show_default="results"),
]
TrackingUri = Annotated[
    str | None,
    typer.Option(help="MLflow server or store.", envvar="MLFLOW_TRACKING_URI", show_default="STORAGE/mlflow.db"),
]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster; RAY_ADDRESS, or else a Ray of its own.", show_default=False)
]
MaxConcurrent = Annotated[
    int | None, typer.Option(min=1, help="Trials at once; as many as fit by default.", show_default=False)
]
CpusPerWorker = Annotated[float | None, typer.Option(min=0.1, help="CPUs of each worker.", show_default="1")]
GpusPerWorker = Annotated[
    float | None, typer.Option(min=0, help="GPUs of each worker; 1 where the cluster has any.", show_default=False)
]
Failed = Annotated[bool, typer.Option("--failed", help="Start the seeds again that were given up, too.")]
Kinds = Annotated[
    str | None,
    typer.Option(
        metavar="KIND,…", help="With --failed: only those that failed so, e.g. OOM_GPU,HANG.", show_default="all"
    ),
]
Configurations = Annotated[
    int | None, typer.Option(min=1, help="Configurations in total, to have more than before.", show_default=False)
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, max=FRESH, help="Seeds of a configuration at most, to have more than before.", show_default=False
    ),
]
BreakLease = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="Take the sweep from a driver that still seems to live.", show_default=False),
]
DeviceHours = Annotated[
    float | None,
    typer.Option(
        min=0, help="Stop when all attempts together have used this much; time in between is free.", show_default=False
    ),
]
MaxFailedShare = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="Stop when more than this share of the seeds is given up; 0 at the first.", show_default="1"
    ),
]
HangAfter = Annotated[
    float | None,
    typer.Option(min=1, help="Seconds without progress after which a worker is ended.", show_default="1800"),
]
Grace = Annotated[
    float | None, typer.Option(min=0, help="Seconds that trials have to save and leave at a stop.", show_default="60")
]
Space = Annotated[
    Path | None,
    typer.Option(help="Search space (YAML): what to compare, over how many seeds.", show_default="smoke"),
]
Grown = Annotated[
    Path | None,
    typer.Option(help="Search space with further backbones, configurations or seeds.", show_default=False),
]
WarmStart = Annotated[
    str | None,
    typer.Option(
        metavar="sweep:NAME", help="Begin a new search with what this sweep of the storage found.", show_default=False
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost; run nothing.")]


def kinds_of(failed: bool, kinds: str | None) -> tuple[FailureKind, ...]:
    """The failures that are to be started again. Raises ConfigError for one that does not exist."""
    if kinds is None:
        return tuple(FailureKind) if failed else ()
    if not failed:
        raise ConfigError(f"--kinds {kinds} needs --failed: only seeds that were given up are chosen by kind")
    names = [name.strip().upper() for name in kinds.split(",") if name.strip()]
    if unknown := [name for name in names if name not in FailureKind.__members__]:
        raise ConfigError(f"--kinds {','.join(unknown)}: choose from {', '.join(FailureKind)}")
    return tuple(FailureKind(name) for name in names)

"""`par export`: the results of a sweep as a table or as Optuna studies, from the ledger alone."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from par.errors import ConfigError
from par.ledger.current_space import current_space
from par.ledger.lease import holder
from par.ledger.ledger import Ledger
from par.objects import Objects, public
from par.report.export import as_csv, as_parquet, seed_table
from ray_jobs import options as o
from ray_jobs.console import refusing, say
from ray_jobs.driver.resolve import default_storage


def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The sweep.")],
    parquet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Table of all seeds, with types.", show_default=False)
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="The same as text.", show_default=False)] = None,
    optuna: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Database for Optuna studies, e.g. sqlite:///FILE.", show_default=False),
    ] = None,
    storage: o.Storage = None,
) -> None:
    """Write what a sweep has found to a file or a database; it may be running.

    --parquet and --csv: a row per seed with what was searched, its stage, its status, the kind of its failure, and
    every metric. Seeds that failed, run, or have not begun have rows, too. The Parquet file has the space with it.

    --optuna: a study NAME/BACKBONE for each backbone. Configurations that were judged are COMPLETE with their score
    over the most seeds, and the scores over fewer seeds as intermediate values; others are RUNNING or FAIL.

    Nothing that exists is written over.

    Exit code: 0, or 2 for a sweep that does not exist, a file or study that does, or none of the three options.
    """
    with refusing():
        files = [(option, path) for option, path in (("parquet", parquet), ("csv", csv)) if path is not None]
        _require_free(files, optuna)
        ledger = Ledger.open(storage or default_storage(), name)
        driven, state = holder(ledger) is not None, ledger.read()
        space = current_space(ledger)
        table = seed_table(name, space, state, driven=driven)
        if optuna is not None:
            from ray_jobs.optuna_studies.export import write_studies

            studies = write_studies(optuna, name, space, state, driven=driven)
            say(f"{public(optuna)}: {', '.join(studies)}")
        for option, path in files:
            _create(option, path, as_parquet(table) if option == "parquet" else as_csv(table))
            say(f"{path}: {_counted(table['status'].to_pylist())}")


def _require_free(files: list[tuple[str, Path]], optuna: str | None) -> None:
    if not files and optuna is None:
        raise ConfigError("nothing to write: give --parquet FILE, --csv FILE, --optuna sqlite:///FILE, or several")
    for option, path in files:
        if path.exists():
            raise _exists(option, path)
        if not path.parent.is_dir():
            raise ConfigError(f"--{option} {path}: there is no folder {path.parent}: make it, or name another")


def _exists(option: str, path: Path) -> ConfigError:
    return ConfigError(f"--{option} {path} exists, and nothing is written over: name another file, or move this one")


def _create(option: str, path: Path, data: bytes) -> None:
    try:
        created = Objects.at(path.absolute().parent).create(path.name, data)
    except OSError as fault:
        raise ConfigError(f"--{option} {path} cannot be written: {fault.strerror}: name another place") from None
    if not created:
        raise _exists(option, path)


def _counted(statuses: list[str]) -> str:
    """How many seeds there are, and how they stand, the most frequent status first."""
    counts = ", ".join(f"{count} {status}" for status, count in Counter(statuses).most_common())
    return f"{len(statuses)} seeds" + (f" ({counts})" if counts else "")

"""`par gc`: free the storage that a sweep holds and no longer needs."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple

import typer
from rich.table import Table

from par.ledger.lease import hold
from par.ledger.ledger import Ledger
from par.objects import Objects
from par.training.commits import STATE, committed, surplus, tidy, to_keep
from ray_jobs import options as o
from ray_jobs.console import bytes_text, out, refusing
from ray_jobs.driver.resolve import default_storage

PARTIAL, REPLACED, FINISHED = "partial checkpoints", "replaced checkpoints", "training state of finished seeds"
DRAFTS, SESSIONS = "drafts of killed writers", "session files of Ray"
DRAFT_AGE = timedelta(hours=1)
"""From then on nobody writes it any more."""
SESSION_FOLDERS = ("tune", "train")
"""Where Ray Tune and Ray Train keep files that par never reads back."""


class Garbage(NamedTuple):
    """One object that is not needed."""

    kind: str
    path: str
    bytes: int


class Seed(NamedTuple):
    """Where the checkpoints of one seed lie, and whether it has its result."""

    checkpoints: Objects
    done: bool


def gc(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the sweep.")],
    storage: o.Storage = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")] = False,
) -> None:
    """Remove what a sweep no longer needs, and say how many bytes that frees.

    Partial and replaced checkpoints; of finished seeds the state of optimizer and teacher, so that their last and best
    weights stay; drafts that killed writers left more than an hour ago; Ray's own files of past drivers.

    Results, attempts, curves and the last checkpoint of each seed always stay. A seed whose last attempt has no end may
    be running: it is left alone, and so are Ray's files.

    Exit code: 0, or 2 if there is no such sweep, or if it is driven now: gc holds its lease meanwhile.
    """
    with refusing():
        ledger = Ledger.open(storage or default_storage(), name)
        with nullcontext() if dry_run else hold(ledger):
            idle, running = _seeds(ledger)
            found = [*_of_seeds(idle), *_drafts(ledger), *([] if running else _sessions(ledger))]
            if not dry_run:
                _remove(ledger, idle, found)
    out.print(_table(found))
    total = bytes_text(sum(item.bytes for item in found))
    out.print(f"{total} would be freed: nothing was removed." if dry_run else f"{total} freed.")


def _seeds(ledger: Ledger) -> tuple[list[Seed], bool]:
    """The seeds that surely nobody trains, and whether there are others."""
    states = [(config.id, seed, state) for config in ledger.read().configs for seed, state in config.seeds.items()]
    idle = [
        Seed(ledger.checkpoints(config, seed), done=state.result is not None)
        for config, seed, state in states
        if state.result or all(life.ended for life in state.attempts[-1:])
    ]
    return idle, len(idle) < len(states)


def _of_seeds(seeds: list[Seed]) -> Iterator[Garbage]:
    """What `tidy` removes of their checkpoints."""
    for folder, done in seeds:
        files, commits = folder.sizes(), committed(folder)
        partial = set(surplus(files, commits))
        for path in surplus(files, to_keep(commits, done=done)):
            kind = FINISHED if done and path.split("/")[1] == STATE else REPLACED
            yield Garbage(PARTIAL if path in partial else kind, path, files[path])


def _drafts(ledger: Ledger) -> Iterator[Garbage]:
    """Outside checkpoints, where they are a part of partial ones."""
    drafts = ledger.objects.drafts(before=datetime.now(UTC) - DRAFT_AGE)
    sizes = ledger.objects.sizes() if drafts else {}
    yield from (Garbage(DRAFTS, path, sizes[path]) for path in drafts if path in sizes and "/step_" not in path)


def _sessions(ledger: Ledger) -> Iterator[Garbage]:
    for folder in SESSION_FOLDERS:
        yield from (Garbage(SESSIONS, path, size) for path, size in ledger.objects.sizes(folder).items())


def _remove(ledger: Ledger, seeds: list[Seed], found: list[Garbage]) -> None:
    for folder, done in seeds:
        tidy(folder, done=done)
    for item in found:
        if item.kind == DRAFTS:
            ledger.objects.delete(item.path)
    for folder in {item.path.partition("/")[0] for item in found if item.kind == SESSIONS}:
        ledger.objects.delete_folder(folder)


def _table(found: list[Garbage]) -> Table:
    table, sizes = Table(), defaultdict[str, list[int]](list)
    table.add_column("kind")
    table.add_column("files", justify="right")
    table.add_column("size", justify="right")
    for item in found:
        sizes[item.kind].append(item.bytes)
    for kind in (PARTIAL, REPLACED, FINISHED, DRAFTS, SESSIONS):
        table.add_row(kind, str(len(sizes[kind])), bytes_text(sum(sizes[kind])))
    return table

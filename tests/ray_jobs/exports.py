"""What the tests of `par export` share: sweeps to export, the command as a user types it, and what Optuna reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import InMemoryStorage, RDBStorage
from typer.testing import CliRunner

from par.ledger.current_space import current_space
from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, SeedResult, SweepRecord
from ray_jobs.cli import app
from ray_jobs.console import BAD_INPUT
from tests.ray_jobs.projected import DIVERGED, fail, finish, ids, new_ledger

HEAD = "question: which?\nfixed: {task.name: swap-s3, task.rendering: compact, task.train_depth: 4}\n"
RATES = "search: {optim.lr: {float: [1.0e-4, 1.0e-2], log: true}}\n"
ONE, OTHER = "tiny-qwen2", "tiny-qwen3"
BEST, CLIMBING, LOW = (0.9, 0.7, 0.8, 0.6), (0.0, 0.2, 0.4), (0.1,)
"""Scores of the seeds of a race in which nothing is lost."""


def new_sweep(storage: Path, rest: str, *proposals: tuple[str, dict[str, Any]]) -> Ledger:
    """The sweep of a space with these proposals, each a backbone with what was searched; no seed has begun."""
    ledger = Ledger.create(storage, "demo", SweepRecord(space=HEAD + rest, space_path="demo.yaml"))
    space = current_space(ledger)
    for number, (backbone, suggested) in enumerate(proposals):
        run = space.run_config(backbone, suggested, 0)
        ledger.add_config(ConfigRecord.of(run, number=number, suggested=suggested))
    return ledger


def scored(score: float, **more: float) -> SeedResult:
    return SeedResult(metrics={"G": 4.0, "censored": 0.0, "extrapolation_auc": score, **more})


def unfinished(storage: Path) -> Ledger:
    """The first configuration has both seeds, one of them diverged; of the other one a seed failed, one never began."""
    ledger = new_ledger(storage)
    first, second = ids(ledger)
    finish(ledger, first, 0, scored(0.5))
    finish(ledger, first, 1, DIVERGED)
    fail(ledger, second, 0, "HANG")
    return ledger


def half_way(storage: Path) -> Ledger:
    """A race of three configurations over 1, 2 and 4 seeds: one has all of them and one of two fresh ones, another has
    climbed to four seeds and lacks the last of them, the third has one."""
    race = f"backbones: [{ONE}]\n{RATES}configurations: 3\nseeds: [1, 2, 4]\nconfirm: 1\nfresh_seeds: 2\n"
    ledger = new_sweep(storage, race, *((ONE, {"optim.lr": rate}) for rate in (1e-4, 1e-3, 1e-2)))
    for config, scores in zip(ids(ledger), (BEST, CLIMBING, LOW), strict=True):
        for seed, score in enumerate(scores):
            finish(ledger, config, seed, scored(score))
    finish(ledger, ids(ledger)[0], 1000, scored(0.5))
    return ledger


def export(ledger: Ledger, *arguments: str):
    return CliRunner().invoke(app, ["export", "demo", "--storage", ledger.storage, *arguments])


def refused(ledger: Ledger, *arguments: str) -> str:
    """What the command says, in one line, where it ends with exit code 2."""
    done = export(ledger, *arguments)
    assert (done.exit_code, done.stderr.count("\n"), done.stdout) == (BAD_INPUT, 1, "")
    return done.stderr


@contextmanager
def opened(url: str) -> Iterator[RDBStorage]:
    """A database as Optuna sees it."""
    storage = RDBStorage(url)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def exported(ledger: Ledger, file: Path) -> dict[str, optuna.Study]:
    """The studies, with all that they hold, of a database that is written anew, by name."""
    url = f"sqlite:///{file}"
    done = export(ledger, "--optuna", url)
    assert done.exit_code == 0, done.output
    with opened(url) as database:
        copies = InMemoryStorage()
        for name in optuna.get_all_study_names(database):
            optuna.copy_study(from_study_name=name, from_storage=database, to_storage=copies)
        return {name: optuna.load_study(study_name=name, storage=copies) for name in optuna.get_all_study_names(copies)}


def trials_of(ledger: Ledger, file: Path) -> list[optuna.trial.FrozenTrial]:
    [study] = exported(ledger, file).values()
    return study.trials


def files_below(folder: Path) -> dict[Path, bytes]:
    """Every file with its bytes."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

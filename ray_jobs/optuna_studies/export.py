"""A sweep as Optuna studies in a database, one for each backbone: what the search knows, for Optuna's own tools."""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import OptunaError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from par.errors import ConfigError
from par.ledger.state import ConfigState, SweepState
from par.objects import public
from par.race.retry import fates
from par.race.status import last_word
from par.race.verdicts import as_judged
from par.report.export import identity
from par.space.space import Space
from ray_jobs.optuna_studies.study import distributions, replayed

_OWN_TABLES = {"studies", "trials", "version_info"}
"""What every database of Optuna has, of whatever version."""


def write_studies(url: str, sweep: str, space: Space, state: SweepState, *, driven: bool) -> list[str]:
    """Write the study of each backbone, a trial for each of its configurations in order of number; return their names.

    A configuration that was judged is COMPLETE with its score over the most seeds; its intermediate values are the
    scores of all its rungs, by number of seeds. One without a full rung is RUNNING while a driver lives that goes on
    with it, and otherwise FAIL: no score of part of a rung is ever told.

    Raises ConfigError for a database that cannot be used, or that has one of the studies; then nothing is written.
    """
    names = {backbone: f"{sweep}/{backbone}" for backbone in space.backbones}
    judged, domains = as_judged(state, space), distributions(space)
    with _database(url) as database:
        _refuse_existing(url, {study.study_name for study in database.get_all_studies()}, names.values())
        for backbone, name in names.items():
            study = optuna.create_study(storage=database, study_name=name, direction="maximize")
            for key, value in {**identity(sweep, space), "par.backbone": backbone, "par.score": space.score}.items():
                study.set_user_attr(key, value)
            configs = [config for config in judged.configs if config.record.backbone == backbone]
            study.add_trials(_trial(config, space.score, domains, driven=driven) for config in configs)
    return list(names.values())


@contextmanager
def _database(url: str) -> Iterator[RDBStorage]:
    """Optuna's view of a database that is empty or its own; what one answers that cannot be used is a ConfigError."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        tables = inspect(create_engine(url, poolclass=NullPool)).get_table_names()
        if tables and not _OWN_TABLES.issubset(tables):
            raise ConfigError(f"--optuna {public(url)} holds other data than Optuna's: name another database")
        database = RDBStorage(url)
        try:
            yield database
        finally:
            database.remove_session()
            database.engine.dispose()
    except (SQLAlchemyError, OptunaError, ImportError, RuntimeError) as fault:
        why = str(fault.__cause__ or fault).splitlines()[0]
        raise ConfigError(
            f"--optuna {public(url)} cannot be used: {why}; name another database, e.g. sqlite:///studies.db"
        ) from fault


def _refuse_existing(url: str, there: Container[str], names: Iterable[str]) -> None:
    for name in names:
        if name in there:
            remove = f"optuna delete-study --storage {public(url)} --study-name {name}"
            raise ConfigError(
                f"--optuna {public(url)} has a study {name}: name another database, or remove it with `{remove}`"
            )


def _trial(config: ConfigState, score: str, domains: Mapping[str, BaseDistribution], *, driven: bool) -> FrozenTrial:
    goes_on = driven and not fates(config)
    return replayed(
        domains,
        config.record.suggested,
        config.verdict and config.verdict.score,
        unscored=TrialState.RUNNING if goes_on else TrialState.FAIL,
        intermediate_values={len(rung.seeds): rung.score for rung in config.verdicts if rung.stage == "search"},
        user_attrs=_attributes(config, score),
    )


def _attributes(config: ConfigState, score: str) -> dict[str, Any]:
    """The configuration's id, the score of each seed with a result, kinds of failure by seed, and the confirmation."""
    confirmation = config.confirmation
    return {
        "configuration": config.id,
        "scores": {str(seed): result.score(score) for seed, result in config.results.items()},
        "failures": {str(seed): kind for seed in config.seeds if (kind := last_word(config, seed)[0])},
        "confirmation": confirmation and {"score": confirmation.score, "seeds": list(confirmation.seeds)},
    }

"""Optuna proposes configurations: one study per backbone, in memory, rebuilt from the ledger."""

import json
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from par.errors import SpaceError
from par.ledger.records import ConfigRecord
from par.ledger.state import ConfigState
from par.space.domains import Choice, Domain, FloatRange, IntRange
from par.space.space import Space
from ray_jobs.optuna_studies.warm_start import Point

DUPLICATES = 50
"""Known proposals in a row after which random ones are tried, and after as many of these whatever can be listed."""
ELSEWHERE = 2**31
"""Distance of the seed of these random ones from that of the sampler."""


def distribution(domain: Domain) -> BaseDistribution:
    """The domain as Optuna sees it."""
    match domain:
        case Choice():
            return CategoricalDistribution([_label(value) for value in domain.values])
        case FloatRange():
            return FloatDistribution(domain.low, domain.high, log=domain.log)
        case IntRange():
            return IntDistribution(domain.low, domain.high, log=domain.log, step=domain.step)


def _label(value: Any) -> Any:
    """A value as Optuna takes it: a list, such as a split, becomes its JSON text."""
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _value(domain: Domain, label: Any) -> Any:
    """The domain's own value behind a label."""
    if isinstance(domain, Choice):
        return next(value for value in domain.values if _label(value) == label and type(_label(value)) is type(label))
    return label


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """What is searched, as Optuna sees it."""
    return {key: distribution(domain) for key, domain in space.search.items()}


def replayed(
    domains: Mapping[str, BaseDistribution],
    suggested: Mapping[str, Any],
    score: float | None,
    unscored: TrialState = TrialState.RUNNING,
    **more: Any,
) -> FrozenTrial:
    """The trial of a known configuration: complete with its score, or else ``unscored``; ``more`` is as in Optuna."""
    labels = {key: _label(value) for key, value in suggested.items()}
    return optuna.trial.create_trial(
        state=unscored if score is None else TrialState.COMPLETE,
        params=labels,
        distributions={key: domains[key] for key in labels},
        value=score,
        **more,
    )


class BackboneStudy:
    """One Optuna study in memory, rebuilt from the ledger: verdicts are finished trials, open configurations run.

    Points of another sweep come before them, as finished trials that are nobody's configuration.
    Optuna takes a trial's value once. Where more seeds have changed a score, the study is built anew.
    """

    def __init__(self, space: Space, backbone: str, known: Sequence[ConfigState], points: Sequence[Point] = ()) -> None:
        self.space, self.backbone = space, backbone
        self.domains = distributions(space)
        self.trials: dict[str, int] = {}
        """Numbers of the trials that are not told yet, by configuration."""
        self.grid = iter(space.grid() if space.sampler == "grid" else ())
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        past = sum(1 + len(config.results) for config in known)
        self.study = optuna.create_study(direction="maximize", sampler=self._sampler(past))
        for point in points:
            self.study.add_trial(replayed(self.domains, point.suggested, point.score))
        for number, config in enumerate(known, start=len(points)):
            if config.verdict is None:
                self.trials[config.id] = number
            score = config.verdict and config.verdict.score
            self.study.add_trial(replayed(self.domains, config.record.suggested, score))

    def propose(self, number: int, known: Container[str], climbing: Container[str] = ()) -> ConfigRecord | None:
        """A configuration that is not known yet, or one of those ``climbing``, which may have more seeds.

        None once the space has no further one to offer.
        """
        if self.space.sampler == "grid":
            return self._next_of(self.grid, number, known)
        chosen = self.study.sampler
        for repeated in range(2 * DUPLICATES):
            if repeated == DUPLICATES:  # the sampler insists on what it knows: look elsewhere
                self.study.sampler = optuna.samplers.RandomSampler(seed=self.space.sampler_seed + number + ELSEWHERE)
            trial, suggested = self._walk()
            record = self._record(suggested, number)
            if record.id not in known:
                self.study.sampler = chosen
                self.trials[record.id] = trial.number
                return record
            self.study.tell(trial, state=TrialState.FAIL)
            if record.id in climbing:
                self.study.sampler = chosen
                return record
        return self._next_of(self._listed(), number, known)

    def tell(self, config: str, score: float) -> bool:
        """Report a configuration's score; False if it had another one, and a study that learns is to be built anew."""
        if config not in self.trials:
            return self.space.sampler != "tpe"
        self.study.tell(self.trials.pop(config), score)
        return True

    def _listed(self) -> list[dict[str, Any]]:
        """All that the space has, none where that cannot be listed: then the draws that found nothing new must do."""
        try:
            return self.space.grid()
        except SpaceError:
            return []

    def _next_of(self, rows: Iterable[dict[str, Any]], number: int, known: Container[str]) -> ConfigRecord | None:
        records = (self._record(suggested, number) for suggested in rows)
        return next((record for record in records if record.id not in known), None)

    def _record(self, suggested: Mapping[str, Any], number: int) -> ConfigRecord:
        run = self.space.run_config(self.backbone, suggested, 0)
        return ConfigRecord.of(run, number=number, suggested=suggested)

    def _sampler(self, past: int) -> optuna.samplers.BaseSampler:
        """The sampler's seed advances with configurations and results: a study built anew repeats no suggestion."""
        seed = self.space.sampler_seed + past
        if self.space.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(multivariate=True, group=True, constant_liar=True, seed=seed)

    def _walk(self) -> tuple[Trial, dict[str, Any]]:
        """Ask for one trial; searched keys are suggested parents first, inactive ones not at all."""
        trial, suggested = self.study.ask(), dict[str, Any]()
        for key, domain in self.space.ordered():
            if self.space.is_active(key, suggested):
                suggested[key] = _value(domain, trial._suggest(key, self.domains[key]))
        return trial, suggested

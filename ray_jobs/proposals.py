"""What Tune runs next: the ledger decides on seeds, Optuna proposes configurations, one study per backbone."""

import json
import warnings
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, Trial, TrialState
from ray.tune.search import Searcher

from par import metrics as m
from par.errors import DiskFullError
from par.study.domains import Choice, Domain, FloatRange, IntRange
from par.study.racing import Finished, NewConfiguration, RunSeed, Standing, Wait, next_run, verdict_due
from par.study.records import ConfigRecord, ConfigState, Verdict
from par.study.space import Space
from par.study.statistics.location import summary
from par.study.statistics.scores import lower_bound
from par.study.statistics.success import SUCCESS, success_rate
from ray_jobs.lives import Lives
from ray_jobs.recovery import GiveUp, StartAgain
from ray_jobs.ticket import Ticket

DUPLICATES = 50
"""Known proposals in a row after which random ones are tried; after as many of these the space is exhausted."""


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


def _labels(suggested: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _label(value) for key, value in suggested.items()}


def _value(domain: Domain, label: Any) -> Any:
    """The domain's own value behind a label."""
    if isinstance(domain, Choice):
        return next(value for value in domain.values if _label(value) == label and type(_label(value)) is type(label))
    return label


class BackboneStudy:
    """One Optuna study in memory, rebuilt from the ledger: verdicts are finished trials, open configurations run."""

    def __init__(self, space: Space, backbone: str, known: tuple[ConfigState, ...]) -> None:
        self.space, self.backbone = space, backbone
        self.domains = {key: distribution(domain) for key, domain in space.search.items()}
        self.trials: dict[str, int] = {}
        """Numbers of the trials that are not told yet, by configuration."""
        self.grid = iter(space.grid() if space.sampler == "grid" else ())
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(direction="maximize", sampler=self._sampler(len(known)))
        for number, config in enumerate(known):
            if config.verdict is None:
                self.trials[config.id] = number
            self.study.add_trial(self._replayed(config))

    def propose(self, number: int, known: Container[str]) -> ConfigRecord | None:
        """A configuration that is not known yet; None once the space has no further one to offer."""
        if self.space.sampler == "grid":
            return self._next_of_grid(number, known)
        chosen = self.study.sampler
        for repeated in range(2 * DUPLICATES):
            if repeated == DUPLICATES:  # the sampler insists on what it knows: look elsewhere
                self.study.sampler = optuna.samplers.RandomSampler(seed=self.space.sampler_seed + number)
            trial, suggested = self._walk()
            run = self.space.run_config(self.backbone, suggested, 0)
            record = ConfigRecord.of(run, number=number, suggested=suggested)
            if record.id not in known:
                self.study.sampler = chosen
                self.trials[record.id] = trial.number
                return record
            self.study.tell(trial, state=TrialState.FAIL)
        return None

    def tell(self, config: str, score: float) -> None:
        """Report a configuration's score, once."""
        if config in self.trials:
            self.study.tell(self.trials.pop(config), score)

    def _next_of_grid(self, number: int, known: Container[str]) -> ConfigRecord | None:
        for suggested in self.grid:
            run = self.space.run_config(self.backbone, suggested, 0)
            record = ConfigRecord.of(run, number=number, suggested=suggested)
            if record.id not in known:
                return record
        return None

    def _sampler(self, past: int) -> optuna.samplers.BaseSampler:
        """The sampler's seed advances with the number of configurations: a resume repeats no suggestion."""
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

    def _replayed(self, config: ConfigState) -> FrozenTrial:
        """The trial of a known configuration: complete with its score, or running until it is told."""
        labels = _labels(config.record.suggested)
        return optuna.trial.create_trial(
            state=TrialState.RUNNING if config.verdict is None else TrialState.COMPLETE,
            params=labels,
            distributions={key: self.domains[key] for key in labels},
            value=config.verdict and config.verdict.score,
        )


@dataclass(frozen=True, slots=True)
class Running:
    """A seed that a trial runs, and how many attempts it had before."""

    config: str
    seed: int
    attempts: int
    devices: float
    since: float


class LedgerSearch(Searcher):
    """Tune's view of the ledger: every suggestion is one seed of one configuration.

    One driver drives a sweep: it reads the ledger once, and again only the configuration whose trial has ended.
    """

    def __init__(
        self,
        lives: Lives,
        space: Space,
        ticket: Callable[[ConfigRecord, int], Mapping[str, Any]],
        known: tuple[ConfigState, ...],
    ) -> None:
        super().__init__()
        self.ledger, self.lives, self.space, self.ticket = lives.ledger, lives, space, ticket
        self.running: dict[str, Running] = {}
        self.exhausted: set[str] = set()
        self.stopping = False
        """Whether nothing more is started."""
        self.standing = Standing(space.seed_numbers, known)
        self.studies = {
            backbone: BackboneStudy(space, backbone, tuple(c for c in known if c.record.backbone == backbone))
            for backbone in space.backbones
        }
        for config in known:
            self._judge(config)

    def suggest(self, trial_id: str) -> Any:
        """The next seed to run as a dictionary, None while there is nothing to start, FINISHED when all is done."""
        if self.stopping:
            return None if self.running else Searcher.FINISHED
        while isinstance(decision := self._decide(), NewConfiguration):
            self._propose(decision.backbone)
        if isinstance(decision, RunSeed):
            config = self.standing.configs[decision.config]
            before = len(config.attempts(decision.seed))
            ticket = dict(self.ticket(config.record, decision.seed))
            devices = Ticket.of_trial({"ticket": ticket}).devices
            self.running[trial_id] = Running(config.id, decision.seed, before, devices, monotonic())
            return {"ticket": ticket}
        return Searcher.FINISHED if isinstance(decision, Finished) or not self.running else None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Settle a trial that ended in order; for one that did not, the driver knows the error and settles it."""
        if not error:
            self.settle(trial_id)

    def settle(self, trial_id: str, fault: BaseException | None = None) -> StartAgain | GiveUp | None:
        """Take note that a trial has ended, of ``fault`` if not in order; None if its seed has a result.

        Otherwise the seed is suggested again, or given up, as it is where a full disk takes no record of the end.
        """
        run = self.running.pop(trial_id)
        try:
            return self._settled(run, fault)
        except DiskFullError:
            return self.lives.without_room(run.config, run.seed)

    def _settled(self, run: Running, fault: BaseException | None) -> StartAgain | GiveUp | None:
        if fault is not None:
            self.lives.close(run.config, run.seed, fault, run.attempts)
        state = self.ledger.read_config(run.config)
        self.lives.count(state.attempts(run.seed)[run.attempts :])
        self.standing.put(state)
        self._judge(state)
        return None if run.seed in state.results else self.lives.judge(state, run.seed)

    def device_hours(self) -> float:
        """What all attempts took so far, those of former drivers and those that run included."""
        running = sum(run.devices * (monotonic() - run.since) for run in self.running.values())
        return (self.lives.device_seconds + running) / 3600

    def complete(self) -> bool:
        """Whether every wanted seed has a result."""
        standing = Standing(self.space.seed_numbers, self.ledger.read().configs)
        return isinstance(next_run(standing, configurations=self._totals(), running=()), Finished)

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its searcher, and the ledger is the only state that is ever read again."""
        return {}

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing, for the same reason."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing, for the same reason."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: a new searcher reads the ledger."""

    def _decide(self) -> RunSeed | NewConfiguration | Wait | Finished:
        taken = {*((run.config, run.seed) for run in self.running.values()), *self.lives.given_up}
        return next_run(self.standing, configurations=self._totals(), running=taken)

    def _totals(self) -> dict[str, int]:
        """Configurations of each backbone, those of an exhausted space being what is there."""
        return shares(self.space) | {backbone: self.standing.known[backbone] for backbone in self.exhausted}

    def _propose(self, backbone: str) -> None:
        known = self.standing.configs
        record = self.studies[backbone].propose(len(known), known)
        if record is None:
            self.exhausted.add(backbone)
        else:
            self.ledger.add_config(record)
            self.standing.put(ConfigState(record=record, seeds={}, verdict=None))

    def _judge(self, config: ConfigState) -> None:
        """Write the verdict once all seeds have a result, and tell the study."""
        if verdict_due(config, self.space.seed_numbers):
            verdict = judge(config, self.space)
            self.ledger.give_verdict(config.id, verdict)
            self.studies[config.record.backbone].tell(config.id, verdict.score)


def judge(config: ConfigState, space: Space) -> Verdict:
    """The score of a configuration over its seeds, failures counted as 0, and the aggregates beside it."""
    results = [config.results[seed] for seed in space.seed_numbers]
    factors = [result.score(m.G.name) for result in results]
    over_seeds, success = summary(factors), success_rate(factors, SUCCESS)
    return Verdict(
        score=lower_bound([result.score(space.score) for result in results]),
        seeds=tuple(space.seed_numbers),
        metrics=m.by_name(
            {
                m.G_MEAN: over_seeds.mean,
                m.G_MIN: over_seeds.worst,
                m.SUCCESS_RATE: success.rate,
                m.SUCCESS_LOW: success.low,
                m.SUCCESS_HIGH: success.high,
                m.N_SEEDS: len(results),
                m.N_FAILED: sum(result.failure is not None for result in results),
                m.G_SD: over_seeds.sd,
            }
        ),
    )


def shares(space: Space) -> dict[str, int]:
    """Configurations of each backbone: equal shares, the remainder to the first ones."""
    share, more = divmod(space.configurations, len(space.backbones))
    return {backbone: share + (place < more) for place, backbone in enumerate(space.backbones)}

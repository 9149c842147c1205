"""What Tune runs next: the race decides on seeds, Optuna proposes configurations, the ledger remembers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from ray.tune.search import Searcher

from par.errors import DiskFullError
from par.ledger.current_space import write_exhausted
from par.ledger.records import ConfigRecord
from par.ledger.state import ConfigState
from par.race.racing import Finished, NewConfiguration, Race, Run, RunSeed, Wait, next_run
from par.race.retry import GiveUp, StartAgain
from par.race.status import is_complete
from par.race.verdicts import judge
from par.space.space import Space
from ray_jobs.driver.attempts import Attempts
from ray_jobs.driver.stopping import NotPickled
from ray_jobs.optuna_studies.study import BackboneStudy
from ray_jobs.optuna_studies.warm_start import recorded_points
from ray_jobs.trial.spec import TrialSpec


@dataclass(frozen=True, slots=True)
class Running:
    """A seed that a trial runs, and how many attempts it had before."""

    config: str
    seed: int
    attempts: int
    devices: float
    since: float


class LedgerSearch(NotPickled, Searcher):
    """Tune's view of the ledger: every suggestion is one seed of one configuration.

    One driver drives a sweep: it reads the ledger once, and again only the configuration whose trial has ended.
    """

    def __init__(
        self,
        attempts: Attempts,
        space: Space,
        spec: Callable[[ConfigRecord, int], Mapping[str, Any]],
        known: tuple[ConfigState, ...],
    ) -> None:
        super().__init__()
        self.ledger, self.attempts, self.space, self.spec = attempts.ledger, attempts, space, spec
        self.running: dict[str, Running] = {}
        self.exhausted: set[str] = set()
        self.stopping = False
        """Whether nothing more is started."""
        self.race = Race(space.stages, space.score, known)
        self.studies = {backbone: self._study(backbone) for backbone in space.backbones}
        self.outdated: set[str] = set()
        """Backbones whose study has a score that more seeds have changed."""
        for config in known:
            self._give_verdicts(config.id)

    def suggest(self, trial_id: str) -> Any:
        """The next seed to run as a dictionary, None while there is nothing to start, FINISHED when all is done."""
        if self.stopping:
            return None if self.running else Searcher.FINISHED
        while isinstance(decision := self._decide(), NewConfiguration):
            self._propose(decision.backbone)
        if isinstance(decision, RunSeed):
            self.race.enter(decision.config, decision.seed)
            config = self.race.configs[decision.config]
            before = len(config.attempts(decision.seed))
            spec = dict(self.spec(config.record, decision.seed))
            devices = TrialSpec.of_trial({"spec": spec}).devices
            self.running[trial_id] = Running(config.id, decision.seed, before, devices, monotonic())
            return {"spec": spec}
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
            done = run.seed in self.race.configs[run.config].results
            return None if done else self.attempts.without_room(run.config, run.seed)

    def _settled(self, run: Running, fault: BaseException | None) -> StartAgain | GiveUp | None:
        if fault is not None:
            self.attempts.close(run.config, run.seed, fault, run.attempts)
        state = self.ledger.read_config(run.config)
        self.attempts.count(state.attempts(run.seed)[run.attempts :])
        self.race.put(state)
        self._give_verdicts(run.config)
        return None if run.seed in state.results else self.attempts.decide(state, run.seed)

    def given_up(self) -> dict[Run, GiveUp]:
        """Why seeds wait for a person, of those that the race has come to."""
        return {run: fate for run, fate in self.attempts.given_up.items() if run[1] in self.race.seeds_of(run[0])}

    def device_hours(self) -> float:
        """What all attempts took so far, those of former drivers and those that run included."""
        running = sum(run.devices * (monotonic() - run.since) for run in self.running.values())
        return (self.attempts.device_seconds + running) / 3600

    def complete(self) -> bool:
        """Whether every seed that the sweep is to have has a result."""
        return is_complete(self.ledger.read(), self.space)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: the ledger is the only state that is ever read again."""

    def _decide(self) -> RunSeed | NewConfiguration | Wait | Finished:
        running = [(run.config, run.seed) for run in self.running.values()]
        return next_run(
            self.race, configurations=self.space.shares(), running=running, given_up=self.attempts.given_up.keys()
        )

    def _propose(self, backbone: str) -> None:
        """Add a configuration; one that is proposed again gets more seeds instead, if it may climb."""
        if backbone in self.outdated:
            self.studies[backbone] = self._study(backbone)
            self.outdated.discard(backbone)
        known = self.race.configs
        climbing = {config: seed for config in known if (seed := self.race.next_seed(config)) is not None}
        record = self.studies[backbone].propose(len(known), known, climbing)
        if record is None:
            self.exhausted.add(backbone)
            self.space = write_exhausted(self.ledger, self.space, backbone, self.race.known[backbone])
        elif record.id in known:
            self.race.enter(record.id, climbing[record.id])
        else:
            self.ledger.add_config(record)
            self.race.put(ConfigState(record=record, seeds={}))

    def _study(self, backbone: str) -> BackboneStudy:
        known = [config for config in self.race.configs.values() if config.record.backbone == backbone]
        return BackboneStudy(self.space, backbone, known, recorded_points(self.ledger, backbone))

    def _give_verdicts(self, config: str) -> None:
        """Write the verdict on every stage that is complete, and tell the study.

        It counts device-hours: while a seed with a result is still running its attempt has no end yet, and its own end
        will bring the verdict.
        """
        state = self.race.configs[config]
        if any(run.config == config and run.seed in state.results for run in self.running.values()):
            return
        for stage, seeds in self.race.due(config):
            verdict = judge(state, stage, seeds, self.space.score)
            self.ledger.give_verdict(config, verdict)
            state = state.judged(verdict)
            study = self.studies[state.record.backbone]
            if stage == "search" and not study.tell(config, verdict.score):
                self.outdated.add(state.record.backbone)
        self.race.put(state)

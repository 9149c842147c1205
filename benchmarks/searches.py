"""Searches that spend trained seeds on a landscape: Ray's own ones, and par's race."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.samplers import RandomSampler
from ray.tune.search import Repeater
from ray.tune.search.optuna import OptunaSearch

from benchmarks.landscape import Landscape, Setting
from par.ledger.records import SeedResult
from par.ledger.state import ConfigState, SeedState
from par.race.racing import NewConfiguration, Race, RunSeed, next_run
from par.race.verdicts import judge, winners
from par.space.space import Space
from ray_jobs.optuna_studies.study import BackboneStudy

SEEDS = 200
"""Trained seeds of each search, as near as a race comes to it."""
RUNNING = 4
"""Seeds that train at once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search chose, what it says that is worth, and where its seeds went."""

    chosen: Setting
    promised: float
    spent: Sequence[tuple[Setting, int]]
    """Configurations, and how many seeds each had."""

    def figures(self, landscape: Landscape) -> tuple[float, float, float, float]:
        """True score of the chosen one, optimism, both as shares of the best true score; share of the seeds that went
        to the best tenth of the configurations that were tried; seeds."""
        true = landscape.true_score(self.chosen)
        scores, seeds = np.array([(landscape.true_score(setting), seeds) for setting, seeds in self.spent]).T
        top = seeds[scores >= np.quantile(scores, 0.9)].sum() / seeds.sum()
        return true / landscape.best, (self.promised - true) / landscape.best, float(top), float(seeds.sum())


def stock(landscape: Landscape, searcher: OptunaSearch, repeat: int) -> Outcome:
    """Ray's own searchers; what they choose is what scored best, each configuration by the mean of its seeds."""
    search, running, scores = Repeater(searcher, repeat=repeat), dict[str, Setting](), dict[Any, list[float]]()
    for number in range(SEEDS // repeat * repeat + RUNNING):
        if number >= RUNNING:
            trial = str(landscape.rng.choice(list(running)))
            setting = running.pop(trial)
            score = landscape.seed(setting)
            scores.setdefault(tuple(setting[key] for key in landscape.centre), []).append(score)
            search.on_trial_complete(trial, {"score": score})
        if number < SEEDS // repeat * repeat:
            running[str(number)] = search.suggest(str(number)) or {}
    means = {values: float(np.mean(seeds)) for values, seeds in scores.items()}
    best = max(means, key=lambda values: means[values])
    named = {values: dict(zip(landscape.centre, values, strict=True)) for values in scores}
    return Outcome(named[best], means[best], [(named[values], len(seeds)) for values, seeds in scores.items()])


def random_search(landscape: Landscape, space: Space) -> Outcome:
    """Every seed another random configuration."""
    sampler = RandomSampler(seed=space.sampler_seed)
    return stock(landscape, OptunaSearch(landscape.distributions, "score", "max", sampler=sampler), 1)


def tpe(landscape: Landscape, space: Space, repeat: int = 1) -> Outcome:
    """TPE, with the settings that par has, told each configuration's mean."""
    sampler = BackboneStudy(space, space.backbones[0], ()).study.sampler
    return stock(landscape, OptunaSearch(landscape.distributions, "score", "max", sampler=sampler), repeat)


def repeated(landscape: Landscape, space: Space) -> Outcome:
    """TPE with Ray's Repeater, three seeds of each configuration."""
    return tpe(landscape, space, repeat=3)


def race(landscape: Landscape, space: Space) -> Outcome:
    """par: TPE proposes, configurations race over seeds, the best are confirmed on fresh ones."""
    [backbone] = space.backbones
    racing, running = Race(space.stages, space.score), set[tuple[str, int]]()
    while True:
        decision = next_run(racing, configurations=space.shares(), running=running)
        if isinstance(decision, NewConfiguration):
            known = list(racing.configs.values())
            record = BackboneStudy(space, backbone, known).propose(len(known), racing.configs)
            if record is None:
                raise AssertionError("a space without steps has no end")
            racing.put(ConfigState(record, {}))
        elif isinstance(decision, RunSeed) and len(running) < RUNNING:
            racing.enter(decision.config, decision.seed)
            running.add((decision.config, decision.seed))
        elif running:
            run = sorted(running)[landscape.rng.integers(len(running))]
            running.remove(run)
            _finish(racing, run, landscape.seed(racing.configs[run[0]].record.suggested))
        else:
            return _outcome(racing)


def _finish(racing: Race, run: tuple[str, int], score: float) -> None:
    """Give a seed its result, and its configuration the verdicts that are due."""
    state = racing.configs[run[0]]
    metrics = {racing.score: score, "G": score}
    seeds = {**state.seeds, run[1]: SeedState((), SeedResult(metrics=metrics))}
    state = ConfigState(state.record, seeds, state.verdicts)
    racing.put(state)
    for stage, seeds in racing.due(run[0]):
        state = state.judged(judge(state, stage, seeds, racing.score))
    racing.put(state)


def _outcome(racing: Race) -> Outcome:
    [winner] = winners(racing)
    spent = [(state.record.suggested, len(state.results)) for state in racing.configs.values()]
    return Outcome(winner.config.record.suggested, winner.score, spent)


SEARCHES: dict[str, Callable[[Landscape, Space], Outcome]] = {
    "random, one seed": random_search,
    "TPE, one seed": tpe,
    "TPE, Repeater of 3": repeated,
    "par: race, confirmed": race,
}

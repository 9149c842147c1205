"""What the search is told while configurations race over seeds on several devices."""

import random
from collections.abc import Iterator
from zlib import crc32

import pytest
from optuna.trial import FrozenTrial
from ray.tune.search import Searcher

from par.ledger.current_space import current_space
from par.ledger.ledger import Ledger
from par.ledger.records import SeedResult
from par.ledger.state import ConfigState
from par.metrics import ON_THE_WAY
from par.space.space import Space
from par.statistics.scores import lower_bound
from ray_jobs.driver.searcher import LedgerSearch
from ray_jobs.driver.stopping import GraceOver, Stopping
from tests.ray_jobs.exports import ONE, RATES, new_sweep
from tests.ray_jobs.searches import begin_search

RACE = f"backbones: [{ONE}]\n{RATES}configurations: 14\nseeds: [2, 3, 5]\nconfirm: 1\nfresh_seeds: 2\n"
DEVICES = 3


def by_chance(config: str, seed: int) -> SeedResult:
    """One seed in eight fails, the others score anything, always the same."""
    drawn = crc32(f"{config} {seed}".encode())
    if drawn % 8 == 0:
        return SeedResult(metrics={"G": 0.0}, failure="NUMERIC")
    return SeedResult(metrics={"G": 1.0, "censored": 0.0, "extrapolation_auc": drawn % 1009 / 1009})


def race(searcher: LedgerSearch, ledger: Ledger, chance: random.Random) -> Iterator[bool]:
    """Play Tune with DEVICES devices, whose trials end in any order; after each event say whether it was a proposal."""
    running: dict[str, tuple[str, int]] = {}
    for number in range(1000):
        known = len(ledger.read().configs)
        suggestion = searcher.suggest(f"trial-{number}") if len(running) < DEVICES else None
        if suggestion == Searcher.FINISHED:
            return
        if suggestion:
            running[f"trial-{number}"] = suggestion["spec"]["config"], suggestion["spec"]["seed"]
        else:
            ended = chance.choice(sorted(running))
            run = running.pop(ended)
            ledger.finish(*run, by_chance(*run))
            searcher.on_trial_complete(ended)
        yield len(ledger.read().configs) > known


def full_rungs(config: ConfigState, space: Space) -> list[float]:
    """The scores of a configuration over the rungs that have all their seeds, lowest rung first."""
    scores = {seed: result.score(space.score) for seed, result in config.results.items()}
    rungs = [space.stages.rung(level) for level in range(len(space.stages.rungs))]
    return [lower_bound([scores[seed] for seed in rung]) for rung in rungs if scores.keys() >= set(rung)]


def trial_of(searcher: LedgerSearch, config: ConfigState) -> FrozenTrial:
    [trial] = [each for each in searcher.studies[ONE].study.trials if each.params == config.record.suggested]
    return trial


def is_between_rungs(config: ConfigState, space: Space) -> bool:
    """Whether it has a full rung, and seeds of the next one."""
    searched = len(config.results.keys() & set(space.stages.search_seeds))
    return searched > space.stages.rungs[0] and searched not in space.stages.rungs


@pytest.mark.parametrize("order", range(3))
def test_x5_the_score_of_part_of_a_rung_is_never_told(tmp_path, order):
    """A configuration runs for TPE until its first rung is full, and is complete from then on, however low it stays:
    its value is its score over a full rung, the last one whenever TPE proposes, and it is never pruned (X5)."""
    ledger = new_sweep(tmp_path, RACE)
    searcher = begin_search(ledger, space := current_space(ledger))
    between = 0
    for proposed in race(searcher, ledger, random.Random(order)):
        for config in ledger.read().configs:
            trial, full = trial_of(searcher, config), full_rungs(config, space)
            assert trial.state.name == ("COMPLETE" if full else "RUNNING")
            assert trial.value in ((full[-1:] if proposed else full) or [None])
            between += is_between_rungs(config, space)
    ends = [full_rungs(config, space) for config in ledger.read().configs]
    assert (between > 0, {len(full) for full in ends}) == (True, {1, 2, 3})
    again = begin_search(ledger, space)
    told = [(trial.state.name, trial.value) for trial in again.studies[ONE].study.trials]
    assert told == [("COMPLETE", full[-1]) for full in ends]


def test_x3_a_late_bloomer_is_trained_to_its_end(tmp_path):
    """Stretch comes last in training, so a good seed may look bad until then: nothing that a seed reports on the way
    ends it, and by its result alone its configuration climbs before one that looked good all the time (X3)."""
    ledger = new_sweep(tmp_path, RACE.replace("14", "2").replace("[2, 3, 5]", "[1, 2]"))
    searcher, stopper = begin_search(ledger, current_space(ledger)), GraceOver(Stopping(), grace_s=60)
    specs = {name: searcher.suggest(name)["spec"] for name in ("late", "early")}
    for step in range(100):
        for name, accuracy in (("late", float(step >= 70)), ("early", 0.5)):
            report = {"phase": "train", "step": step, ON_THE_WAY.name: accuracy}
            searcher.on_trial_result(name, report)
            assert not stopper(name, report)
    assert not stopper.stop_all()
    for name, score in (("late", 1.0), ("early", 0.5)):
        metrics = {"G": 1.0, "censored": 0.0, "extrapolation_auc": score}
        ledger.finish(specs[name]["config"], specs[name]["seed"], SeedResult(metrics=metrics))
        searcher.on_trial_complete(name)
    assert searcher.suggest("next")["spec"]["config"] == specs["late"]["config"]

"""A simulated sweep whose driver dies at any write, with all its trials, and goes on from the ledger alone."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyarrow.fs import PyFileSystem
from ray.tune.search import Searcher

from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, SeedResult, SweepRecord
from par.objects import Objects
from par.space.space import parse_space
from tests.ledger.ledgers import CountingStore
from tests.ray_jobs.searches import begin_search

SPACE = parse_space(
    """
question: Which?
backbones: [tiny-qwen2, tiny-qwen3]
fixed: {task.name: swap-s3, task.rendering: compact, task.train_depth: 4}
search: {optim.lr: {float: [1.0e-4, 1.0e-2], log: true}}
configurations: 3
seeds: 2
""",
    Path("space.yaml"),
)
FINAL = ("config.json", "result.json", "search-2.json")


class Killed(Exception):
    """The driver's process has died."""


@dataclass
class Death:
    """When the process dies: at a write counted from now, before or after it; never if ``writes`` is None."""

    writes: int | None = None
    after: bool = False

    def is_now(self) -> bool:
        """Count a write; whether it is the one. A process dies once."""
        if self.writes is None:
            return False
        self.writes = self.writes - 1 if self.writes else None
        return self.writes is None


@dataclass(frozen=True, slots=True)
class MortalObjects(Objects):
    """Objects whose writer may die."""

    death: Death

    def put(self, path: str, data: bytes) -> None:
        dies = self.death.is_now()
        if dies and not self.death.after:
            raise Killed
        Objects.put(self, path, data)
        if dies:
            raise Killed


class Sweep:
    """Tune, its trials and their driver, of which nothing but the ledger survives a death."""

    def __init__(self) -> None:
        self.death, self.names = Death(), count()
        objects = MortalObjects(PyFileSystem(CountingStore()), "/bucket/smoke", self.death)
        self.ledger = Ledger("s3://bucket", "smoke", SweepRecord(space=""), objects)
        self.final: dict[str, bytes] = {}
        self.begin()

    def begin(self) -> None:
        """A driver takes the sweep up, again and again until it does not die of it."""
        self.lives: dict[str, Iterator[None]] = {}
        self.running: dict[str, tuple[str, int]] = {}
        try:
            self.search = begin_search(self.ledger, SPACE)
        except Killed:
            self.begin()

    def start(self, outcome: str) -> bool:
        """Start what the search suggests, in a trial that will end so; False once it has nothing more."""
        name = f"trial-{next(self.names)}"
        try:
            suggestion = self.search.suggest(name)
        except Killed:
            self.begin()
            return True
        if isinstance(suggestion, dict):
            run = (suggestion["spec"]["config"], suggestion["spec"]["seed"])
            assert run not in self.running.values()
            assert not self.ledger.objects.exists(f"configs/{run[0]}/seed-{run[1]}/result.json")
            self.running[name], self.lives[name] = run, self.life(*run, outcome)
        return suggestion != Searcher.FINISHED

    def life(self, config: str, seed: int, outcome: str) -> Iterator[None]:
        """One trial, write by write; ``outcome`` is done, NUMERIC (a result, too) or error (none)."""
        attempt = self.ledger.begin_attempt(config, seed, Attempt(node="a"))
        yield
        if outcome != "error":
            metrics = {"G": 1.0, "extrapolation_auc": 0.5 + 0.01 * seed, "censored": 0.0}
            failure = outcome if outcome == "NUMERIC" else None
            self.ledger.finish(config, seed, SeedResult(metrics=metrics, failure=failure))
            yield
        self.ledger.end_attempt(config, seed, replace(attempt, end="2026-01-01T13:00:00+00:00"))

    def advance(self, name: str) -> None:
        """Let a trial write once more; Tune tells the search of its end."""
        try:
            if next(self.lives[name], "ended") == "ended":
                self.search.on_trial_complete(name)
                del self.lives[name], self.running[name]
        except Killed:
            self.begin()

    def drain(self) -> None:
        """Let nobody die, and drivers one after the other go on until one has all results."""
        self.death.writes = None
        for _ in range(3):
            while self.start("done"):
                for name in list(self.lives):
                    self.advance(name)
            if self.search.complete():
                return
            self.begin()
        raise AssertionError("the sweep never came to its end")

    def check(self) -> None:
        """What holds at any time: what is final stays as it is, and the studies know what the ledger knows, once."""
        for path in self.ledger.objects.sizes():
            if path.endswith(FINAL):
                data = self.ledger.objects.get(path)
                assert self.final.setdefault(path, data) == data
        configs = self.ledger.read().configs
        assert Counter(config.record.backbone for config in configs) <= Counter(SPACE.shares())
        for backbone, study in self.search.studies.items():
            verdicts = [c.verdict for c in configs if c.record.backbone == backbone]
            trials = study.study.get_trials(deepcopy=False)
            told = sorted(trial.value for trial in trials if trial.state.name == "COMPLETE")
            assert told == sorted(verdict.score for verdict in verdicts if verdict)
            assert sum(trial.state.name == "RUNNING" for trial in trials) == verdicts.count(None)

    def check_whole(self) -> None:
        """What holds in the end: totals as the space says, each seed with a result, each configuration judged."""
        configs = self.ledger.read().configs
        assert Counter(config.record.backbone for config in configs) == Counter(SPACE.shares())
        assert all(set(config.results) == set(SPACE.stages.search_seeds) for config in configs)
        assert all(config.verdict for config in configs)


class AnyStory(RuleBasedStateMachine):
    """Trials start, write, fail and end in any order, and the driver dies at any of its writes or theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.sweep = Sweep()

    @rule(outcome=st.sampled_from(["done", "done", "NUMERIC", "error"]))
    def start(self, outcome):
        self.sweep.start(outcome)

    @rule(place=st.integers(0, 5))
    def advance(self, place):
        if names := list(self.sweep.lives):
            self.sweep.advance(names[place % len(names)])

    @rule(writes=st.integers(0, 5), after=st.booleans())
    def will_die(self, writes, after):
        self.sweep.death.writes, self.sweep.death.after = writes, after

    @rule()
    def kill(self):
        self.sweep.begin()

    @invariant()
    def nothing_is_lost_or_told_twice(self):
        self.sweep.check()

    def teardown(self):
        self.sweep.drain()
        self.sweep.check()
        self.sweep.check_whole()


AnyStory.TestCase.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
TestAnyStory = AnyStory.TestCase


@pytest.mark.parametrize("after", [False, True])
def test_a_death_at_each_write_in_turn(after):
    """A sweep whose driver dies at its n-th write, for every n, ends as one that never died (R2)."""
    for writes in count():
        sweep = Sweep()
        sweep.death.writes, sweep.death.after = writes, after
        while sweep.start("done"):
            for name in list(sweep.lives):
                if name in sweep.lives:
                    sweep.advance(name)
            sweep.check()
        survived = sweep.death.writes is not None
        sweep.drain()
        sweep.check_whole()
        if survived:
            break
    assert writes == 3 * (1 + 2 * 3 + 1)

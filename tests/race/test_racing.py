import random
from collections import Counter
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.ledger.state import SweepState, snapshot
from par.race.racing import Finished, NewConfiguration, Race, RunSeed, Wait, next_run
from par.space.stages import Stages

totals = st.dictionaries(st.sampled_from(["small", "middle", "large"]), st.integers(0, 4), max_size=3)
races = st.builds(
    Stages,
    rungs=st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True).map(sorted).map(tuple),
    first_seed=st.sampled_from([0, 7]),
    confirmed=st.integers(0, 2),
    fresh=st.integers(1, 3),
)
events = st.lists(st.sampled_from(["start", "complete", "kill", "give up"]), max_size=60)


def alike(seeds: int, first: int = 0) -> Stages:
    """All configurations have the same seeds."""
    return Stages(rungs=(seeds,), first_seed=first, confirmed=0, fresh=1)


class Sweep:
    """Devices that obey the decisions, and a ledger in memory that survives them."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.objects: dict[str, dict] = {}
        self.running: set[tuple[str, int]] = set()
        self.completed: Counter[tuple[str, int]] = Counter()

    @property
    def state(self) -> SweepState:
        return snapshot({}, self.objects)

    def race(self, stages: Stages) -> Race:
        race = Race(stages, "score", self.state.configs)
        for run in sorted(self.running):
            if run[0] in race.configs:
                race.enter(*run)
        return race

    def add(self, backbone: str) -> None:
        number = sum(path.endswith("config.json") for path in self.objects)
        record = {"id": f"{number:08x}", "number": number, "backbone": backbone, "suggested": {}, "run": {}}
        self.objects[f"configs/{number:08x}/config.json"] = record

    def complete(self, run: tuple[str, int], failure: str | None = None) -> None:
        self.running.remove(run)
        self.completed[run] += 1
        metrics = {"score": self.score(*run)}
        self.objects[f"configs/{run[0]}/seed-{run[1]}/result.json"] = {"metrics": metrics, "failure": failure}

    def score(self, config: str, seed: int) -> float:
        """What a seed would score: the worse, the later its configuration."""
        return 1 / (1 + int(config, 16))

    def start(self, configurations: dict[str, int], stages: Stages) -> bool:
        """Ask once and obey; say whether the sweep is finished."""
        if len(self.running) >= self.devices:
            return False
        decision = next_run(self.race(stages), configurations=configurations, running=self.running)
        match decision:
            case RunSeed(config, seed):
                assert (config, seed) not in self.running
                assert not self.completed[config, seed]
                self.running.add((config, seed))
            case NewConfiguration(backbone):
                self.add(backbone)
            case Wait():
                assert self.running
            case Finished():
                assert not self.running
        return isinstance(decision, Finished)

    def drain(self, configurations: dict[str, int], stages: Stages) -> None:
        """Obey until the sweep is finished, completing the oldest run when no device is free or nothing is left."""
        for _ in range(1000):
            before = (len(self.objects), len(self.running))
            if self.start(configurations, stages):
                return
            if (len(self.objects), len(self.running)) == before:
                self.complete(min(self.running))
        raise AssertionError("the sweep never finished")


@given(totals, st.integers(1, 3), st.integers(1, 5), events, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_every_seed_is_run_once(configurations, seeds, devices, story, chance):
    """Any order of completions, failures and kills ends with configurations x seeds results, each completed once."""
    sweep = Sweep(devices)
    for event in story:
        if event == "kill":
            sweep.running.clear()
        elif event == "start" or not sweep.running:
            sweep.start(configurations, alike(seeds))
        else:
            failure = "NUMERIC" if event == "give up" else None
            sweep.complete(chance.choice(sorted(sweep.running)), failure)
    sweep.drain(configurations, alike(seeds))
    assert Counter(c.record.backbone for c in sweep.state.configs) == Counter(configurations)
    assert sweep.completed == Counter((c.id, seed) for c in sweep.state.configs for seed in range(seeds))


@given(totals, st.integers(1, 3), totals, st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_totals_are_not_increments(configurations, seeds, more, more_seeds):
    """A finished sweep resumed with other totals runs the difference to them and never drops what it has."""
    sweep = Sweep(devices=2)
    sweep.drain(configurations, alike(seeds))
    sweep.drain(configurations, alike(seeds))
    assert sum(sweep.completed.values()) == sum(configurations.values()) * seeds
    sweep.drain(more, alike(more_seeds))
    known = {b: max(configurations.get(b, 0), more.get(b, 0)) for b in configurations | more}
    assert Counter(c.record.backbone for c in sweep.state.configs) == Counter(known)
    assert all(set(c.results) >= set(range(more_seeds)) for c in sweep.state.configs)
    assert set(sweep.completed.values()) <= {1}


@given(st.fixed_dictionaries(dict.fromkeys(["small", "middle", "large"], st.integers(0, 4))))
@settings(max_examples=20, deadline=None)
def test_backbones_take_turns(configurations):
    """A new configuration goes to a backbone that has the fewest of those that are short of their total."""
    sweep = Sweep(devices=1)
    for _ in range(sum(configurations.values())):
        known = Counter(c.record.backbone for c in sweep.state.configs)
        running = [(config.id, 0) for config in sweep.state.configs]
        decision = next_run(sweep.race(alike(1)), configurations=configurations, running=running)
        assert isinstance(decision, NewConfiguration)
        short = [known[b] for b, total in configurations.items() if known[b] < total]
        assert known[decision.backbone] == min(short)
        sweep.add(decision.backbone)


@given(events, races, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_race_kept_up_to_date_is_the_one_built_at_once(story, stages, chance):
    """Configurations taken one by one as they come further leave the race that reading all of them gives."""
    sweep, kept = Sweep(devices=3), Race(stages, "score")
    for event in story:
        if event == "start" or not sweep.running:
            sweep.start({"small": 3, "large": 2}, stages)
        else:
            sweep.complete(chance.choice(sorted(sweep.running)), "NUMERIC" if event == "give up" else None)
        for config in sweep.state.configs:
            kept.put(config)
        for run in sweep.running:
            kept.enter(*run)
        whole = sweep.race(stages)
        assert (kept.configs, kept.known, kept.levels) == (whole.configs, whole.known, whole.levels)
        assert (kept.missing, kept.finalists) == (whole.missing, whole.finalists)


@given(st.integers(1, 4), st.integers(1, 3), st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2))))
@settings(max_examples=50)
def test_the_oldest_missing_seed_runs_first(known, seeds, done):
    """Before anything new is proposed, seeds missing from known configurations run in order of number, then seed."""
    sweep = Sweep(devices=1)
    for _ in range(known):
        sweep.add("small")
    for config, seed in done:
        if config < known and seed < seeds:
            sweep.running.add((f"{config:08x}", seed))
            sweep.complete((f"{config:08x}", seed))
    missing = [(f"{c:08x}", s) for c in range(known) for s in range(seeds) if (c, s) not in done]
    for i, (config, seed) in enumerate(missing):
        decision = next_run(sweep.race(alike(seeds)), configurations={"small": 9}, running=missing[:i])
        assert decision == RunSeed(config, seed)
    decision = next_run(sweep.race(alike(seeds)), configurations={"small": 9}, running=missing)
    assert decision == NewConfiguration("small")


def test_seeds_are_those_that_were_asked_for():
    """Seeds that begin at another number than 0 run, and alone decide when the search is told."""
    sweep, stages = Sweep(devices=1), alike(2, first=7)
    sweep.add("small")
    for seed in (7, 8):
        assert not list(sweep.race(stages).due("00000000"))
        assert next_run(sweep.race(stages), configurations={}, running=()) == RunSeed("00000000", seed)
        sweep.running.add(("00000000", seed))
        sweep.complete(("00000000", seed))
    assert list(sweep.race(stages).due("00000000")) == [("search", range(7, 9))]
    assert next_run(sweep.race(stages), configurations={}, running=()) == Finished()


def test_a_run_that_is_no_longer_wanted_is_waited_for():
    """The sweep is not finished while anything runs, even a seed beyond a total that was lowered."""
    race = Sweep(devices=1).race(alike(1))
    assert next_run(race, configurations={}, running={("0000000a", 5)}) == Wait()
    assert next_run(race, configurations={}, running=()) == Finished()


@given(st.sets(st.integers(0, 4)), st.integers(1, 4), st.booleans())
def test_a_verdict_is_due_once_and_only_when_every_seed_is_done(done, seeds, told):
    """The search is told when all wanted seeds have results, failures included, and never a second time."""
    sweep = Sweep(devices=1)
    sweep.add("small")
    for seed in done:
        sweep.running.add(("00000000", seed))
        sweep.complete(("00000000", seed), failure="NUMERIC" if seed % 2 else None)
    if told:
        sweep.objects[f"configs/00000000/search-{seeds}.json"] = {"score": 0.5, "seeds": list(range(seeds))}
    due = list(sweep.race(alike(seeds)).due("00000000"))
    assert bool(due) == (not told and all(seed in done for seed in range(seeds)))


@given(races, totals, st.integers(1, 5), events, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_the_better_half_of_each_rung_climbs(stages, configurations, devices, story, chance):
    """After any completions, failures and kills the better half of those on a rung has the seeds of the next one, no
    seed ran twice, and there are no fewer and no more seeds than the plan says."""
    sweep = Sweep(devices)
    sweep.score = lambda config, seed: crc32(f"{config} {seed}".encode()) % 7 / 7
    for event in story:
        if event == "kill":
            sweep.running.clear()
        elif event == "start" or not sweep.running:
            sweep.start(configurations, stages)
        else:
            sweep.complete(chance.choice(sorted(sweep.running)), "NUMERIC" if event == "give up" else None)
    sweep.drain(configurations, stages)
    race = sweep.race(stages)
    for backbone, total in configurations.items():
        known = [config.id for config in sweep.state.configs if config.record.backbone == backbone]
        assert len(known) == total
        for level in range(len(stages.rungs) - 1):
            here = sorted((c for c in known if race.levels[c] >= level), key=lambda c: -race.bound(c, level))
            assert all(race.levels[config] > level for config in here[: len(here) // 2])
        ran = sum(count for (config, _), count in sweep.completed.items() if config in known)
        assert stages.fewest(total) <= ran <= stages.most(total)
    assert set(sweep.completed.values()) <= {1}
    assert set(sweep.completed) == {(config, seed) for config in race.configs for seed in race.seeds_of(config)}


@given(races.filter(lambda stages: stages.confirmed), st.integers(1, 6), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_the_best_are_confirmed_on_seeds_that_the_search_never_saw(stages, configurations, devices):
    """Once the search is over, and not before, the configurations with the best bounds run on fresh seeds."""
    sweep = Sweep(devices)
    for _ in range(500):
        before = {run for run in sweep.running if run[1] in stages.fresh_seeds}
        if sweep.start({"small": configurations}, stages):
            break
        begun = {run for run in sweep.running if run[1] in stages.fresh_seeds} - before
        assert not begun or sweep.race(stages).is_searched("small", ())
        if len(sweep.running) == devices or isinstance(_next(sweep, stages, configurations), Wait):
            sweep.complete(min(sweep.running))
    confirmed = {config for config, seed in sweep.completed if seed in stages.fresh_seeds}
    assert len(confirmed) == min(stages.confirmed, configurations)
    assert confirmed == set(sweep.race(stages).best("small"))
    assert not set(stages.fresh_seeds) & set(stages.search_seeds)


def _next(sweep, stages, configurations):
    return next_run(sweep.race(stages), configurations={"small": configurations}, running=sweep.running)


@given(st.integers(1, 8), st.integers(2, 20))
@settings(max_examples=40, deadline=None)
def test_no_device_waits_while_configurations_are_left(devices, configurations):
    """Whatever is on its way, a free device gets a seed until every configuration is proposed."""
    sweep, stages = Sweep(devices), Stages(rungs=(2, 4, 6), first_seed=0, confirmed=1, fresh=2)
    while len(sweep.state.configs) < configurations:
        assert not isinstance(_next(sweep, stages, configurations), Wait | Finished)
        sweep.start({"small": configurations}, stages)
        if len(sweep.running) == devices:
            sweep.complete(min(sweep.running))


def test_what_is_given_up_does_not_hold_the_confirmation_up():
    """A configuration that cannot run is not confirmed, and the others are."""
    sweep, stages = Sweep(devices=1), Stages(rungs=(1, 2), first_seed=0, confirmed=2, fresh=1)
    for _ in range(2):
        sweep.add("small")
    sweep.running.add(("00000001", 0))
    sweep.complete(("00000001", 0))
    lost = {("00000000", 0)}
    decision = next_run(sweep.race(stages), configurations={"small": 2}, running=(), given_up=lost)
    assert decision == RunSeed("00000001", 1000)
    waits = next_run(sweep.race(stages), configurations={"small": 2}, running=lost)
    assert waits == Wait()


def test_a_lucky_seed_does_not_win():
    """Of 20 configurations whose seeds succeed three times in ten, one seed each chooses one with the best score and
    promises 1.0; the race's bound promises less, and what it says on fresh seeds is the truth (X1)."""
    chance, races, promised, confirmed = random.Random(1), 80, 0.0, 0.0
    stages = Stages(rungs=(2, 4, 6), first_seed=0, confirmed=1, fresh=10)
    for _ in range(races):
        sweep, table = Sweep(devices=4), {}
        sweep.score = lambda config, seed, table=table: table.setdefault((config, seed), float(chance.random() < 0.3))
        sweep.drain({"small": 20}, stages)
        race = sweep.race(stages)
        [best] = race.best("small")
        assert any(race.configs[config].results[0].metrics["score"] == 1 for config in race.configs)
        promised += race.bound(best, race.levels[best]) / races
        confirmed += sum(race.configs[best].results[seed].metrics["score"] for seed in stages.fresh_seeds) / 10 / races
    assert 0.3 < promised < 0.8
    assert confirmed == pytest.approx(0.3, abs=0.06)

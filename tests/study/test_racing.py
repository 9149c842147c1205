from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from par.study.ledger import SweepState
from par.study.racing import Finished, NewConfiguration, RunSeed, Standing, Wait, next_run, verdict_due
from par.study.records import snapshot

totals = st.dictionaries(st.sampled_from(["small", "middle", "large"]), st.integers(0, 4), max_size=3)
events = st.lists(st.sampled_from(["start", "complete", "kill", "give up"]), max_size=60)


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

    def standing(self, seeds) -> Standing:
        return Standing(seeds, self.state.configs)

    def add(self, backbone: str) -> None:
        number = sum(path.endswith("config.json") for path in self.objects)
        record = {"id": f"{number:08x}", "number": number, "backbone": backbone, "suggested": {}, "run": {}}
        self.objects[f"configs/{number:08x}/config.json"] = record

    def complete(self, run: tuple[str, int], failure: str | None = None) -> None:
        self.running.remove(run)
        self.completed[run] += 1
        self.objects[f"configs/{run[0]}/seed-{run[1]}/result.json"] = {"metrics": {}, "failure": failure}

    def start(self, configurations: dict[str, int], seeds: int) -> bool:
        """Ask once and obey; say whether the sweep is finished."""
        if len(self.running) >= self.devices:
            return False
        decision = next_run(self.standing(range(seeds)), configurations=configurations, running=self.running)
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

    def drain(self, configurations: dict[str, int], seeds: int) -> None:
        """Obey until the sweep is finished, completing the oldest run when no device is free or nothing is left."""
        for _ in range(1000):
            before = (len(self.objects), len(self.running))
            if self.start(configurations, seeds):
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
            sweep.start(configurations, seeds)
        else:
            failure = "NUMERIC" if event == "give up" else None
            sweep.complete(chance.choice(sorted(sweep.running)), failure)
    sweep.drain(configurations, seeds)
    assert Counter(c.record.backbone for c in sweep.state.configs) == Counter(configurations)
    assert sweep.completed == Counter((c.id, seed) for c in sweep.state.configs for seed in range(seeds))


@given(totals, st.integers(1, 3), totals, st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_totals_are_not_increments(configurations, seeds, more, more_seeds):
    """A finished sweep resumed with other totals runs the difference to them and never drops what it has."""
    sweep = Sweep(devices=2)
    sweep.drain(configurations, seeds)
    sweep.drain(configurations, seeds)
    assert sum(sweep.completed.values()) == sum(configurations.values()) * seeds
    sweep.drain(more, more_seeds)
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
        decision = next_run(sweep.standing(()), configurations=configurations, running=())
        assert isinstance(decision, NewConfiguration)
        short = [known[b] for b, total in configurations.items() if known[b] < total]
        assert known[decision.backbone] == min(short)
        sweep.add(decision.backbone)


@given(events, st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_a_standing_kept_up_to_date_is_the_one_built_at_once(story, seeds):
    """Configurations taken one by one as they come further leave the standing that reading all of them gives."""
    sweep, kept = Sweep(devices=3), Standing(range(seeds))
    for event in story:
        if event == "start" or not sweep.running:
            sweep.start({"small": 3, "large": 2}, seeds)
        else:
            sweep.complete(min(sweep.running), "NUMERIC" if event == "give up" else None)
        for config in sweep.state.configs:
            kept.put(config)
        whole = sweep.standing(range(seeds))
        assert (kept.configs, kept.known) == (whole.configs, whole.known)
        assert list(kept.missing.items()) == list(whole.missing.items())


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
        decision = next_run(sweep.standing(range(seeds)), configurations={"small": 9}, running=missing[:i])
        assert decision == RunSeed(config, seed)
    decision = next_run(sweep.standing(range(seeds)), configurations={"small": 9}, running=missing)
    assert decision == NewConfiguration("small")


def test_seeds_are_those_that_were_asked_for():
    """Seeds that begin at another number than 0 run, and alone decide when the search is told."""
    sweep = Sweep(devices=1)
    sweep.add("small")
    for seed in (7, 8):
        assert not verdict_due(sweep.state.configs[0], (7, 8))
        assert next_run(sweep.standing((7, 8)), configurations={}, running=()) == RunSeed("00000000", seed)
        sweep.running.add(("00000000", seed))
        sweep.complete(("00000000", seed))
    assert verdict_due(sweep.state.configs[0], (7, 8))
    assert next_run(sweep.standing((7, 8)), configurations={}, running=()) == Finished()


def test_a_run_that_is_no_longer_wanted_is_waited_for():
    """The sweep is not finished while anything runs, even a seed beyond a total that was lowered."""
    sweep = Sweep(devices=1)
    assert next_run(sweep.standing((0,)), configurations={}, running={("0000000a", 5)}) == Wait()
    assert next_run(sweep.standing((0,)), configurations={}, running=()) == Finished()


@given(st.sets(st.integers(0, 4)), st.integers(1, 4), st.booleans())
def test_a_verdict_is_due_once_and_only_when_every_seed_is_done(done, seeds, told):
    """The search is told when all wanted seeds have results, failures included, and never a second time."""
    sweep = Sweep(devices=1)
    sweep.add("small")
    for seed in done:
        sweep.running.add(("00000000", seed))
        sweep.complete(("00000000", seed), failure="NUMERIC" if seed % 2 else None)
    if told:
        sweep.objects["configs/00000000/verdict.json"] = {"score": 0.5, "seeds": [0]}
    due = verdict_due(sweep.state.configs[0], range(seeds))
    assert due == (not told and all(seed in done for seed in range(seeds)))

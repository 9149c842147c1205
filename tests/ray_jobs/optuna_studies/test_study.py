"""Optuna proposes, the ledger decides: every proposal is valid, none is lost, and none is made twice."""

import errno
import math
import warnings
from pathlib import Path

import pytest
from ray.tune.search import Searcher

from par.errors import ConfigError, FailureKind
from par.ledger.current_space import current_space
from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, SeedResult, SweepRecord
from par.race.retry import BUDGETS, GiveUp, StartAgain
from par.race.status import is_complete
from par.space.space import Space, load_space
from ray_jobs.driver.attempts import Attempts
from ray_jobs.driver.searcher import LedgerSearch
from tests.disks import fill
from tests.ray_jobs.searches import begin_search

HEAD = "question: Which?\nfixed: {task.name: swap-s3, task.rendering: compact, task.train_depth: 4}\n"
CONDITIONAL = (
    HEAD
    + """
backbones: [tiny-qwen2]
search:
  halting.mode: {choice: [forced, learned]}
  halting.tau: {float: [0.2, 0.8], when: {halting.mode: learned}}
  halting.k: {int: [1, 4], when: {halting.mode: learned}}
  halting.m: {int: [4, 12], when: {halting.mode: learned}}
configurations: 40
seeds: 1
"""
)
NOON, ONE = "2026-01-01T12:00:00+00:00", "2026-01-01T13:00:00+00:00"
CHOICE = "backbones: [tiny-qwen2]\nsearch: {recurrence.anchor: {choice: [first, none]}}\n"
RATES = HEAD + "backbones: [tiny-qwen2, tiny-qwen3]\nsearch: {optim.lr: {float: [1.0e-4, 1.0e-2], log: true}}\n"


def make(folder: Path, text: str) -> tuple[Space, Ledger]:
    (folder / "space.yaml").write_text(text)
    return load_space(folder / "space.yaml"), Ledger.create(
        folder, "demo", SweepRecord(space=text, space_path="space.yaml")
    )


def search(space: Space, ledger: Ledger, *kinds: FailureKind) -> LedgerSearch:
    return begin_search(ledger, space, *kinds)


def finish(ledger: Ledger, spec: dict, score: float) -> None:
    metrics = {"G": 1.0, "extrapolation_auc": score, "censored": 0.0}
    ledger.finish(spec["config"], spec["seed"], SeedResult(metrics=metrics))


def run_to_end(searcher: LedgerSearch, ledger: Ledger, *, at_most: int = 1000) -> list[tuple[str, int]]:
    """Play Tune with one trial at a time; return what ran."""
    ran: list[tuple[str, int]] = []
    while len(ran) < at_most and (suggestion := searcher.suggest(f"trial-{len(ran)}")) != Searcher.FINISHED:
        spec = suggestion["spec"]
        finish(ledger, spec, 0.5)
        searcher.on_trial_complete(f"trial-{len(ran)}")
        ran.append((spec["config"], spec["seed"]))
    return ran


def test_s5_conditional_settings(tmp_path):
    """Halting thresholds are searched under ``learned`` alone, k <= m always holds, and no sampler complains (S5)."""
    space, ledger = make(tmp_path, CONDITIONAL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_to_end(search(space, ledger), ledger)
    suggested = [config.record.suggested for config in ledger.read().configs]
    learned = [s for s in suggested if s["halting.mode"] == "learned"]
    assert len(suggested) == 40
    assert len(learned) == 39
    assert all(s["halting.k"] <= s["halting.m"] for s in learned)
    assert all(set(s) == {"halting.mode"} for s in suggested if s["halting.mode"] == "forced")


def test_totals_however_often_resumed(tmp_path):
    """A search that is rebuilt after every few seeds proposes the same number of configurations, and repeats none."""
    space, ledger = make(tmp_path, RATES + "configurations: 7\nseeds: 2\n")
    ran: list[tuple[str, int]] = []
    while part := run_to_end(search(space, ledger), ledger, at_most=3):
        ran += part
    assert len(ran) == len(set(ran)) == 14
    by_backbone = [config.record.backbone for config in ledger.read().configs]
    assert (
        {name: by_backbone.count(name) for name in space.backbones}
        == space.shares()
        == {"tiny-qwen2": 4, "tiny-qwen3": 3}
    )


def test_each_configuration_is_told_once(tmp_path):
    """Every verdict is one completed Optuna trial with the ledger's score, in this search and in a rebuilt one."""
    space, ledger = make(tmp_path, RATES + "configurations: 6\nseeds: 2\n")
    searcher = search(space, ledger)
    run_to_end(searcher, ledger)
    for found in (searcher, search(space, ledger)):
        for backbone, study in found.studies.items():
            verdicts = [c.verdict.score for c in ledger.read().configs if c.record.backbone == backbone]
            assert sorted(trial.value for trial in study.study.trials) == sorted(verdicts)
            assert {trial.state.name for trial in study.study.trials} == {"COMPLETE"}


def test_a_verdict_waits_for_the_end_of_every_attempt(tmp_path):
    """Two seeds that end at once: the first to be settled brings no verdict, as the other's hours are not known yet."""
    space, ledger = make(tmp_path, HEAD + CHOICE + "sampler: grid\nseeds: 2\n")
    searcher = search(space, ledger)
    specs = [searcher.suggest(trial)["spec"] for trial in ("first", "second")]
    begun = [ledger.begin_attempt(spec["config"], spec["seed"], Attempt(start=NOON, devices=1)) for spec in specs]
    for trial, spec, attempt in zip(("first", "second"), specs, begun, strict=True):
        for one in specs:
            finish(ledger, one, 0.5)
        ledger.end_attempt(spec["config"], spec["seed"], attempt.ended_at(ONE, saved_step=0))
        searcher.on_trial_complete(trial)
    verdict = ledger.read_config(specs[0]["config"]).verdict
    assert verdict is not None
    assert verdict.metrics["gpu_hours"] == 2


def test_the_first_seed_is_where_a_configuration_begins(tmp_path):
    """With ``first_seed: 10`` two seeds are 10 and 11: they run, they end the search, and the verdict is theirs."""
    space, ledger = make(tmp_path, RATES + "configurations: 2\nseeds: 2\nfirst_seed: 10\n")
    searcher = search(space, ledger)
    assert [seed for _, seed in run_to_end(searcher, ledger, at_most=3)] == [10, 11, 10]
    assert not searcher.complete()
    assert [seed for _, seed in run_to_end(searcher, ledger)] == [11]
    assert searcher.complete()
    assert [config.verdict.seeds for config in ledger.read().configs] == [(10, 11), (10, 11)]


def test_open_configuration_keeps_its_parameters(tmp_path):
    """A configuration whose seeds were interrupted is a running trial with its own parameters after a rebuild."""
    space, ledger = make(tmp_path, RATES + "configurations: 2\nseeds: 2\n")
    search(space, ledger).suggest("lost")
    [config] = ledger.read().configs
    [trial] = search(space, ledger).studies["tiny-qwen2"].study.trials
    assert trial.state.name == "RUNNING"
    assert trial.params == dict(config.record.suggested)


def test_a_seed_that_died_is_suggested_again_until_its_budget_is_used_up(tmp_path):
    """A process that dies costs its seed a new start, then another one, then the seed is given up and the rest runs."""
    space, ledger = make(tmp_path, RATES + "configurations: 2\nseeds: 2\n")
    searcher = search(space, ledger)
    tried = []
    for start in range(BUDGETS[FailureKind.WORKER_DIED] + 1):
        spec = searcher.suggest(f"lost-{start}")["spec"]
        tried.append((spec["config"], spec["seed"]))
        searcher.on_trial_complete(f"lost-{start}", error=True)
        decision = searcher.settle(f"lost-{start}", RuntimeError("signal 11"))
    assert len(set(tried)) == 1
    assert isinstance(decision, GiveUp)
    assert tried[0] not in run_to_end(searcher, ledger)
    lives = ledger.read_config(tried[0][0]).attempts(tried[0][1])
    assert [life.message for life in lives] == ["signal 11"] * len(tried)
    assert all(life.ended for life in lives)


def test_what_was_given_up_waits_for_a_person(tmp_path):
    """A driver leaves alone what an earlier one gave up, unless its kind was asked for; then it ends (R1 R16)."""
    space, ledger = make(tmp_path, RATES + "configurations: 2\nseeds: 1\n")
    searcher = search(space, ledger)
    lost = searcher.suggest("lost")["spec"]
    assert isinstance(searcher.settle("lost", MemoryError("of the host")), GiveUp)
    assert len(run_to_end(searcher, ledger)) == 1
    assert run_to_end(search(space, ledger), ledger) == []
    assert run_to_end(search(space, ledger, FailureKind.OOM_GPU), ledger) == []
    asked = search(space, ledger, FailureKind.OOM_HOST)
    assert run_to_end(asked, ledger) == [(lost["config"], lost["seed"])]
    assert asked.complete()
    assert [trial.state.name for study in asked.studies.values() for trial in study.study.trials] == ["COMPLETE"] * 2


def test_settings_that_cannot_run_stop_their_configuration_alone(tmp_path):
    """A fault of the configuration gives all of its seeds up at once; the other configuration runs (R15)."""
    space, ledger = make(tmp_path, RATES + "configurations: 2\nseeds: 3\n")
    searcher = search(space, ledger)
    lost = searcher.suggest("lost")["spec"]
    searcher.settle("lost", ConfigError("compute.attention=flex needs a GPU"))
    ran = run_to_end(searcher, ledger)
    assert len(ran) == 3
    assert lost["config"] not in {config for config, _ in ran}
    assert len(searcher.given_up()) == 3


def test_settings_that_fail_above_the_first_rung_are_not_confirmed(tmp_path):
    """A fault that the second seed finds takes the configuration out of the confirmation, and another one comes in."""
    more = "configurations: 2\nseeds: [1, 2]\nconfirm: 1\nfresh_seeds: 2\n"
    space, ledger = make(tmp_path, RATES.replace(", tiny-qwen3", "") + more)
    searcher = search(space, ledger)
    best = run_to_end(searcher, ledger, at_most=1)[0][0]
    finish(ledger, searcher.suggest("second")["spec"], 0.1)
    searcher.on_trial_complete("second")
    climbs = searcher.suggest("climbs")["spec"]
    assert (climbs["config"], climbs["seed"]) == (best, 1)
    searcher.settle("climbs", ConfigError("its data are gone"))
    other = ({config.id for config in ledger.read().configs} - {best}).pop()
    assert run_to_end(searcher, ledger) == [(other, 1000), (other, 1001)]
    assert searcher.given_up().keys() == {(best, 1)}
    assert not searcher.complete()


def test_a_sweep_that_has_no_further_configurations_is_complete_later_too(tmp_path):
    """Another driver, or any reader, knows that the space is exhausted without asking it again."""
    space, ledger = make(tmp_path, HEAD + CHOICE + "configurations: 9\nseeds: 1\n")
    searcher = search(space, ledger)
    assert len(run_to_end(searcher, ledger)) == 2
    assert searcher.complete()
    assert is_complete(ledger.read(), current_space(ledger))


def test_the_attempts_of_a_driver_that_died_are_ended_by_the_next(tmp_path):
    """An attempt without an end is ended as of the last sign of life of its driver, and its seed goes on (R2 R9)."""
    space, ledger = make(tmp_path, RATES + "configurations: 2\nseeds: 1\n")
    searcher = search(space, ledger)
    spec = searcher.suggest("lost")["spec"]
    begun = Attempt(start="2026-01-01T00:00:00.000+00:00", devices=2)
    ledger.begin_attempt(spec["config"], spec["seed"], begun)
    lives = Attempts(ledger, space.stages.search_seeds, lambda config, seed: 40)
    lives.take_over(ledger.read(), "2026-01-01T00:01:00.000+00:00")
    [life] = ledger.read_config(spec["config"]).attempts(spec["seed"])
    assert (life.failure, life.saved_step, life.device_seconds) == (FailureKind.STOPPED, 40, 120)
    assert (lives.device_seconds, lives.given_up) == (120, {})
    assert (spec["config"], spec["seed"]) in run_to_end(search(space, ledger), ledger)


def test_an_attempt_that_outlived_its_drivers_last_sign_takes_no_negative_time(tmp_path):
    """An attempt that began after the last sign of life of its driver ends as it began: no negative time."""
    space, ledger = make(tmp_path, RATES + "configurations: 2\nseeds: 1\n")
    spec = search(space, ledger).suggest("lost")["spec"]
    start = "2026-01-01T00:00:10.000+00:00"
    ledger.begin_attempt(spec["config"], spec["seed"], Attempt(start=start, devices=2))
    lives = Attempts(ledger, space.stages.search_seeds, lambda config, seed: 0)
    lives.take_over(ledger.read(), "2026-01-01T00:00:00.000+00:00")
    [life] = ledger.read_config(spec["config"]).attempts(spec["seed"])
    assert (life.end, life.device_seconds) == (start, 0)


def test_a_full_disk_gives_a_seed_up_though_nothing_records_it(small_disk):
    """Where not even the end of an attempt can be written, its seed is given up all the same, and the search ends."""
    space, ledger = make(small_disk, RATES + "configurations: 2\nseeds: 1\n")
    searcher = search(space, ledger)
    lost = searcher.suggest("lost")["spec"]
    ledger.begin_attempt(lost["config"], lost["seed"], Attempt(start="2026-01-01T00:00:00.000+00:00"))
    searcher.suggest("never begun")
    fill(small_disk, 0)
    for trial in ("lost", "never begun"):
        decision = searcher.settle(trial, OSError(errno.ENOSPC, "No space left on device"))
        assert isinstance(decision, GiveUp)
        assert decision.kind == FailureKind.DISK
    assert searcher.suggest("another") == Searcher.FINISHED
    assert searcher.attempts.end_open(ledger.read(), "2026-01-01T00:00:00.000+00:00") == ledger.read()


def test_nothing_is_suggested_once_the_sweep_is_to_stop(tmp_path):
    """What runs may end; nothing else is started, and the search is over when the last trial is."""
    space, ledger = make(tmp_path, RATES + "configurations: 2\nseeds: 2\n")
    searcher = search(space, ledger)
    searcher.suggest("a")
    searcher.stopping = True
    assert searcher.suggest("b") is None
    assert isinstance(searcher.settle("a"), StartAgain)
    assert searcher.suggest("b") == Searcher.FINISHED


def test_a_driver_reads_the_ledger_once(tmp_path, monkeypatch):
    """After it has begun, the search reads no more than the configuration whose trial has ended, however long it runs;
    a search that is rebuilt goes on as this one would have."""
    space, ledger = make(tmp_path, RATES + "configurations: 4\nseeds: 2\n")
    searcher = search(space, ledger)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "read", lambda self: pytest.fail("the whole ledger was read"))
        assert len(run_to_end(searcher, ledger, at_most=5)) == 5
    again = search(space, ledger)
    assert again.race.missing == searcher.race.missing
    assert again.race.known == searcher.race.known


def test_no_point_of_a_space_is_missed(tmp_path):
    """As many configurations as a space has points are all found, however often the sampler draws the others."""
    choices = ", ".join(f"{rate}e-4" for rate in range(10, 70))
    text = (
        HEAD + f"backbones: [tiny-qwen2]\nsearch: {{optim.lr: {{choice: [{choices}]}}}}\nconfigurations: 60\nseeds: 1\n"
    )
    space, ledger = make(tmp_path, text)
    searcher = search(space, ledger)
    assert len(run_to_end(searcher, ledger)) == 60
    assert not searcher.exhausted


def test_list_values_are_searched(tmp_path):
    """A choice between splits is proposed, recorded and rebuilt like any other, without a warning."""
    splits = "recurrence.split: {choice: [[1, 1, 1], null]}, optim.lr: {float: [1.0e-4, 1.0e-2]}"
    text = HEAD + f"backbones: [tiny-qwen2]\nsearch: {{{splits}}}\nconfigurations: 5\nseeds: 1\n"
    space, ledger = make(tmp_path, text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while run_to_end(search(space, ledger), ledger, at_most=2):
            pass
        search(space, ledger)
    assert len(ledger.read().configs) == 5


def test_failed_seeds_count_as_zero(tmp_path):
    """A diverged seed enters the score as 0 and lowers it; it is never dropped."""
    space, ledger = make(tmp_path, RATES + "configurations: 2\nseeds: 2\n")
    searcher = search(space, ledger)
    for trial in ("a", "b"):
        spec = searcher.suggest(trial)["spec"]
        if trial == "a":
            finish(ledger, spec, 0.9)
        else:
            ledger.finish(spec["config"], spec["seed"], SeedResult(metrics={"G": 0.0}, failure="NUMERIC"))
        searcher.on_trial_complete(trial)
    [config] = [c for c in ledger.read().configs if c.verdict]
    assert config.verdict.score < 0.45
    assert config.verdict.metrics["n_failed"] == 1
    assert config.verdict.metrics["G_min"] == 0


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_rebuilt_sampler_repeats_no_suggestion(tmp_path, sampler):
    """A seeded sampler that is rebuilt goes on with new suggestions (R10)."""
    space, ledger = make(tmp_path, RATES + f"configurations: 12\nseeds: 1\nsampler: {sampler}\n")
    while run_to_end(search(space, ledger), ledger, at_most=2):
        pass
    for backbone in space.backbones:
        rates = [c.record.suggested["optim.lr"] for c in ledger.read().configs if c.record.backbone == backbone]
        assert len(set(rates)) == len(rates)


def test_variants_are_proposed_by_name_and_each_once(tmp_path):
    """Every variant runs on every backbone under its name, with its settings, however often the search is rebuilt."""
    text = HEAD + "backbones: [tiny-qwen2, tiny-qwen3]\nvariants: {PAR: {}, no anchoring: {recurrence.anchor: none}}\n"
    space, ledger = make(tmp_path, text + "seeds: 2\n")
    ran: list[tuple[str, int]] = []
    while part := run_to_end(search(space, ledger), ledger, at_most=3):
        ran += part
    assert len(ran) == len(set(ran)) == 8
    found = {
        (config.record.backbone, config.record.suggested["variant"], config.record.run["recurrence"]["anchor"])
        for config in ledger.read().configs
    }
    variants = (("PAR", "first"), ("no anchoring", "none"))
    assert found == {(backbone, *variant) for backbone in space.backbones for variant in variants}
    assert space.shares() == {"tiny-qwen2": 2, "tiny-qwen3": 2}


RACE = RATES + "configurations: 8\nseeds: [1, 2, 4]\nconfirm: 1\nfresh_seeds: 3\n"


def race_to_end(searcher: LedgerSearch, ledger: Ledger, *, at_most: int = 1000) -> int:
    """Play Tune; a seed scores by its configuration's rate alone. Return how many ran."""
    for ran in range(at_most):
        suggestion = searcher.suggest(f"trial-{ran}")
        if suggestion == Searcher.FINISHED:
            return ran
        spec = suggestion["spec"]
        rate = ledger.read_config(spec["config"]).record.suggested["optim.lr"]
        finish(ledger, spec, 1 - abs(math.log10(rate) + 3))
        searcher.on_trial_complete(f"trial-{ran}")
    return at_most


@pytest.mark.parametrize("part", [1000, 3])
def test_a_race_is_the_same_however_often_it_is_resumed(tmp_path, part):
    """Of each backbone the better half climbs, the best is confirmed on fresh seeds, and Optuna has every configuration
    once, with the score over all of its seeds."""
    space, ledger = make(tmp_path, RACE)
    while race_to_end(searcher := search(space, ledger), ledger, at_most=part):
        pass
    assert searcher.complete()
    configs = ledger.read().configs
    for backbone in space.backbones:
        mine = sorted((c for c in configs if c.record.backbone == backbone), key=lambda c: -c.verdict.score)
        assert [verdict.seeds for verdict in mine[0].verdicts if verdict.stage == "search"] == [
            (0,),
            (0, 1),
            (0, 1, 2, 3),
        ]
        assert [config.confirmation is not None for config in mine] == [True, False, False, False]
        assert mine[0].confirmation.seeds == (1000, 1001, 1002)
        told = [trial.value for trial in search(space, ledger).studies[backbone].study.trials]
        assert sorted(told) == sorted(config.verdict.score for config in mine)


def test_a_proposal_that_is_known_becomes_more_seeds(tmp_path):
    """Where the search insists on a configuration, that one climbs, and the space need not have another one."""
    one = "search: {recurrence.anchor: {choice: [first]}}\nconfigurations: 5\nseeds: [1, 2, 3]\nconfirm: 0\n"
    space, ledger = make(tmp_path, HEAD + "backbones: [tiny-qwen2]\n" + one)
    assert [seed for _, seed in run_to_end(search(space, ledger), ledger)] == [0, 1, 2]
    [config] = ledger.read().configs
    assert [len(verdict.seeds) for verdict in config.verdicts] == [1, 2, 3]

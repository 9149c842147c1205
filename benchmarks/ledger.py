"""A driver takes up a large sweep: it reads every object of the ledger and replays the configurations into Optuna."""

import atexit
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Case, Target
from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, SeedResult, SweepRecord, Verdict
from par.objects import encode
from par.space.space import Space, parse_space
from ray_jobs.driver.attempts import Attempts, now
from ray_jobs.driver.searcher import LedgerSearch

SPACE = """
question: How long does a driver take to begin?
backbones: [tiny-qwen2]
fixed: {task.name: swap-s3, task.rendering: compact, task.train_depth: 8}
search:
  optim.lr: {float: [1.0e-4, 1.0e-2], log: true}
  recurrence.anchor: {choice: [first, none]}
  stretch.enabled: {choice: [true, false]}
  stretch.s_max: {float: [2, 16], log: true, when: {stretch.enabled: true}}
configurations: 10000
seeds: 10
"""
PARTS = 4
"""How many times as large the large sweep is."""
ATTEMPT = {
    "node": "worker-17", "pid": 4242, "source": "0" * 16, "start": "2026-01-01T00:00:00+00:00", "resumed_at": 0,
    "micro_batch": 8, "end": "2026-01-01T02:00:00+00:00",
}  # fmt: skip
METRICS = {f"metric_{number}": number / 7 for number in range(20)}


def case() -> Case:
    """A sweep that is read and replayed, beside one of a quarter of its size four times: time grows linearly.

    The law is 20 s for 10 000 configurations of 10 seeds, 11 000 objects/s.
    """
    space, folder = parse_space(SPACE, Path("ledger.yaml")), TemporaryDirectory(prefix="par-ledger-")
    atexit.register(folder.cleanup)
    large = filled(Path(folder.name, "large"), space, space.configurations)
    small = filled(Path(folder.name, "small"), space, space.configurations // PARTS)
    objects = space.configurations * (2 + 2 * len(space.stages.search_seeds))
    return Case(
        name="ledger",
        setting={"configurations": space.configurations, "seeds": len(space.stages.search_seeds), "parts": PARTS},
        amount=objects,
        unit="objects",
        product=lambda: replayed(large, space),
        reference=lambda: [sum(part) for part in zip(*(replayed(small, space) for _ in range(PARTS)), strict=True)],
        target=Target("≤", 1.25),
        repeats=3,
    )


def filled(storage: Path, space: Space, configurations: int) -> Ledger:
    """A sweep that is finished, written as fast as a disk takes it: no object is replaced, none is synchronised."""
    ledger = Ledger.create(storage, "large", SweepRecord(space=space.text))
    for number in range(configurations):
        record = _proposal(space, number)
        folder = storage / "large" / "configs" / record.id
        for seed in space.stages.search_seeds:
            place = folder / f"seed-{seed}"
            place.mkdir(parents=True)
            _write(place / "attempt-1.json", ATTEMPT)
            _write(place / "result.json", SeedResult(metrics=METRICS, step=400, evaluation_set="0" * 16).to_dict())
        _write(folder / "config.json", record.to_dict())
        verdict = Verdict(score=number % 10 / 10, seeds=tuple(space.stages.search_seeds), metrics=METRICS)
        _write(folder / f"search-{len(verdict.seeds)}.json", verdict.to_dict())
    return ledger


def replayed(ledger: Ledger, space: Space) -> list[float]:
    """Begin as a driver does; count the configurations, results and told trials, and add up what was told."""
    lives = Attempts(ledger, space.stages.search_seeds, lambda config, seed: 0)
    state = lives.take_over(ledger.read(), now())
    search = LedgerSearch(lives, space, lambda record, seed: {}, state.configs)
    known = search.race.configs.values()
    told = [trial.value for study in search.studies.values() for trial in study.study.get_trials(deepcopy=False)]
    results = sum(len(config.results) for config in known)
    return [float(len(known)), float(results), float(len(told)), float(sum(score or 0.0 for score in told))]


def _proposal(space: Space, number: int) -> ConfigRecord:
    """A proposal with values of its own; its id is its number."""
    stretched = number % 2 == 0
    suggested: dict[str, object] = {
        "optim.lr": 1e-4 * 100 ** (number % 997 / 997),
        "recurrence.anchor": "first" if number % 3 else "none",
        "stretch.enabled": stretched,
        **({"stretch.s_max": 2 + number % 14} if stretched else {}),
    }
    run = space.run_config("tiny-qwen2", suggested, 0)
    return replace(ConfigRecord.of(run, number=number, suggested=suggested), id=f"{number:08x}")


def _write(path: Path, record: Mapping[str, object]) -> None:
    path.write_bytes(encode(path.name, record))

"""A ledger as a large sweep leaves it, without training: several backbones whose seeds have two humps."""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from par import metrics as m
from par.ledger.ledger import ACCURACY, HISTORY, Ledger
from par.ledger.records import FORMAT, ConfigRecord, SeedResult
from par.ledger.state import ConfigState, SeedState
from par.objects import encode
from par.race.verdicts import judge
from par.space.space import Space, parse_space

BACKBONES = ("tiny-qwen2", "tiny-qwen3", "mini-qwen3", "qwen2.5-0.5b")
TRAIN_DEPTH, CEILING = 8, 16.0
DEPTHS = [8, 10, 12, 16, 24, 32, 48, 64, 96, 128]
STEPS = range(20, 401, 4)
CREATED = "2026-01-01T12:00:00+00:00"
HOSTILE = "loss=nan <script>alert('diverged')</script> & more"
SPACE = """
question: Does anchoring & a small step help <every> backbone?
cost: none, it is made up
backbones: [{backbones}]
fixed: {{task.name: swap-s3, task.rendering: text, task.train_depth: 8, train.steps: 400, schedule.overrun: 2}}
search:
  optim.lr: {{float: [1.0e-4, 1.0e-2], log: true}}
  recurrence.anchor: {{choice: [first, none]}}
  recurrence.step_size: {{int: [1, 2]}}
  train.query_reset: {{float: [0.1, 0.9]}}
configurations: {configurations}
seeds: {seeds}
confirm: {confirm}
fresh_seeds: 10
sampler: random
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """What to make up. By default a whole race with confirmation."""

    backbones: tuple[str, ...] = BACKBONES
    per_backbone: int = 30
    seeds: str = "[2, 4, 6]"
    confirm: int = 3
    unfinished: float = 0.01
    """Share of the seeds whose last attempt has no end."""
    diverging: float = 0.1
    """Share of the seeds that end as NUMERIC."""

    def text(self) -> str:
        """The space."""
        return SPACE.format(
            backbones=", ".join(self.backbones), configurations=self.per_backbone * len(self.backbones),
            seeds=self.seeds, confirm=self.confirm,
        )  # fmt: skip


def synthetic(storage: Path, sweep: Sweep = Sweep(), name: str = "made-up") -> Ledger:
    """Write the sweep into a storage and open it; the same sweep gives the same bytes."""
    rng, text = np.random.default_rng(0), sweep.text()
    space = parse_space(text, Path("made-up.yaml"))
    folder = storage / name
    record = {
        "format": FORMAT, "space": text, "space_path": "made-up.yaml", "space_fingerprint": space.fingerprint(),
        "created": CREATED, "commit": "0" * 40, "source": "1" * 16, "python": "3.11.0",
        "libraries": {"torch": "2.13.0"},
    }  # fmt: skip
    _write(folder / "sweep.json", record)
    states = [
        _configuration(folder, space, backbone, place * sweep.per_backbone + number, sweep, rng)
        for place, backbone in enumerate(sweep.backbones)
        for number in range(sweep.per_backbone)
    ]
    for backbone in sweep.backbones:
        _race(folder, space, [state for state in states if state.record.backbone == backbone], sweep, rng)
    return Ledger.open(storage, name)


def _configuration(
    folder: Path, space: Space, backbone: str, number: int, sweep: Sweep, rng: np.random.Generator
) -> ConfigState:
    suggested: dict[str, Any] = {
        "optim.lr": float(10 ** rng.uniform(-4, -2)),
        "recurrence.anchor": str(rng.choice(["first", "none"])),
        "recurrence.step_size": int(rng.integers(1, 3)),
        "train.query_reset": float(rng.uniform(0.1, 0.9)),
    }
    record = ConfigRecord.of(space.run_config(backbone, suggested, 0), number=number, suggested=suggested)
    _write(folder / "configs" / record.id / "config.json", record.to_dict())
    return ConfigState(record, {})


def _race(folder: Path, space: Space, states: list[ConfigState], sweep: Sweep, rng: np.random.Generator) -> None:
    """The better half climbs at each rung; the best ones get fresh seeds."""
    stages, begun = space.stages, {state.id: 0 for state in states}
    for level in range(len(stages.rungs)):
        seeds = stages.rung(level)
        states = [_run(folder, state, seeds[begun[state.id] :], sweep, rng) for state in states]
        begun = {state.id: len(seeds) for state in states}
        judged = [state.judged(judge(state, "search", seeds, space.score)) for state in states if _has(state, seeds)]
        _keep(folder, judged)
        ranked = sorted(judged, key=lambda state: -state.verdict.score if state.verdict else 0)
        states = ranked[: max(1, len(ranked) // 2)] if level + 1 < len(stages.rungs) else ranked
    for state in states[: stages.confirmed]:
        sure = _run(folder, state, stages.fresh_seeds, sweep, rng)
        if _has(sure, stages.fresh_seeds):
            _keep(folder, [sure.judged(judge(sure, "confirm", stages.fresh_seeds, space.score))])


def _run(folder: Path, state: ConfigState, seeds: range, sweep: Sweep, rng: np.random.Generator) -> ConfigState:
    found = dict(state.seeds)
    for seed in seeds:
        place = folder / "configs" / state.id / f"seed-{seed}"
        attempt = {"start": CREATED, "node": "node-1", "devices": 1}
        if rng.random() < sweep.unfinished:
            _write(place / "attempt-1.json", attempt)
            found[seed] = SeedState((), None)
            continue
        result, files = _seed(state.record, sweep, rng)
        end = {"end": "2026-01-01T13:00:00+00:00", "device_seconds": 1800.0}
        _write(place / "attempt-1.json", attempt | end | ({"failure": result.failure} if result.failure else {}))
        for name, data in files.items():
            (place / name).write_bytes(data)
        _write(place / "result.json", result.to_dict())
        found[seed] = SeedState((), result)
    return ConfigState(state.record, found, state.verdicts)


def _seed(record: ConfigRecord, sweep: Sweep, rng: np.random.Generator) -> tuple[SeedResult, dict[str, bytes]]:
    """A good seed reaches 6 to 16 times d_train, a bad one hardly more than once; some diverge."""
    lr, anchored = record.suggested["optim.lr"], record.suggested["recurrence.anchor"] == "first"
    fit = math.exp(-((math.log10(lr) + 3) ** 2)) * (0.8 if anchored else 0.35)
    diverges, good = rng.random() < sweep.diverging, rng.random() < fit
    drift = 1 + (0.2 if good else 2.0) * np.linspace(0, 1, len(STEPS)) ** 2 + 0.03 * rng.standard_normal(len(STEPS))
    on_the_way = [
        None if step % 80 else float(rng.uniform(0.6, 1.0) if good else rng.uniform(0.2, 0.7)) for step in STEPS
    ]
    spikes = float(rng.poisson(0.5 if good else 3))
    norms = [50.0 if place < spikes else 1.0 for place in range(len(STEPS))]
    lived = len(STEPS) // 2 if diverges else len(STEPS)
    history = {
        "step": list(STEPS),
        m.DRIFT.name: drift.tolist(),
        m.ON_THE_WAY.name: on_the_way,
        m.GRAD_NORM.name: norms,
    }
    files = {HISTORY: _parquet({name: values[:lived] for name, values in history.items()})}
    if diverges:
        known = {"G": 0.0, m.GRAD_SPIKES.name: spikes}
        return SeedResult(metrics=known, failure="NUMERIC", message=HOSTILE, step=200), files
    half = float(rng.uniform(6, 20) if good else rng.uniform(0.6, 2.2))
    single = [1 / (1 + (depth / (TRAIN_DEPTH * half)) ** 4) for depth in DEPTHS]
    files[ACCURACY] = _parquet({"depth": DEPTHS, "single_query": single, "full_state": [value**3 for value in single]})
    G = min(half, CEILING)
    metrics = {
        "G": G, "censored": float(half > CEILING), "extrapolation_auc": min(1.0, G / CEILING), "d50": G * TRAIN_DEPTH,
        m.FULL_STATE_16X.name: single[-1] ** 3,
        m.GRAD_SPIKES.name: spikes,
    }  # fmt: skip
    return SeedResult(metrics=metrics, step=400, evaluation_set="e" * 16), files


def _has(state: ConfigState, seeds: range) -> bool:
    return state.results.keys() >= set(seeds)


def _keep(folder: Path, judged: list[ConfigState]) -> None:
    for state in judged:
        for verdict in state.verdicts:
            name = f"{verdict.stage}-{len(verdict.seeds)}.json"
            _write(folder / "configs" / state.id / name, verdict.to_dict())


def _write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(path.name, record))


def _parquet(columns: dict[str, list[Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()

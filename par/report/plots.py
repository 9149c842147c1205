"""Plots of a sweep."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import matplotlib as mpl
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from par.ledger.ledger import ACCURACY, Ledger
from par.ledger.records import ConfigState
from par.tasks.groups import chance, parse_task

COLUMNS = 2


@dataclass(frozen=True, slots=True)
class SeedCurve:
    """Accuracy by depth of one seed; empty for a seed that failed before it was evaluated."""

    seed: int
    depths: list[int]
    single_query: list[float]
    full_state: list[float]


def seed_curves(ledger: Ledger, config: ConfigState) -> Iterator[SeedCurve]:
    """Yield the curve of every finished seed."""
    for seed in config.results:
        data = ledger.read_bytes(config.id, seed, ACCURACY)
        columns = {} if data is None else pq.read_table(pa.BufferReader(data)).to_pydict()
        yield SeedCurve(seed, *(columns.get(name, []) for name in ("depth", "single_query", "full_state")))


def accuracy_by_depth(ledger: Ledger, path: Path) -> Path:
    """Draw a panel per configuration with a line per seed (solid: one box, dashed: all boxes) and write a PNG."""
    configs = [config for config in ledger.read().configs if config.results]
    rows = max(1, ceil(len(configs) / COLUMNS))
    figure = Figure(figsize=(6 * COLUMNS, 3.6 * rows), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True).flat
    for axis, config in zip(axes, configs, strict=False):
        _panel(axis, ledger, config)
    for axis in list(axes)[len(configs) :]:
        axis.set_visible(False)
    figure.suptitle("Accuracy by depth, a line per seed (solid: single query, dashed: full state)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _panel(axis: Axes, ledger: Ledger, config: ConfigState) -> None:
    colours = mpl.colormaps["tab10"].colors  # pyright: ignore[reportAttributeAccessIssue]
    curves = list(seed_curves(ledger, config))
    for curve in curves:
        colour = colours[curve.seed % len(colours)]
        failure = config.results[curve.seed].failure
        label = f"seed {curve.seed}" + (f" ({failure})" if failure else "")
        axis.plot(curve.depths, curve.single_query, color=colour, marker="o", markersize=3, label=label)
        axis.plot(curve.depths, curve.full_state, color=colour, linestyle="--", linewidth=1)
    d_train = config.record.run["task"]["train_depth"]
    axis.axvline(d_train, color="grey", linewidth=1)
    axis.axhline(0.5, color="grey", linewidth=0.5, linestyle=":")
    depths = sorted({d for curve in curves for d in curve.depths})
    task = parse_task(config.record.run["task"]["name"])
    axis.plot(depths, [chance(task, d).single_query for d in depths], color="grey", linewidth=0.8, label="chance")
    axis.annotate("d_train", (d_train, 1.02), color="grey", fontsize=8, ha="center")
    axis.set_title(f"{config.record.backbone}  {', '.join(config.record.choices())}", fontsize=9, loc="left")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.set_xlabel("depth (operations)")
    axis.set_ylabel("accuracy")
    axis.set_ylim(-0.03, 1.08)
    axis.legend(fontsize=8, loc="lower left")

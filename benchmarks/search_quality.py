"""How good is the configuration that a search chooses, when seeds decide as much as settings do?"""

import json
import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.landscape import Landscape
from benchmarks.machine import provenance
from benchmarks.searches import SEARCHES, SEEDS
from par.space.space import parse_space

SPACE = """
question: Which search finds the best configuration?
backbones: [tiny-qwen2]
fixed: {task.name: swap-s3, task.rendering: compact, task.train_depth: 8, stretch.enabled: true, stretch.start: 0}
search:
  optim.lr: {float: [1.0e-4, 1.0e-2], log: true}
  stretch.s_max: {float: [1, 16], log: true}
  stretch.ramp: {float: [0.1, 0.9]}
  train.query_reset: {float: [0, 1]}
configurations: 38
seeds: [2, 4, 6]
confirm: 3
fresh_seeds: 10
"""
RESULTS = Path(__file__).parent / "results" / "search-quality.json"
FIGURES = ("true score", "optimism", "in the best tenth", "seeds")
app = typer.Typer(add_completion=False)


@app.command()
def search_quality(
    repetitions: Annotated[int, typer.Option(min=2, help="Landscapes, each searched by every search.")] = 200,
    out: Annotated[Path, typer.Option(dir_okay=False, help="File of the figures.")] = RESULTS,
) -> None:
    """Compare searches at equal numbers of trained seeds, on simulated landscapes (benchmarks/landscape.py).

    True score: what the chosen configuration is worth over all seeds there could be, as a share of the best there is.
    Optimism: how much more the search promises. In the best tenth: the share of the seeds that went to the tenth of the
    tried configurations that are truly the best. Each with the half-width of its 95 % interval over the repetitions.
    """
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    figures = {name: compared(name, repetitions) for name in SEARCHES}
    Console().print(_table(figures, repetitions))
    rows = {name: dict(zip(FIGURES, _intervals(values), strict=True)) for name, values in figures.items()}
    out.write_text(json.dumps({**provenance(), "repetitions": repetitions, "searches": rows}, indent=1) + "\n")


def compared(name: str, repetitions: int) -> np.ndarray:
    """The figures of one search on every landscape, the same landscapes for all."""
    space, rows = parse_space(SPACE, Path("quality.yaml")), list[tuple[float, ...]]()
    for number in track(range(repetitions), name, console=Console(stderr=True)):
        landscape = Landscape(space, np.random.default_rng(number))
        outcome = SEARCHES[name](landscape, replace(space, sampler_seed=1000 * number))
        rows.append(outcome.figures(landscape))
    return np.array(rows)


def _intervals(values: np.ndarray) -> list[tuple[float, float]]:
    """Mean, and half the width of its 95 % interval, of each figure."""
    half = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return [(float(mean), float(width)) for mean, width in zip(values.mean(axis=0), half, strict=True)]


def _table(figures: dict[str, np.ndarray], repetitions: int) -> Table:
    title = f"{SEEDS} trained seeds for each search, {repetitions} landscapes, mean ± 95 %"
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("search", no_wrap=True)
    for name in FIGURES:
        table.add_column(name, justify="right")
    for name, values in figures.items():
        *shares, seeds = _intervals(values)
        table.add_row(name, *(f"{mean:.1%} ± {width:.1%}" for mean, width in shares), f"{seeds[0]:.0f}")
    return table


if __name__ == "__main__":
    app()

"""`par thresholds`: the best halting rule of a trained model, from its trace."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from par.evaluation.thresholds import Figures, Grid, RankedRule, ranking
from par.evaluation.traces import Traces
from ray_jobs.console import out, refusing


def thresholds(
    trace: Annotated[Path, typer.Argument(metavar="TRACE.parquet", help="What one trained model said, by iteration.")],
    top: Annotated[int, typer.Option(min=1, help="Rules to show, best first.")] = 10,
) -> None:
    """Find the best halting rule of a trained model from its trace, without the model.

    A model with learned halting says after every iteration how likely it is done, p_yes. It halts at the first
    iteration R with p_yes above tau at R and in at least k of the m iterations from R on. All three can be chosen after
    training: every rule of a grid of more than ten thousand is scored on the calibration questions of the trace, and
    the best ones on its test questions, by which none of them was chosen. A rule whose test figures fall far behind
    its calibration figures was found by chance.

    The best rule has the highest full state; among equals the highest single query, then the fewest questions not
    halted, then the fewest iterations, then the smallest m.

    full state: prompts whose boxes are all right. single query: questions answered right. not halted: questions that
    found no such R, counted as wrong. iterations: mean R of those that halted.

    Exit code: 0, or 2 for a trace that is missing or malformed.
    """
    begin = time.perf_counter()
    grid = Grid.every()
    with refusing():
        traces = Traces.from_parquet(trace)
        ranked = ranking(traces, grid, top=top)
    out.print(_table(ranked))
    best = ranked[0].rule
    out.print(f"Best on calibration: halting.tau={best.tau} halting.k={best.k} halting.m={best.m}")
    out.print(
        f"{len(grid)} rules, {len(traces.split_S)} questions of {traces.iterations} iterations each, "
        f"{time.perf_counter() - begin:.1f} s",
        style="dim",
    )


def _table(ranked: list[RankedRule]) -> Table:
    table = Table()
    for column in ("tau", "k", "m"):
        table.add_column(column, justify="right")
    for split in ("calibration", "test"):
        for figure in ("full state", "single query", "not halted", "iterations"):
            table.add_column(f"{split}\n{figure}", justify="right")
    for place in ranked:
        rule = place.rule
        figures = (*_texts(place.calibration), *_texts(place.test))
        table.add_row(f"{rule.tau:g}", str(rule.k), str(rule.m), *figures)
    return table


def _texts(figures: Figures) -> tuple[str, ...]:
    shares = (figures.full_state, figures.single_query, figures.not_halted)
    iterations = "–" if figures.mean_iterations is None else f"{figures.mean_iterations:.1f}"
    return (*(f"{share:.1%}" for share in shares), iterations)

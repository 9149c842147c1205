"""The command line: measure cases, print their ratios, keep them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import evaluation, train_step
from benchmarks.harness import TOLERANCE, Case, Result, Spread, disagreement, store, take_times
from benchmarks.machine import Hardware, provenance

CASES: dict[str, Callable[[], Case]] = {"train_step": train_step.case, "evaluation": evaluation.case}
RESULTS = Path(__file__).parent / "results"
THREADS = 1
"""Torch threads: what a trial has, which by default trains on one CPU; a second one would wait for other processes."""
app = typer.Typer(rich_markup_mode="markdown", add_completion=False)


def _known(names: list[str] | None) -> list[str]:
    unknown = sorted(set(names or ()) - set(CASES))
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is no case: choose from {', '.join(CASES)}")
    return names or list(CASES)


@app.command()
def bench(
    cases: Annotated[
        list[str] | None,
        typer.Argument(callback=_known, metavar="CASE", help=f"Any of {', '.join(CASES)}; all by default."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=3, help="Timed calls of each, after the warm-up.")] = 7,
    out: Annotated[
        Path,
        typer.Option(
            file_okay=False, show_default="benchmarks/results", help="Folder of the results, one JSON per hardware."
        ),
    ] = RESULTS,
) -> None:
    """Time the product beside a plain reference with the same weights that gives the same answers.

    The reference follows the paper's pseudo-code: a prompt for every question, and logits of every token over the
    vocabulary. Each case first shows that the two agree; then they take turns, so that both see the same load of the
    machine. The table has medians with quartiles, in answers per second; the ratio is taken pair by pair. Run it on an
    idle machine: spreads of more than a tenth of the median say that it was not.
    """
    console, hardware = Console(), Hardware.here()
    torch.set_num_threads(THREADS)
    versions = ", ".join(f"{name} {number}" for name, number in provenance()["versions"].items())
    console.print(f"{hardware}\n{versions}, torch threads: {torch.get_num_threads()}", highlight=False, soft_wrap=True)
    results = [_measured(CASES[name](), repeats, console) for name in cases or CASES]
    console.print(_table(results))
    console.print(f"kept in {store(results, hardware, out)}", highlight=False, soft_wrap=True)


def _measured(case: Case, repeats: int, console: Console) -> Result:
    with console.status(f"{case.name}: do product and reference agree?"):
        difference = disagreement(case)
    console.print(f"{case.name}: product and reference agree to {difference:.1e} (limit {TOLERANCE:.0e})")
    with console.status(f"{case.name}: {repeats} repeats of each"):
        return Result(case=case, disagreement=difference, times=take_times(case, repeats=repeats))


def _table(results: list[Result]) -> Table:
    table = Table(title="answers per second, median \\[quartiles]", box=SIMPLE_HEAD)
    table.add_column("case", no_wrap=True)
    for column in ("product", "reference", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    for result in results:
        rates = (_shown(spread, ",.0f") for spread in (result.product, result.reference))
        table.add_row(result.case.name, *rates, _shown(result.times.ratio, ".2f"))
    return table


def _shown(spread: Spread, digits: str) -> str:
    return f"{spread.median:{digits}} \\[{spread.low:{digits}}–{spread.high:{digits}}]"


if __name__ == "__main__":
    app()

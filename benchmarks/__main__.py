"""The command line: measure cases, print their ratios, keep them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import core_iteration, evaluation, ledger, thresholds, train_step
from benchmarks.harness import TOLERANCE, Case, Result, Spread, Target, disagreement, store, take_times
from benchmarks.machine import Hardware, provenance
from par.training.parallel import device_of_this_worker
from par.training.speed import product_rate

CASES: dict[str, Callable[[], Case]] = {
    "train_step": train_step.case,
    "train_step_wide": train_step.wide_case,
    "evaluation": evaluation.case,
    "core_iteration": core_iteration.case,
    "thresholds": thresholds.case,
    "ledger": ledger.case,
}
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
    repeats: Annotated[
        int | None,
        typer.Option(min=3, show_default="3 to 25", help="Timed calls of each; by default as the case needs."),
    ] = None,
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
    machine. core_iteration is held against its own bare matrix products instead: there the ratio says how many times as
    long the product takes. A wide training step is held against the machine's matrix-product peak, too.

    The table has medians with quartiles; ratios are taken pair by pair. Run it on an idle machine: spreads of more than
    a tenth of the median say that it was not.
    """
    console, hardware = Console(), Hardware.here()
    torch.set_num_threads(THREADS)
    versions = ", ".join(f"{name} {number}" for name, number in provenance()["versions"].items())
    console.print(f"{hardware}\n{versions}, torch threads: {torch.get_num_threads()}", highlight=False, soft_wrap=True)
    results = [_measured(CASES[name](), repeats, console) for name in cases or CASES]
    console.print(_table(results))
    console.print(f"kept in {store(results, hardware, out)}", highlight=False, soft_wrap=True)


def _measured(case: Case, repeats: int | None, console: Console) -> Result:
    repeats = repeats or case.repeats
    with console.status(f"{case.name}: do product and reference agree?"):
        difference = disagreement(case)
    if difference is not None:
        console.print(f"{case.name}: product and reference agree to {difference:.1e} (limit {TOLERANCE:.0e})")
    device = device_of_this_worker()
    with console.status(f"{case.name}: {repeats} repeats of each"):
        before = product_rate(device, torch.float32) if case.flops else None
        times = take_times(case, repeats=repeats)
    peak = max(before, product_rate(device, torch.float32)) if before else None
    return Result(case=case, disagreement=difference, times=times, peak=peak)


def _table(results: list[Result]) -> Table:
    table = Table(title="units per second, median \\[quartiles]", box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("case", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for column in ("product", "beside it", "ratio"):
        table.add_column(column, justify="right")
    for column in ("target", "met"):
        table.add_column(column, justify="right", no_wrap=True)
    for result in results:
        case, use, rate = result.case, result.utilisation, result.rate
        rates = (_rate(result.product), _rate(result.reference))
        table.add_row(case.name, case.unit, *rates, *_judged(result.ratio, case.target))
        if use and rate and result.peak:
            rates = (_rate(rate.scaled(1e-9)), f"{result.peak / 1e9:,.0f}")
            table.add_row("  of torch.mm", "GFLOP", *rates, *_judged(use, case.utilisation))
    return table


def _judged(ratio: Spread, target: Target) -> tuple[str, str, str]:
    return _shown(ratio, ".2f"), str(target), "yes" if target.met(ratio.median) else "no"


def _rate(spread: Spread) -> str:
    return _shown(spread, ",.0f" if spread.median >= 100 else ".1f")


def _shown(spread: Spread, digits: str) -> str:
    return f"{spread.median:{digits}} \\[{spread.low:{digits}}–{spread.high:{digits}}]"


if __name__ == "__main__":
    app()

"""The progress of one seed: a bar in a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from par import metrics as m
from ray_jobs.console import PRINT_EVERY_S, out, say

READINGS = {"evaluate": "evaluated", "halting": "let halt", "trace": "traced"}
"""What an evaluation does with prompts, by its phase."""
Show = Callable[[Mapping[str, Any]], object]
"""Takes a record of what the seed reports."""


@contextmanager
def shown(steps: int = 0) -> Iterator[Show]:
    """Show the records of a seed, of whose training there are ``steps``.

    In a terminal as a bar for each phase, elsewhere as a line every few seconds and at the end of a phase.
    """
    if not out.is_terminal:
        yield _Lines(steps).show
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out) as progress:
        tasks: dict[str, TaskID] = {}

        def show(row: Mapping[str, Any]) -> None:
            done, total = _reached(row, steps)
            if row["phase"] not in tasks:
                tasks[row["phase"]] = progress.add_task(row["phase"], total=total)
            progress.update(tasks[row["phase"]], completed=done, description=described(row, steps))

        yield show


class _Lines:
    """Progress as plain lines, at most one in PRINT_EVERY_S but for the last of a phase."""

    def __init__(self, steps: int) -> None:
        self.steps, self.last = steps, float("-inf")

    def show(self, row: Mapping[str, Any]) -> None:
        done, total = _reached(row, self.steps)
        if done == total or monotonic() - self.last >= PRINT_EVERY_S:
            self.last = monotonic()
            say(described(row, self.steps))


def _reached(row: Mapping[str, Any], steps: int) -> tuple[int, int]:
    """How far a phase has come, of how much."""
    return (row["step"], steps) if row["phase"] == "train" else (row["prompts"], row["sequences"])


def described(row: Mapping[str, Any], steps: int) -> str:
    """How far a seed of so many steps has come, as it reports it."""
    if row.get("phase") == "train":
        rate = row[m.STEPS_PER_S.name]
        left = (steps - row["step"]) / rate
        speed = f"{rate:.1f} steps/s ({row[m.UTILISATION.name]:.0%} of the peak)"
        return f"step {row['step']}/{steps}  loss {row[m.LOSS.name]:.4f}  {speed}  {left:.0f} s left"
    if row.get("phase") in READINGS:
        return f"{READINGS[row['phase']]} {row['prompts']} of {row['sequences']} prompts"
    return f"attempt {row.get('attempt', 1)}, {row.get('micro_batch')} prompts per pass"

"""The progress of one seed: a bar in a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from par import metrics as m
from ray_jobs.console import PRINT_EVERY_S


@contextmanager
def shown(console: Console, steps: int = 0) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show the records of one seed, of whose training there are ``steps``.

    In a terminal as a bar for each phase, elsewhere as a line every few seconds and at the end of a phase.
    """
    if not console.is_terminal:
        yield _Lines(console, steps).show
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        tasks: dict[str, TaskID] = {}

        def show(row: Mapping[str, Any]) -> None:
            phase, (done, total, text) = row["phase"], _described(row, steps)
            if phase not in tasks:
                tasks[phase] = progress.add_task(phase, total=total)
            progress.update(tasks[phase], completed=done, description=text)

        yield show


class _Lines:
    """Progress as plain lines, at most one in PRINT_EVERY_S but for the last of a phase."""

    def __init__(self, console: Console, steps: int, clock: Callable[[], float] = monotonic) -> None:
        self.console, self.steps, self.clock, self.last = console, steps, clock, float("-inf")

    def show(self, row: Mapping[str, Any]) -> None:
        done, total, text = _described(row, self.steps)
        if done == total or self.clock() - self.last >= PRINT_EVERY_S:
            self.last = self.clock()
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _described(row: Mapping[str, Any], steps: int) -> tuple[int, int, str]:
    """How far a phase has come, of how much, and in words."""
    if row["phase"] == "train":
        speed = f"{row[m.STEPS_PER_S.name]:.1f} steps/s"
        return row["step"], steps, f"step {row['step']}/{steps}  loss {row[m.LOSS.name]:.4f}  {speed}"
    return row["prompts"], row["sequences"], f"evaluated {row['prompts']} of {row['sequences']} prompts"

"""What the commands share: where they print, and how bad input ends them."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console, RenderableType

from par.errors import DiskFullError, ParError

out = Console(width=None if sys.stdout.isatty() else 150)

PRINT_EVERY_S = 5.0
"""How often the progress of one seed is printed at most."""
FAILED, BAD_INPUT = 1, 2
"""Exit codes: of work that could not be done, of input that cannot be run."""


def bytes_text(count: float) -> str:
    """Bytes with three digits and a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def as_text(shown: RenderableType) -> str:
    """What a console would print, without colours."""
    console = Console(width=150, file=io.StringIO())
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def say(line: str, style: str | None = None) -> None:
    """Print a line that may hold anything, such as a path or the message of a failure: no part of it is markup."""
    out.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def warn(line: str) -> None:
    """Print what a person should not overlook."""
    say(line, "yellow")


@contextmanager
def refusing() -> Iterator[None]:
    """End the command with one message at a ParError, and with exit code 2, or 1 where a disk is full.

    Nobody gets a traceback for bad input.
    """
    try:
        yield
    except ParError as fault:
        Console(stderr=True, soft_wrap=True).print(f"error: {fault}", style="red", markup=False, highlight=False)
        raise typer.Exit(FAILED if isinstance(fault, DiskFullError) else BAD_INPUT) from None

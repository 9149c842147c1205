"""The space of a sweep that exists: as it began, or as it was last made larger."""

from dataclasses import replace
from pathlib import Path

from par.study.ledger import Ledger
from par.study.space import Space, parse_space

MAY_GROW = ("configurations", "seeds")
"""What a sweep may have more of when it goes on."""


def recorded_space(ledger: Ledger) -> Space:
    """Read the space from the ledger, with the totals that are wanted by now. Raises SpaceError if it is faulty."""
    wanted = ledger.wanted()
    space = parse_space(wanted.get("space", ledger.sweep["space"]), Path(ledger.sweep["space_path"]))
    return replace(space, **{key: wanted[key] for key in MAY_GROW if key in wanted})


def want(ledger: Ledger, space: Space) -> None:
    """Record what the sweep is to have from now on."""
    ledger.want({"space": space.text, **{key: getattr(space, key) for key in MAY_GROW}})

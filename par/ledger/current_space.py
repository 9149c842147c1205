"""The space of a sweep that exists: as it began, or as it was last made larger."""

from dataclasses import replace
from pathlib import Path

from ruamel.yaml import YAML

from par.config.keys import renamed_text
from par.ledger.ledger import Ledger
from par.ledger.records import SweepTotals
from par.space.space import Exhausted, Space, parse_space


def current_space(ledger: Ledger) -> Space:
    """Read the space from the ledger, with its totals as they are now. Raises SpaceError if it is faulty."""
    totals = ledger.totals()
    text = renamed_text(totals.space or ledger.sweep.space)
    space = parse_space(text, Path(ledger.sweep.space_path))
    return replace(
        space,
        configurations=totals.configurations or space.configurations,
        stages=replace(space.stages, rungs=totals.seeds or space.stages.rungs),
        exhausted={backbone: Exhausted(*limit) for backbone, limit in (totals.exhausted or {}).items()},
    )


def current_question(ledger: Ledger) -> str:
    """What the sweep is to answer, without the check of its space."""
    return str(YAML(typ="safe").load(ledger.sweep.space)["question"])


def write_totals(ledger: Ledger, space: Space) -> None:
    """Record that the sweep is to have from now on what ``space`` says."""
    configurations, seeds = space.configurations, space.stages.rungs
    ledger.write_totals(
        SweepTotals(space=space.text, configurations=configurations, seeds=seeds, exhausted=space.exhausted)
    )


def write_exhausted(ledger: Ledger, space: Space, backbone: str, found: int) -> Space:
    """Record that a backbone has no further configuration than those found; returns the space that says so.

    Whoever raises the totals above those of now has the search look again. Nothing else of them changes.
    """
    limit = Exhausted(found, space.shares()[backbone])
    space = replace(space, exhausted={**space.exhausted, backbone: limit})
    ledger.write_totals(replace(ledger.totals(), exhausted=space.exhausted))
    return space

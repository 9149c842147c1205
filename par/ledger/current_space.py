"""The space of a sweep that exists: as it began, or as it was last made larger."""

from dataclasses import replace
from pathlib import Path

from ruamel.yaml import YAML

from par.config.keys import renamed_text
from par.ledger.ledger import Ledger
from par.space.space import Exhausted, Space, parse_space


def current_space(ledger: Ledger) -> Space:
    """Read the space from the ledger, with the totals that are wanted by now. Raises SpaceError if it is faulty."""
    wanted = ledger.wanted()
    text = renamed_text(wanted.get("space", ledger.sweep["space"]))
    space = parse_space(text, Path(ledger.sweep["space_path"]))
    seeds = wanted.get("seeds", space.stages.rungs)
    rungs = (seeds,) if isinstance(seeds, int) else tuple(seeds)
    configurations = wanted.get("configurations", space.configurations)
    exhausted = {backbone: Exhausted(*limit) for backbone, limit in wanted.get("exhausted", {}).items()}
    stages = replace(space.stages, rungs=rungs)
    return replace(space, configurations=configurations, stages=stages, exhausted=exhausted)


def current_question(ledger: Ledger) -> str:
    """What the sweep is to answer, without the check of its space."""
    return str(YAML(typ="safe").load(ledger.sweep["space"])["question"])


def want(ledger: Ledger, space: Space) -> None:
    """Record what the sweep is to have from now on."""
    totals = {"configurations": space.configurations, "seeds": list(space.stages.rungs), "exhausted": space.exhausted}
    ledger.want({"space": space.text, **totals})


def want_no_more(ledger: Ledger, space: Space, backbone: str, found: int) -> Space:
    """Record that a backbone has no further configuration than those found; returns the space that says so.

    Whoever wants more than are wanted now has the search look again. Nothing else of what is wanted changes.
    """
    limit = Exhausted(found, space.shares()[backbone])
    space = replace(space, exhausted={**space.exhausted, backbone: limit})
    ledger.want({**ledger.wanted(), "exhausted": space.exhausted})
    return space

"""The space of a sweep that exists: as it began, or as it was last made larger."""

from dataclasses import replace
from pathlib import Path

from ruamel.yaml import YAML

from par.study.ledger import Ledger
from par.study.space import Space, parse_space


def recorded_space(ledger: Ledger) -> Space:
    """Read the space from the ledger, with the totals that are wanted by now. Raises SpaceError if it is faulty."""
    wanted = ledger.wanted()
    space = parse_space(wanted.get("space", ledger.sweep["space"]), Path(ledger.sweep["space_path"]))
    rungs = tuple(wanted.get("seeds", space.stages.rungs))
    configurations = wanted.get("configurations", space.configurations)
    return replace(space, configurations=configurations, stages=replace(space.stages, rungs=rungs))


def recorded_question(ledger: Ledger) -> str:
    """What the sweep is to answer, without the check of its space."""
    return str(YAML(typ="safe").load(ledger.sweep["space"])["question"])


def want(ledger: Ledger, space: Space) -> None:
    """Record what the sweep is to have from now on."""
    ledger.want({"space": space.text, "configurations": space.configurations, "seeds": list(space.stages.rungs)})

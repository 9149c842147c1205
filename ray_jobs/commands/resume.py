"""`par resume`: go on with a sweep."""

from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

from ray_jobs import options as o
from ray_jobs.commands.sweep import sweep

OF_A_BEGINNING = {"name", "resume", "warm_start"}
"""Options of `par sweep` that say how a sweep begins."""


def resume(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the sweep; `par status` lists them.")],
    space: o.Grown = None,
    **options: Any,
) -> None:
    """Go on with a sweep that was interrupted, or make it larger.

    Finished seeds stay as they are, byte for byte; interrupted ones continue from their last checkpoint. Seeds that
    were given up wait for --failed. What a trial takes, how many run at once, the limits and MLflow's address are those
    that the sweep had, where nothing else is said here. Totals are totals: --configurations 40 means 40 however often
    it is said.

    Exit code: 0 when every seed has a result, 1 when some have none yet, 2 for bad input, 143 or 130 after a signal.
    """
    sweep(resume=name, space=space, **options)


def _signature() -> Signature:
    """What typer reads the options from: those of `par sweep`, where ``resume`` says nothing itself."""
    own = {name: part for name, part in signature(resume).parameters.items() if part.kind != Parameter.VAR_KEYWORD}
    taken = {name: part for name, part in signature(sweep).parameters.items() if name not in {*own, *OF_A_BEGINNING}}
    return Signature([*own.values(), *taken.values()])


vars(resume)["__signature__"] = _signature()

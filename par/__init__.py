"""Looped language models trained with Progress-Aligned Recurrence: the science, free of any cluster library."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from par.config.run import RunConfig as RunConfig
    from par.errors import ParError as ParError
    from par.evaluation.accuracy import DepthCurve as DepthCurve
    from par.evaluation.accuracy import depth_curve as depth_curve
    from par.evaluation.exam import Exam as Exam
    from par.evaluation.extrapolation import Extrapolation as Extrapolation
    from par.evaluation.extrapolation import extrapolation as extrapolation
    from par.evaluation.halting import HaltingCurve as HaltingCurve
    from par.evaluation.halting import halting_curve as halting_curve
    from par.ledger.ledger import Ledger as Ledger
    from par.ledger.ledger import SeedFolder as SeedFolder
    from par.ledger.records import ConfigRecord as ConfigRecord
    from par.ledger.records import SeedResult as SeedResult
    from par.ledger.records import SweepRecord as SweepRecord
    from par.seed.kept import KeptModel as KeptModel
    from par.seed.train import run_seed as run_seed
    from par.space.space import Space as Space
    from par.space.space import load_space as load_space

__version__ = "0.1.0"

_MODULES = {
    "par.config.run": ("RunConfig",),
    "par.errors": ("ParError",),
    "par.evaluation.accuracy": ("DepthCurve", "depth_curve"),
    "par.evaluation.exam": ("Exam",),
    "par.evaluation.extrapolation": ("Extrapolation", "extrapolation"),
    "par.evaluation.halting": ("HaltingCurve", "halting_curve"),
    "par.ledger.ledger": ("Ledger", "SeedFolder"),
    "par.ledger.records": ("ConfigRecord", "SeedResult", "SweepRecord"),
    "par.seed.kept": ("KeptModel",),
    "par.seed.train": ("run_seed",),
    "par.space.space": ("Space", "load_space"),
}
"""The public names by the module that has them, which is imported when one is asked for: torch takes seconds."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'par' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["__version__", *(name for names in _MODULES.values() for name in names)])

"""One seed from its first step to its result, and the model that it keeps, without a cluster."""

from par.seed.kept import KeptModel
from par.seed.train import run_seed

__all__ = ["KeptModel", "run_seed"]

"""One seed from its first step to its result, without a cluster."""

from par.seed.train import run_seed

__all__ = ["run_seed"]

"""Positional stretch: positions multiplied by one factor per step, drawn from a growing range."""

from par.config import RunConfig
from par.training.chance import Stream, generator


def largest_factor(run: RunConfig, step: int) -> float:
    """s_max(t): 1 until ``stretch.start``, then linear to ``stretch.s_max`` over ``stretch.ramp`` of the run."""
    progress = step / run.train.steps - run.stretch.start
    if not run.stretch.enabled or progress < 0:
        return 1.0
    risen = min(1.0, progress / run.stretch.ramp) if run.stretch.ramp else 1.0
    return 1.0 + (run.stretch.s_max - 1.0) * risen


def draw_factor(run: RunConfig, step: int) -> float:
    """s from [1, s_max(t)], a pure function of (settings, seed, step)."""
    rng, largest = generator(Stream.STRETCH, run.seed, step), largest_factor(run, step)
    if run.stretch.distribution == "log_uniform":
        return float(largest ** rng.uniform())
    return float(rng.uniform(1.0, largest))

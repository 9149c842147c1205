"""Positional stretch: positions multiplied by one factor per step, drawn from a growing range."""

from par.config.run import RunConfig
from par.training.chance import Stream, generator


def factor_range(run: RunConfig, step: int) -> tuple[float, float]:
    """s_min(t) and s_max(t): both 1 until ``stretch.start``, then linear to their ends over ``stretch.ramp``."""
    stretch, progress = run.stretch, step / run.train.steps - run.stretch.start
    if not stretch.enabled or progress < 0:
        return 1.0, 1.0
    risen = min(1.0, progress / stretch.ramp) if stretch.ramp else 1.0
    return 1.0 + (stretch.s_min - 1.0) * risen, 1.0 + (stretch.s_max - 1.0) * risen


def draw_factor(run: RunConfig, step: int) -> float:
    """s from [s_min(t), s_max(t)], a pure function of (settings, seed, step)."""
    rng, (least, largest) = generator(Stream.STRETCH, run.seed, step), factor_range(run, step)
    if run.stretch.distribution == "log_uniform":
        return float(least * (largest / least) ** rng.uniform())
    return float(rng.uniform(least, largest))

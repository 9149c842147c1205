"""What a step draws: operations d and iterations R, prefixes and boxes, a further No, the stretch of positions.

Chance is a pure function of (seed, step): no generator lives long enough to need saving.
"""

from dataclasses import dataclass
from enum import IntEnum
from math import ceil

import numpy as np

from par.config.groups import ScheduleConfig
from par.config.run import RunConfig

HOLD_SIGMA = 0.5
"""Spread of the log-normal rate of the hold schedule (algorithm §5)."""


class Stream(IntEnum):
    """Independent substreams of one seed, so that no setting of one shifts the draws of another.

    Examples have their own, in par.tasks.streams.
    """

    INITIALISATION = 0
    DEPTH = 1
    LENGTHS = 2
    BOXES = 3
    RESET = 4
    STRETCH = 5
    HALTING = 6


def generator(stream: Stream, seed: int, step: int = 0) -> np.random.Generator:
    """A fresh generator for one use; equal on every rank, and equal again after a resume."""
    return np.random.default_rng((int(stream), seed, step))


def integer_seed(stream: Stream, seed: int) -> int:
    """A seed in 0 … 2^32 − 1 for a library with a generator of its own."""
    return int(generator(stream, seed).integers(2**32))


@dataclass(frozen=True, slots=True)
class StepDepth:
    """One step's draw."""

    operations: int
    """Operations in every prompt of the batch."""
    iterations: int
    """R."""
    one_depth: bool
    """True where every prompt is asked for all of its operations; False where each branch draws its own prefix."""


def draw_depth(run: RunConfig, step: int) -> StepDepth:
    """Draw d and R: a pure function of (settings, seed, step), equal on every rank and after a resume."""
    rng = generator(Stream.DEPTH, run.seed, step)
    d_train, c = run.task.train_depth, run.recurrence.step_size
    d = int(rng.integers(1, d_train + 1))
    if run.schedule.kind == "forced":
        return StepDepth(d, ceil(d / c) + int(rng.integers(run.schedule.overrun + 1)), True)
    iterations = _free_iterations(run.schedule, rng)
    if run.schedule.kind == "hold" and run.train.branches.prefixes > 1:
        return StepDepth(d_train, iterations, False)
    return StepDepth(d, iterations, True)


def _free_iterations(schedule: ScheduleConfig, rng: np.random.Generator) -> int:
    """R of the schedules that do not look at d: constant, uniform up to a largest, or hold's with a configured mean."""
    if schedule.kind == "fixed":
        return int(schedule.iterations)
    if schedule.kind == "random":
        return int(rng.integers(1, int(schedule.iterations) + 1))
    if schedule.distribution == "uniform":
        return int(rng.integers(1, int(2 * schedule.iterations)))
    rate = (schedule.iterations - 1) * rng.lognormal(-(HOLD_SIGMA**2) / 2, HOLD_SIGMA)
    return 1 + int(rng.poisson(rate))


def answered_iterations(run: RunConfig, iterations: int) -> tuple[int, ...]:
    """The iterations (1-based) whose read-out has an answer target: the window, or the last one alone."""
    if run.objective == "final_only":
        return (iterations,)
    return tuple(range(max(1, iterations - run.recurrence.gradient_window + 1), iterations + 1))


def taught_iterations(run: RunConfig, answered: tuple[int, ...], operations: int) -> tuple[int, ...]:
    """The iterations k, longest truncation first, that a teacher answers: those with c·k operations of more."""
    if run.objective != "prefix_distill":
        return ()
    return tuple(k for k in reversed(answered) if run.recurrence.step_size * k < operations)


def draw_lengths(run: RunConfig, step: int, depth: StepDepth) -> np.ndarray:
    """Prefix lengths (batch, prefixes) in operations; the first is the whole prompt where the batch has one depth."""
    rng = generator(Stream.LENGTHS, run.seed, step)
    shape = (run.train.batch_size, run.train.branches.prefixes)
    lengths = rng.integers(1, depth.operations + 1, size=shape)
    if depth.one_depth:
        lengths[:, 0] = depth.operations
    return lengths


def draw_boxes(run: RunConfig, step: int, boxes: int) -> np.ndarray:
    """One box (batch, prefixes) for every prefix: the question of ``branches.boxes: one``."""
    rng = generator(Stream.BOXES, run.seed, step)
    return rng.integers(boxes, size=(run.train.batch_size, run.train.branches.prefixes))


def extra_negative(run: RunConfig, step: int, depth: StepDepth) -> int | None:
    """One iteration before the gradient window that is read, too: a further No. None where there is none to be had.

    It is before the completion of the deepest branch of the batch; of several prefixes shorter ones may be at Yes.
    """
    if run.halting.mode == "forced":
        return None
    incomplete = ceil(int(draw_lengths(run, step, depth).max()) / run.recurrence.step_size) - 1
    last = min(depth.iterations - run.recurrence.gradient_window, incomplete)
    return int(generator(Stream.HALTING, run.seed, step).integers(1, last + 1)) if last >= 1 else None


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

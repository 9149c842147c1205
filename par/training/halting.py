"""Targets of learned halting: Yes once the computation is complete, both classes with equal weight."""

from math import ceil

import numpy as np

from par.config.run import RunConfig
from par.training.chance import Stream, generator
from par.training.depth import StepDepth, draw_lengths


def extra_negative(run: RunConfig, step: int, depth: StepDepth) -> int | None:
    """One iteration before the gradient window that is read, too: a further No. None where there is none to be had.

    It is before the completion of the deepest branch of the batch; of several prefixes shorter ones may be at Yes.
    """
    if run.halting.mode == "forced":
        return None
    incomplete = ceil(int(draw_lengths(run, step, depth).max()) / run.recurrence.step_size) - 1
    last = min(depth.iterations - run.recurrence.gradient_window, incomplete)
    return int(generator(Stream.HALTING, run.seed, step).integers(1, last + 1)) if last >= 1 else None


def halting_targets(run: RunConfig, kept: tuple[int, ...], lengths_BN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Yes (1) or No (0) and its weight, both (K, B, N), for the whole batch.

    Yes iff c·k operations reach the branch's length. The Yes weights add up to 1/2 and so do the No weights; a class
    without a member adds nothing.
    """
    completed_K = run.recurrence.step_size * np.array(kept)
    yes_KBN = completed_K[:, None, None] >= lengths_BN
    n_yes = int(yes_KBN.sum())
    n_no = yes_KBN.size - n_yes
    weights_KBN = np.where(yes_KBN, 0.5 / max(n_yes, 1), 0.5 / max(n_no, 1))
    return yes_KBN.astype(np.int64), weights_KBN

"""Traces for tests."""

from collections.abc import Sequence

import numpy as np

from par.evaluation.traces import SPLITS, Traces


def recorded(
    *,
    sequences: int = 3,
    depths: Sequence[int] = (2, 5),
    boxes: int = 2,
    iterations: int = 6,
    p_yes: Sequence[float] = (0.1, 0.9, 0.6),
    step_size: int = 1,
    seed: int = 0,
) -> Traces:
    """A trace in shuffled order whose p_yes repeats the given numbers and whose answers are right by chance."""
    axes = np.meshgrid(SPLITS, np.arange(sequences), depths, np.arange(boxes), indexing="ij")
    split_S, sequence_S, depth_S, box_S = (axis.ravel() for axis in axes)
    S = len(split_S)
    rng = np.random.default_rng(seed)
    order_S = rng.permutation(S)
    return Traces(
        split_S=split_S[order_S],
        sequence_S=sequence_S.astype(np.int32)[order_S],
        depth_S=depth_S.astype(np.int32)[order_S],
        completed_S=-(-depth_S // step_size).astype(np.int32)[order_S],
        box_S=box_S.astype(np.int8)[order_S],
        target_S=rng.integers(0, boxes, S).astype(np.int8),
        p_yes_SK=np.resize(np.array(p_yes, dtype=np.float16), (S, iterations)),
        answer_SK=rng.integers(0, boxes, (S, iterations)).astype(np.int8),
    )

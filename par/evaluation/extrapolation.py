"""How far beyond its training depth a model reads: d50, G, and the area under the full-state curve."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from par.errors import DataError

HALF = 0.5
"""Single-query accuracy that counts as reached."""


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """Where single-query accuracy falls below one half.

    ``d50`` is in operations and ``G`` is d50 / d_train. ``censored`` means that accuracy never fell below one half on
    the grid, so that both are lower bounds. ``n_crossings`` counts the passages of one half from d_train on, both down
    and up.
    """

    d50: float
    G: float
    censored: bool
    n_crossings: int


def extrapolation(depths: Sequence[int], single_query: Sequence[float], *, train_depth: int) -> Extrapolation:
    """Find d50 and G = d50 / d_train from the accuracy at each depth, in operations, ascending.

    From d_train on, d50 is the first fall below one half, linear in log depth between the two grid points around it.
    Never below: G is the deepest depth / d_train, censored. Below already at d_train: the shorter depths decide by the
    same rule, at the first fall after one of them reached one half, so that G < 1; if none reached it, d50 = G = 0.
    Raises DataError if the depths do not ascend or lack d_train, or if an accuracy is outside 0..1.
    """
    start = _check(depths, single_query, train_depth)
    reached = [accuracy >= HALF for accuracy in single_query]
    searched = slice(start, None) if reached[start] else slice(start + 1)
    fall = _first_fall(depths[searched], single_query[searched])
    d50 = float(depths[-1]) if fall is None else fall
    crossings = sum(a != b for a, b in pairwise(reached[start:]))
    return Extrapolation(d50, d50 / train_depth, censored=fall is None, n_crossings=crossings)


def extrapolation_auc(depths: Sequence[int], full_state: Sequence[float], *, train_depth: int) -> float:
    """Average full-state accuracy over log depth from d_train to the deepest depth (trapezoid); a share in [0, 1].

    With d_train as the only such depth it is the accuracy there. Raises DataError as ``extrapolation`` does.
    """
    start = _check(depths, full_state, train_depth)
    points = list(zip(map(math.log, depths[start:]), full_state[start:], strict=True))
    if len(points) == 1:
        return float(full_state[start])
    area = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))
    return min(1.0, area / (points[-1][0] - points[0][0]))


def accuracy_at(depths: Sequence[int], accuracies: Sequence[float], multiple: float, train_depth: int) -> float | None:
    """Accuracy at ``multiple`` x d_train, rounded to whole operations; None if that depth was not tested.

    Raises DataError as ``extrapolation`` does.
    """
    _check(depths, accuracies, train_depth)
    return dict(zip(depths, accuracies, strict=True)).get(round(multiple * train_depth))


def _check(depths: Sequence[int], accuracies: Sequence[float], train_depth: int) -> int:
    """Return the index of d_train in ``depths``."""
    if len(depths) != len(accuracies):
        raise DataError(f"{len(depths)} depths but {len(accuracies)} accuracies: give one accuracy per depth")
    if not all(a < b for a, b in pairwise(depths)):
        raise DataError(f"depths={list(depths)} must ascend: sort them and drop repeated ones")
    for depth, accuracy in zip(depths, accuracies, strict=True):
        if not 0 <= accuracy <= 1:
            raise DataError(f"accuracy={accuracy} at depth {depth} is outside 0..1: record a failed seed as G = 0")
    if train_depth < 1 or train_depth not in depths or depths[0] < 1:
        raise DataError(f"depths={list(depths)} must be at least 1 and hold train_depth={train_depth}: test that depth")
    return list(depths).index(train_depth)


def _first_fall(depths: Sequence[int], accuracies: Sequence[float]) -> float | None:
    """Find the first fall below one half after one half was reached: 0 if it never was, None if there is no fall."""
    if max(accuracies) < HALF:
        return 0.0
    for (near, above), (far, below) in pairwise(zip(depths, accuracies, strict=True)):
        if above >= HALF > below:
            return float(near) * (far / near) ** ((above - HALF) / (above - below))
    return None

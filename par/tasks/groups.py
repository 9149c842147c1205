"""Group word problems: the operations of a task and their composition.

Dimension letters: B prompts, D operations in a prompt, K distinct operations of a task, N boxes.
"""

import math
import re
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, permutations

import numpy as np

from par.errors import ConfigError

BOXES = range(3, 11)
"""Numbers of boxes that a task may have."""
FULL_LIMIT = 6
"""Most boxes of a task that draws from all N! permutations."""
SIMULATED = 4096
"""Prompts behind an estimate of chance."""

Permutation = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GroupTask:
    """A set of operations on boxes, each drawn with equal probability. Tasks of one name are equal."""

    name: str
    boxes: int
    operations_KN: np.ndarray = field(repr=False, compare=False)
    """Read-only. After operation p, box i holds what box p[i] held: state'[i] = state[p[i]]."""


@dataclass(frozen=True, slots=True)
class Chance:
    """What is right without reading the operations, as shares: the better of the unmoved answer and a uniform guess."""

    single_query: float
    full_state: float
    """All boxes right at once; the guess is one of N! arrangements."""


@cache
def parse_task(name: str) -> GroupTask:
    """Build the task ``swap-sN``, ``sN``, ``sN-full`` or ``aN``.

    Raises ConfigError for any other name, for N outside 3..10, and for sN-full above its limit of boxes.
    """
    match = re.fullmatch(r"(swap-s|s|a)([1-9][0-9]?)(-full)?", name)
    family = match and match[1] + (match[3] or "")
    if not match or family not in ("swap-s", "s", "s-full", "a") or int(match[2]) not in BOXES:
        limits = f"N in {BOXES[0]}..{BOXES[-1]}"
        raise ConfigError(f"task.name={name} is not a task: use swap-sN, sN, sN-full or aN with {limits}")
    boxes = int(match[2])
    if family == "s-full" and boxes > FULL_LIMIT:
        raise ConfigError(
            f"task.name={name} would have {boxes}! = {math.factorial(boxes)} operations: "
            f"sN-full ends at N={FULL_LIMIT}, use s{boxes}"
        )
    operations_KN = np.array(_operations(family, boxes), dtype=np.int64)
    operations_KN.setflags(write=False)
    return GroupTask(name=name, boxes=boxes, operations_KN=operations_KN)


def _operations(family: str, boxes: int) -> list[Permutation]:
    if family == "s-full":
        return list(permutations(range(boxes)))
    if family == "a":
        triples = combinations(range(boxes), 3)
        return [_cycle(boxes, *cycle) for a, b, c in triples for cycle in ((a, b, c), (a, c, b))]
    swaps = [_cycle(boxes, *pair) for pair in combinations(range(boxes), 2)]
    return [tuple(range(boxes)), *swaps] if family == "swap-s" else swaps


def _cycle(boxes: int, *cycle: int) -> Permutation:
    """Move what each box of ``cycle`` holds to the next one."""
    held = list(range(boxes))
    for place, box in enumerate(cycle):
        held[box] = cycle[place - 1]
    return tuple(held)


def states(task: GroupTask, operations_BD: np.ndarray) -> np.ndarray:
    """Which object each box holds after j = 0…D operations: (B, D + 1, N), an object numbered by its first box.

    ``operations_BD`` holds rows of ``task.operations_KN``.
    """
    B, D = operations_BD.shape
    states_BJN = np.empty((B, D + 1, task.boxes), dtype=np.int64)
    states_BJN[:, 0] = np.arange(task.boxes)
    for j in range(D):
        sources_BN = task.operations_KN[operations_BD[:, j]]
        states_BJN[:, j + 1] = np.take_along_axis(states_BJN[:, j], sources_BN, axis=1)
    return states_BJN


@cache
def chance(task: GroupTask, depth: int) -> Chance:
    """Estimate chance at ``depth`` operations from simulated prompts; the same numbers at every call."""
    rng = np.random.default_rng(depth)
    objects_N = np.arange(task.boxes)
    state_BN = np.tile(objects_N, (SIMULATED, 1))
    for _ in range(depth):
        sources_BN = task.operations_KN[rng.integers(len(task.operations_KN), size=SIMULATED)]
        state_BN = np.take_along_axis(state_BN, sources_BN, axis=1)
    unmoved_BN = state_BN == objects_N
    return Chance(
        single_query=max(float(unmoved_BN.mean()), 1 / task.boxes),
        full_state=max(float(unmoved_BN.all(axis=1).mean()), 1 / math.factorial(task.boxes)),
    )

"""Examples as pure functions of (task, seed, split, index).

Dimension letters: B examples, D operations, N boxes.
"""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from par.errors import ConfigError
from par.tasks.groups import GroupTask
from par.tasks.wording import NOUNS

EVALUATION_SEED = 0
"""Seed of every test example, whatever the seed of the run."""
WORD = 2**32
"""Seeds and indices end below it: each is one word of a generator's entropy, so that no two streams meet."""


class Split(StrEnum):
    """What an example is for; no two splits share an example's generator. Their order is part of every seed."""

    TRAIN = "train"
    VALIDATION = "validation"
    CALIBRATION = "calibration"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Examples:
    """Problems of equal depth, before any wording."""

    task: GroupTask
    operations_BD: np.ndarray
    """Rows of ``task.operations_KN``."""
    nouns_BN: np.ndarray
    """Rows of NOUNS: the object that begins in each box; an object is numbered by that box."""
    order_BN: np.ndarray
    """The boxes in the order in which a text names their objects."""


def examples(task: GroupTask, *, seed: int, split: Split, indices: Sequence[int] | np.ndarray, depth: int) -> Examples:
    """Draw one example per index; its operations are the first ``depth`` of those at any greater depth.

    Test examples ignore ``seed``. Raises ConfigError for a seed or an index outside 0..2^32 - 1, or a depth below 0.
    """
    _check(seed, indices, depth)
    M, N, K = len(NOUNS), task.boxes, len(task.operations_KN)
    entropy = np.array(
        [zlib.crc32(task.name.encode()), EVALUATION_SEED if split is Split.TEST else seed, list(Split).index(split), 0],
        dtype=np.uint32,
    )
    draws_BX = np.empty((len(indices), M + N + depth))
    for row, index in enumerate(indices):
        entropy[-1] = index
        np.random.default_rng(entropy).random(out=draws_BX[row])
    return Examples(
        task=task,
        operations_BD=(draws_BX[:, M + N :] * K).astype(np.int64),
        nouns_BN=draws_BX[:, :M].argsort(axis=1, kind="stable")[:, :N],
        order_BN=draws_BX[:, M : M + N].argsort(axis=1, kind="stable"),
    )


def _check(seed: int, indices: Sequence[int] | np.ndarray, depth: int) -> None:
    if not 0 <= seed < WORD:
        raise ConfigError(f"seed={seed} is outside 0..{WORD - 1}: choose a smaller one")
    if len(indices) and not 0 <= min(indices) <= max(indices) < WORD:
        raise ConfigError(f"example indices {min(indices)}..{max(indices)} leave 0..{WORD - 1}: the split has no more")
    if depth < 0:
        raise ConfigError(f"depth={depth} is below 0 operations: ask for a prompt of 0 or more")


def evaluation_hash(task: GroupTask, depths: Sequence[int], sequences: int) -> str:
    """Name the frozen test set in sixteen hex digits: equal hashes mean equal examples at equal depths."""
    frozen = examples(
        task, seed=EVALUATION_SEED, split=Split.TEST, indices=range(sequences), depth=max(depths, default=0)
    )
    digest = hashlib.sha256(f"{task.name} {sorted(set(depths))} {sequences}".encode())
    for array in (task.operations_KN, frozen.operations_BD, frozen.nouns_BN, frozen.order_BN):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    digest.update(" ".join(NOUNS).encode())
    return digest.hexdigest()[:16]

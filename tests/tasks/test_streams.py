"""Examples are pure functions of their address."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.errors import ConfigError
from par.tasks.groups import parse_task
from par.tasks.streams import EVALUATION_SEED, Examples, Split, evaluation_hash, examples
from par.tasks.wording import NOUNS

SWAP = parse_task("swap-s5")
WIDE = 20
GOLDEN = [[5, 1, 7, 7, 0, 8, 21, 31, 1, 24, 25, 0, 3, 1, 4, 2], [8, 1, 1, 5, 1, 6, 6, 5, 11, 18, 20, 1, 4, 3, 0, 2]]
GOLDEN_HASH = "1424a07659381843"


def draw(indices, *, task=SWAP, seed=3, split=Split.TRAIN, depth=WIDE) -> Examples:
    return examples(task, seed=seed, split=split, indices=indices, depth=depth)


def parts(batch: Examples) -> list[list[list[int]]]:
    """List what each example consists of, one entry per example."""
    whole = np.concatenate([batch.operations_BD, batch.nouns_BN, batch.order_BN], axis=1)
    return whole.tolist()


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(["swap-s3", "swap-s5", "a5", "s5-full"]),
    seed=st.integers(0, 2**32 - 1),
    split=st.sampled_from(Split),
    index=st.integers(0, 2**32 - 1),
    depths=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_operations_at_a_depth_are_the_first_of_those_at_a_greater_depth(name, seed, split, index, depths):
    """Depth only cuts the operations: the rest of the example does not depend on it."""
    shallow, deep = (draw([index], task=parse_task(name), seed=seed, split=split, depth=d) for d in sorted(depths))
    assert np.array_equal(shallow.operations_BD, deep.operations_BD[:, : min(depths)])
    assert np.array_equal(shallow.nouns_BN, deep.nouns_BN)
    assert np.array_equal(shallow.order_BN, deep.order_BN)


@settings(max_examples=20, deadline=None)
@given(indices=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8))
def test_an_example_does_not_depend_on_its_batch(indices):
    """Examples drawn together, apart, in another order or again are the same examples."""
    together = parts(draw(indices))
    assert together == [parts(draw([index]))[0] for index in indices]
    assert together[::-1] == parts(draw(np.array(indices[::-1])))


def test_no_two_addresses_share_an_example():
    """Another task, seed, split or index gives another example, and all splits are disjoint."""
    addresses = [
        (task, seed, split, index)
        for task in (SWAP, parse_task("s5-full"))
        for seed in (1, 2)
        for split in (Split.TRAIN, Split.VALIDATION, Split.CALIBRATION)
        for index in range(50)
    ] + [(SWAP, 0, Split.TEST, index) for index in range(50)]
    seen = {tuple(parts(draw([i], task=t, seed=seed, split=split))[0]) for t, seed, split, i in addresses}
    assert len(seen) == len(addresses)


def test_test_examples_are_the_same_for_every_seed():
    """The seed of a run moves all splits but the test split."""
    for split in Split:
        same = parts(draw(range(9), seed=5, split=split)) == parts(draw(range(9), seed=EVALUATION_SEED, split=split))
        assert same == (split is Split.TEST)


def test_operations_and_arrangements_are_uniform():
    """Each of the 11 operations, the identity too, each noun and each place in the order is equally frequent."""
    batch = draw(range(3000), depth=10)
    for values, kinds in ((batch.operations_BD, 11), (batch.nouns_BN, len(NOUNS)), (batch.order_BN[:, :1], 5)):
        shares = np.bincount(values.ravel(), minlength=kinds) / values.size
        assert len(shares) == kinds
        assert np.abs(shares - 1 / kinds).max() < 5 * np.sqrt(1 / kinds / values.size)


def test_no_object_lies_in_two_boxes():
    """The nouns of a prompt are distinct, and its order names every box once."""
    batch = draw(range(200), task=parse_task("a10"))
    assert all(len(set(nouns)) == 10 for nouns in batch.nouns_BN.tolist())
    assert all(sorted(order) == list(range(10)) for order in batch.order_BN.tolist())


@pytest.mark.parametrize(
    ("change", "named"),
    [({"seed": -1}, "seed=-1"), ({"seed": 2**32}, "seed=4294967296"), ({"depth": -1}, "depth=-1")],
)
def test_addresses_outside_the_streams_are_refused(change, named):
    """A seed that would take two words of entropy, or a negative depth, is a ConfigError with the value."""
    with pytest.raises(ConfigError, match=named):
        draw([0], **change)
    with pytest.raises(ConfigError, match="4294967296"):
        draw([0, 2**32])


def test_the_evaluation_hash_names_the_frozen_set():
    """The hash is 16 hex digits, repeats, ignores the grid's order, and moves with task, depths and sequences."""
    names = [
        evaluation_hash(SWAP, [4, 8], 10),
        evaluation_hash(SWAP, [4, 9], 10),
        evaluation_hash(SWAP, [8], 10),
        evaluation_hash(SWAP, [4, 8], 11),
        evaluation_hash(parse_task("s5"), [4, 8], 10),
    ]
    assert len(set(names)) == len(names)
    assert names[0] == evaluation_hash(SWAP, (8, 4), 10)
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in names)


def test_golden_examples():
    """Stored results stay comparable: these draws never change. A change means another evaluation set."""
    batch = draw([0, 1], seed=7, depth=6)
    assert parts(batch) == GOLDEN
    assert evaluation_hash(SWAP, [32, 512], 64) == GOLDEN_HASH


def test_drawing_is_no_burden():
    """A batch of 64 examples of 16 operations takes under 3 ms."""
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        draw(range(64), depth=16)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 3e-3

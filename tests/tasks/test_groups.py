"""The operations, their composition, and what chance is worth."""

import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.errors import ConfigError
from par.tasks.groups import FULL_LIMIT, chance, parse_task, states

NAMES = ["swap-s3", "swap-s5", "swap-s10", "s3", "s5", "s10", "s3-full", "s5-full", "a3", "a5", "a10"]


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(NAMES), draws=st.lists(st.integers(0, 10**6), max_size=12))
def test_states_equal_a_list_of_boxes_moved_one_operation_at_a_time(name, draws):
    """After every prefix, box i holds what box p[i] held before the last operation p."""
    task = parse_task(name)
    operations = [draw % len(task.operations_KN) for draw in draws]
    boxes = list(range(task.boxes))
    expected = [boxes]
    for operation in operations:
        boxes = [boxes[source] for source in task.operations_KN[operation].tolist()]
        expected.append(boxes)
    batch = np.array([operations, operations[::-1]], dtype=np.int64).reshape(2, -1)
    assert states(task, batch)[0].tolist() == expected


@pytest.mark.parametrize("n", range(3, 11))
def test_each_family_holds_each_of_its_permutations_once(n):
    """swap-sN has 1 + N(N-1)/2 operations with one identity, sN the swaps, aN the 3-cycles, sN-full all N!."""
    counts = {f"swap-s{n}": 1 + math.comb(n, 2), f"s{n}": math.comb(n, 2), f"a{n}": 2 * math.comb(n, 3)}
    moved = {f"swap-s{n}": {0, 2}, f"s{n}": {2}, f"a{n}": {3}}
    if n <= FULL_LIMIT:
        counts[f"s{n}-full"] = math.factorial(n)
        moved[f"s{n}-full"] = {0, *range(2, n + 1)}
    for name, count in counts.items():
        task = parse_task(name)
        rows = {tuple(row) for row in task.operations_KN.tolist()}
        assert task.boxes == n
        assert len(task.operations_KN) == len(rows) == count
        assert all(sorted(row) == list(range(n)) for row in rows)
        assert {sum(i != p for i, p in enumerate(row)) for row in rows} == moved[name]
        assert (tuple(range(n)) in rows) == (0 in moved[name])


@pytest.mark.parametrize(
    "name",
    ["", "s", "s2", "s11", "s05", "a2", "swap-s2", "swap-s11", "swap-a5", "swap-s5-full", "a5-full", "S5", "s5 ", "s٥"],
)
def test_other_names_are_refused_with_what_is_accepted(name):
    """A name outside the four forms, or N outside 3..10, is a ConfigError with value, forms and limits."""
    with pytest.raises(ConfigError) as fault:
        parse_task(name)
    for part in (f"task.name={name} ", "swap-sN", "sN-full", "aN", "3..10"):
        assert part in str(fault.value)


def test_all_permutations_end_where_they_become_too_many():
    """sN-full above the limit names the limit and the number of operations."""
    with pytest.raises(ConfigError, match=r"s7-full .*5040 operations.*N=6"):
        parse_task("s7-full")


def test_a_task_is_a_value():
    """Equal names give equal tasks after a pickle, with operations that cannot be written to."""
    task = parse_task("a5")
    again = pickle.loads(pickle.dumps(task))
    assert again == task
    assert hash(again) == hash(task)
    assert task != parse_task("s5")
    with pytest.raises(ValueError, match="read-only"):
        task.operations_KN[0, 0] = 1


@pytest.mark.parametrize("name", ["swap-s3", "swap-s5", "s5", "a3", "a5", "s5-full"])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 8, 64])
def test_chance_agrees_with_the_walk_of_one_box(name, depth):
    """Single-query chance is the exact return probability of a box, but never below a guess; it never changes."""
    task = parse_task(name)
    walk_NN = np.mean([np.eye(task.boxes)[operation] for operation in task.operations_KN], axis=0)
    exact = max(np.linalg.matrix_power(walk_NN, depth)[0, 0], 1 / task.boxes)
    found = chance(task, depth)
    assert abs(found.single_query - exact) < 0.015
    assert found == chance.__wrapped__(task, depth)
    assert found.full_state <= found.single_query


def test_chance_of_the_default_task_is_the_published_formula():
    """swap-s5: 1/n + (1 - 1/n)(6/11)^d; all boxes: the identity's share at depth 1, 1/n! for s5-full at any."""
    for depth in (1, 2, 4):
        assert chance(parse_task("swap-s5"), depth).single_query == pytest.approx(
            0.2 + 0.8 * (6 / 11) ** depth, abs=0.015
        )
    assert chance(parse_task("swap-s5"), 1).full_state == pytest.approx(1 / 11, abs=0.015)
    assert chance(parse_task("s5-full"), 5).full_state == pytest.approx(1 / 120, abs=0.006)
    assert chance(parse_task("s5"), 1).full_state == 1 / 120


def test_the_tasks_load_without_torch():
    """Importing every module of the tasks brings in neither torch nor transformers nor tokenizers."""
    code = (
        "import sys, par.tasks.groups, par.tasks.streams, par.tasks.prompts, par.tasks.wording;"
        "print(sorted({'torch', 'transformers', 'tokenizers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"

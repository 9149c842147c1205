import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from par.errors import DataError
from par.evaluation.extrapolation import accuracy_at, extrapolation, extrapolation_auc

GRID = (16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
SHORT = (2, 4, 8, 12)
shares = st.integers(0, 64).map(lambda right: right / 64)
from_train_depth = st.lists(shares, min_size=len(GRID), max_size=len(GRID))
with_short = st.lists(shares, min_size=len(SHORT + GRID), max_size=len(SHORT + GRID))
grids = st.sets(st.integers(1, 1024), min_size=2, max_size=12).map(sorted)


@given(grids, st.integers(1, 1023).map(lambda depth: depth + 0.5), st.floats(0.01, 0.05))
def test_d50_of_a_line_is_where_it_crosses(depths, crossing, slope):
    """Accuracy that is linear in log depth gives the d50 at which the line crosses one half, whatever the grid."""
    assume(depths[0] < crossing < depths[-1])
    line = [0.5 - slope * math.log2(depth / crossing) for depth in depths]
    found = extrapolation(depths, line, train_depth=depths[0])
    assert found.d50 == pytest.approx(crossing, rel=1e-6)
    assert found.d50 == pytest.approx(found.G * depths[0])
    assert (found.censored, found.n_crossings) == (False, 1)


@given(st.lists(st.floats(0.5, 1), min_size=len(GRID), max_size=len(GRID)))
def test_never_below_is_censored(accuracy):
    """Accuracy that never falls below one half gives the deepest depth over d_train, marked as censored."""
    found = extrapolation(GRID, accuracy, train_depth=16)
    assert (found.d50, found.G, found.censored, found.n_crossings) == (256, 16, True, 0)


@given(with_short)
def test_shorter_depths_matter_only_below_half_at_train_depth(accuracy):
    """G is at least 1 exactly when d_train is reached; then the shorter depths change nothing."""
    whole = extrapolation(SHORT + GRID, accuracy, train_depth=16)
    beyond = extrapolation(GRID, accuracy[len(SHORT) :], train_depth=16)
    assert math.isfinite(whole.G)
    if accuracy[len(SHORT)] >= 0.5:
        assert whole == beyond
        assert whole.G >= 1
    else:
        assert whole.G < 1
        assert (beyond.G, whole.censored) == (0, False)
    assert whole.n_crossings == beyond.n_crossings


@given(st.lists(shares.filter(lambda a: a < 0.5), min_size=14, max_size=14), st.integers(0, 3))
def test_a_seed_that_fails_at_train_depth_is_placed_by_the_last_depth_it_solves(low, solved):
    """Below one half at d_train, G lies after the one shorter depth that reached it; it is 0 if none did."""
    assert extrapolation(SHORT + GRID, low, train_depth=16).G == 0
    low[solved] = 0.75
    next_depth = (SHORT + GRID)[solved + 1]
    assert SHORT[solved] / 16 <= extrapolation(SHORT + GRID, low, train_depth=16).G < next_depth / 16


@given(from_train_depth, from_train_depth)
def test_a_better_curve_never_has_a_smaller_g(one, other):
    """Raising accuracy anywhere from d_train on never lowers G."""
    better = [max(pair) for pair in zip(one, other, strict=True)]
    worse, better = (extrapolation(GRID, curve, train_depth=16) for curve in (one, better))
    assert better.d50 >= worse.d50 - 1e-9


@given(with_short, st.integers(2, 5))
def test_g_has_no_unit(accuracy, factor):
    """Depths measured in another unit give the same G and area."""
    depths = SHORT + GRID
    scaled = [depth * factor for depth in depths]
    for measure in (lambda *curve, **d: extrapolation(*curve, **d).G, extrapolation_auc):
        found = measure(depths, accuracy, train_depth=16)
        assert measure(scaled, accuracy, train_depth=16 * factor) == pytest.approx(found)


@given(from_train_depth)
def test_crossings_are_even_exactly_when_both_ends_agree(accuracy):
    """The curve passes one half an even number of times exactly when it ends on the side where it began."""
    found = extrapolation(GRID, accuracy, train_depth=16)
    assert (found.n_crossings % 2 == 0) == ((accuracy[0] >= 0.5) == (accuracy[-1] >= 0.5))
    assert found.n_crossings <= len(GRID) - 1


def test_the_first_fall_counts_and_the_return_is_recorded():
    """A curve that falls, returns and falls again has the d50 of its first fall and three crossings."""
    found = extrapolation((16, 32, 64, 128), (1.0, 0.0, 1.0, 0.0), train_depth=16)
    assert (found.d50, found.censored, found.n_crossings) == (pytest.approx(16 * 2**0.5), False, 3)


def test_four_boxes_of_five_are_no_full_state():
    """A model with four boxes right everywhere has an unbounded G and no area: the two measures are never mixed up."""
    single_query, full_state = [0.8] * len(GRID), [0.0] * len(GRID)
    assert extrapolation(GRID, single_query, train_depth=16).censored
    assert extrapolation_auc(GRID, full_state, train_depth=16) == 0


@given(with_short)
def test_area_is_an_average_beyond_training(accuracy):
    """The area lies between the least and the best accuracy from d_train on and ignores shorter depths."""
    beyond = accuracy[len(SHORT) :]
    area = extrapolation_auc(SHORT + GRID, accuracy, train_depth=16)
    assert min(beyond) - 1e-12 <= area <= min(1, max(beyond) + 1e-12)
    assert area == extrapolation_auc(GRID, beyond, train_depth=16)


@given(from_train_depth)
def test_area_does_not_depend_on_the_grid(accuracy):
    """A further point that lies on the line between two others, in log depth, leaves the area as it is."""
    depths, refined = (1, 4, 16, 64), (1, 2, 4, 8, 16, 32, 64)
    ends = accuracy[:4]
    between = [(a + b) / 2 for a, b in pairwise(ends)]
    curve = [point for pair in zip(ends, between, strict=False) for point in pair] + ends[-1:]
    coarse = extrapolation_auc(depths, ends, train_depth=1)
    assert extrapolation_auc(refined, curve, train_depth=1) == pytest.approx(coarse)


def test_area_of_one_depth_is_the_accuracy_there():
    """With nothing tested beyond d_train the area is the accuracy at d_train."""
    assert extrapolation_auc((8, 16), (1.0, 0.25), train_depth=16) == 0.25


@given(from_train_depth)
def test_accuracy_at_reads_tested_depths_only(full_state):
    """A multiple of d_train gives the accuracy at that depth, and None where the depth was not tested."""
    for depth, accuracy in zip(GRID, full_state, strict=True):
        assert accuracy_at(GRID, full_state, depth / 16, 16) == accuracy
    assert accuracy_at(GRID, full_state, 32, 16) is None


@pytest.mark.parametrize(
    ("depths", "accuracy", "named"),
    [
        ((16, 32), (1.0, math.nan), "nan at depth 32"),
        ((16, 32), (1.0, 1.5), "1.5 at depth 32"),
        ((16, 32), (-0.1, 1.0), "-0.1 at depth 16"),
        ((16, 16), (1.0, 1.0), "must ascend"),
        ((32, 16), (1.0, 1.0), "must ascend"),
        ((16, math.nan), (1.0, 1.0), "must ascend"),
        ((16, 32), (1.0,), "2 depths but 1 accuracies"),
        ((8, 32), (1.0, 1.0), "train_depth=16"),
        ((0, 16), (1.0, 1.0), "at least 1"),
        ((), (), "train_depth=16"),
    ],
)
def test_a_faulty_curve_is_refused(depths, accuracy, named):
    """A curve that is not an accuracy per ascending depth raises DataError that says why, in every measure."""
    for measure in (
        lambda: extrapolation(depths, accuracy, train_depth=16),
        lambda: extrapolation_auc(depths, accuracy, train_depth=16),
        lambda: accuracy_at(depths, accuracy, 1, 16),
    ):
        with pytest.raises(DataError, match=named):
            measure()

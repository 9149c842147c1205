import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.statistics.seeds import Degenerate, Significance, TooFew
from par.statistics.spread import brown_forsythe, dip_test, spread_difference, variance_split
from tests.statistics.spoken import spoken

GEARS = [
    [1.006, 0.996, 0.998, 1.000, 0.992, 0.993, 1.002, 0.999, 0.994, 1.000],
    [0.998, 1.006, 1.000, 1.002, 0.997, 0.998, 0.996, 1.000, 1.006, 0.988],
    [0.991, 0.987, 0.997, 0.999, 0.995, 0.994, 1.000, 0.999, 0.996, 0.996],
    [1.005, 1.002, 0.994, 1.000, 0.995, 0.994, 0.998, 0.996, 1.002, 0.996],
    [0.998, 0.998, 0.982, 0.990, 1.002, 0.984, 0.996, 0.993, 0.980, 0.996],
    [1.009, 1.013, 1.009, 0.997, 0.988, 1.002, 0.995, 0.998, 0.981, 0.996],
    [0.990, 1.004, 0.996, 1.001, 0.998, 1.000, 1.018, 1.010, 0.996, 1.002],
    [0.998, 1.000, 1.006, 1.000, 1.002, 0.996, 0.998, 0.996, 1.002, 1.006],
    [1.002, 0.998, 0.996, 0.995, 0.996, 1.004, 1.004, 0.998, 0.999, 0.991],
    [0.991, 0.995, 0.984, 0.994, 0.997, 0.997, 0.991, 0.998, 1.004, 0.997],
]  # fmt: skip
"""Gear diameters in ten batches (NIST/SEMATECH e-Handbook of Statistical Methods, §1.3.5.10)."""
NIST_W = 1.705910

group = st.lists(st.integers(0, 16).map(float), min_size=5, max_size=6)


def test_shares_of_one_seed_differ_by_sampling_alone():
    """Seeds with one true accuracy: the binomial part is the total, on average, and the rest near 0."""
    rng = np.random.default_rng(0)
    splits = [spoken(variance_split((rng.binomial(64, 0.6, 200) / 64).tolist(), [64] * 200)) for _ in range(20)]
    assert np.mean([split.total for split in splits]) == pytest.approx(0.6 * 0.4 / 64, rel=0.05)
    assert np.mean([split.binomial for split in splits]) == pytest.approx(0.6 * 0.4 / 64, rel=0.05)
    assert max(split.between for split in splits) < 0.002


def test_the_variance_between_seeds_is_recovered():
    """True accuracies of Beta(2, 2), variance 1/20, seen on 16 prompts each: the part between seeds is 1/20."""
    rng = np.random.default_rng(0)
    shares = rng.binomial(16, rng.beta(2, 2, 4000)) / 16
    split = spoken(variance_split(shares.tolist(), [16] * 4000))
    assert split.between == pytest.approx(1 / 20, rel=0.06)
    assert split.total == pytest.approx(split.between + split.binomial)
    assert split.binomial == pytest.approx((0.25 - 1 / 20) / 16, rel=0.06)


def test_the_sampling_part_is_unbiased():
    """Sixteen seeds with the binomial counts 1, 4, 6, 4, 1 of four fair trials: the part is 1/16, exactly."""
    shares = [0.0, *[0.25] * 4, *[0.5] * 6, *[0.75] * 4, 1.0]
    assert spoken(variance_split(shares, [4] * 16)).binomial == pytest.approx(0.25 / 4)


def test_certain_shares_have_no_sampling_part():
    """Seeds at 0 and at 1 differ by themselves: nothing of it is sampling."""
    split = spoken(variance_split([0.0, 1.0], [1024, 1024]))
    assert (split.total, split.binomial, split.between) == (0.5, 0, 0.5)


def test_brown_forsythe_of_the_gears():
    """W of the ten batches of gears is that of the handbook, and below the critical value at 5 %."""
    found = spoken(brown_forsythe(GEARS))
    assert found.statistic == pytest.approx(NIST_W, rel=1e-5)
    assert 0.05 < found.p < 0.10


@given(st.lists(group, min_size=2, max_size=4), st.sampled_from([0.5, 4.0]), st.data())
def test_spread_ignores_where_groups_lie(groups, scale, data):
    """Groups that are shifted by themselves and scaled together keep their test, and their order does not matter."""
    shifts = data.draw(st.lists(st.integers(-64, 64), min_size=len(groups), max_size=len(groups)))
    moved = [[scale * value + shift for value in seeds] for seeds, shift in zip(groups, shifts, strict=True)]
    found, again = brown_forsythe(groups), brown_forsythe(moved[::-1])
    assert isinstance(again, Degenerate) if isinstance(found, Degenerate) else found == pytest.approx(again, abs=1e-9)


def test_equal_distances_everywhere_are_no_difference():
    """Groups that agree within themselves, wherever they lie, have W = 0; half failed against none failed has no W."""
    assert brown_forsythe([[16.0] * 6, [2.0] * 6]) == (0, 1)
    assert str(brown_forsythe([[16.0, 0] * 3, [16.0] * 6])).startswith("undefined: within each group")
    assert brown_forsythe([[1.0] * 6]) == TooFew(1, 2, of="groups")


def test_the_permutation_test_is_exact_where_it_can_be():
    """Five agreeing seeds against five that disagree most: 2 of C(10, 5) = 252 stop_signal are as extreme."""
    found = spoken(spread_difference([0.0, 1, 10, 19, 20], [10.0, 10, 10, 10, 10]))
    assert found.statistic == pytest.approx((10 + 9 + 0 + 9 + 10) / 5)
    assert found.p == pytest.approx(2 * 6 / 252)


@settings(max_examples=40)
@given(group, group, st.integers(-64, 64))
def test_the_permutation_test_is_fair_to_both_groups(first, second, shift):
    """Exchanged groups change the sign and nothing else; a shifted group changes nothing."""
    found = spoken(spread_difference(first, second))
    turned = spoken(spread_difference([value + shift for value in second], first))
    assert turned == pytest.approx((-found.statistic, found.p))


def test_the_levels_are_as_documented():
    """Normal groups of equal spread are called different in about 1 % of cases at 5 seeds each, 7 % at 6."""
    rng = np.random.default_rng(0)
    for n, level in ((5, 0.01), (6, 0.07)):
        pairs = rng.normal(size=(150, 2, n)).tolist()
        found = [spoken(spread_difference(*pair)).p for pair in pairs]
        assert np.mean(np.array(found) <= 0.05) == pytest.approx(level, abs=0.03)


def test_humps_are_not_sought_in_few_seeds():
    """Two clean modes at n = 6 and n = 9 are not reported, and neither is one; at n = 10 they are (X8)."""
    for few in (5, 6, 9):
        assert dip_test(([0.0, 16] * 5)[:few]) == TooFew(few, 10)
    modes = [0.1, 0.2, 0.3, 0.4, 0.5, 15.5, 15.6, 15.7, 15.8, 15.9]
    assert spoken(dip_test(modes)).p < 0.01
    assert spoken(dip_test(list(range(10)))).p > 0.9


@given(st.integers(5, 40))
def test_the_dip_of_two_points_is_a_quarter(half):
    """Half of the seeds at one value and half at another: the dip has its greatest value, 1/4, and p is not 0."""
    found = spoken(dip_test([0.0, 16.0] * half))
    assert found.statistic == pytest.approx(0.25)
    assert found.p == 1e-5


@given(st.lists(st.integers(0, 999).map(float), min_size=10, max_size=20), st.sampled_from([0.5, 4.0]))
def test_the_dip_has_no_unit(seeds, scale):
    """Scaled, shifted and mirrored seeds keep their dip."""
    assert dip_test([3 - scale * value for value in seeds]) == pytest.approx(dip_test(seeds))


def test_the_dip_keeps_its_level_and_finds_modes():
    """Of uniform seeds at most 5 % are called two-humped, of two clean modes at n = 20 nearly all."""
    rng = np.random.default_rng(0)
    flat = [spoken(dip_test(seeds)).p for seeds in rng.uniform(size=(500, 12)).tolist()]
    humped = 16 * (rng.random((200, 20)) < 0.5) + rng.normal(size=(200, 20))
    assert np.mean(np.array(flat) <= 0.05) <= 0.07
    assert np.mean([spoken(dip_test(seeds)).p <= 0.05 for seeds in humped.tolist()]) > 0.95


def test_a_difference_of_spread_is_found():
    """Eight seeds within ±0.2 against eight within ±8: both tests say so."""
    rng = np.random.default_rng(0)
    near, far = (8 + rng.uniform(-0.2, 0.2, 8)).tolist(), (8 + rng.uniform(-8, 8, 8)).tolist()
    for found in (brown_forsythe([near, far]), spread_difference(near, far)):
        assert isinstance(found, Significance)
        assert found.p < 0.01

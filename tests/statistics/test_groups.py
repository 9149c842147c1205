from par.statistics.comparison import compare_groups, holm, success_difference
from par.statistics.seeds import TooFew
from par.statistics.spread import brown_forsythe, spread_difference
from tests.statistics.spoken import spoken

GROUPS = {"0.5b": [0.0, 0.4, 1.1, 0, 2.2, 0], "3b": [16.0, 3, 16, 0, 16, 8], "7b": [16.0, 16, 16, 12, 16, 16]}


def test_every_pair_is_tested_once():
    """Three groups make three pairs; each test is that of its two groups, adjusted over the three."""
    found = compare_groups(GROUPS, 8)
    names = [("0.5b", "3b"), ("0.5b", "7b"), ("3b", "7b")]
    assert [(pair.first, pair.second) for pair in found.pairs] == names
    success = [success_difference(GROUPS[one], GROUPS[other], 8) for one, other in names]
    spread = [spread_difference(GROUPS[one], GROUPS[other]) for one, other in names]
    assert [pair.success for pair in found.pairs] == success
    assert [pair.spread for pair in found.pairs] == spread
    assert tuple(pair.success_adjusted for pair in found.pairs) == holm([spoken(test).p for test in success])
    assert tuple(pair.spread_adjusted for pair in found.pairs) == holm([spoken(test).p for test in spread])
    assert found.spread == brown_forsythe(list(GROUPS.values()))


def test_pairs_that_cannot_be_tested_cost_the_others_nothing():
    """A group of two seeds stays in the list, in words; the other pair is adjusted as if it were alone."""
    found = compare_groups({**GROUPS, "1.5b": [16.0, 0]})
    few = [pair for pair in found.pairs if "1.5b" in (pair.first, pair.second)]
    assert [(pair.success, pair.spread) for pair in few] == [(TooFew(2, 3), TooFew(2, 5))] * 3
    assert all(pair.success_adjusted is None and pair.spread_adjusted is None for pair in few)
    assert [pair for pair in found.pairs if pair not in few] == list(compare_groups(GROUPS).pairs)
    assert found.spread == TooFew(2, 5)


def test_one_group_has_nothing_to_be_compared_with():
    """A single group has no pair, and the spread test says that it needs two."""
    found = compare_groups({"3b": GROUPS["3b"]})
    assert (found.pairs, str(found.spread)) == ((), "too few groups to say (1, needs 2)")

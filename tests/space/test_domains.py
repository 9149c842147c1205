"""Domains: what they refuse, list, print and compare, and in which order they are walked."""

import itertools
import math
import pickle
import random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from par.errors import ConfigError
from par.space.conditions import agree, cycle, holds, parents_first, requirements, walk
from par.space.domains import GRID_LEVELS, Choice, Domain, FloatRange, IntRange, same

quick = settings(max_examples=60, deadline=None)
numbers = st.floats(-1e6, 1e6)


@st.composite
def int_ranges(draw: st.DrawFn) -> IntRange:
    low, count, step = draw(st.integers(-50, 50)), draw(st.integers(0, 40)), draw(st.integers(1, 5))
    return IntRange(low, low + count * step, step=step)


@st.composite
def forests(draw: st.DrawFn) -> dict[str, Domain]:
    """Choices under keys in any order, each of which may wait for others, never in a circle."""
    keys = draw(st.permutations("abcdef"))
    search: dict[str, Domain] = {}
    for i, key in enumerate(keys):
        parents = draw(st.lists(st.sampled_from(keys[:i]), unique=True, max_size=2)) if i else []
        when = {parent: draw(st.sampled_from((0, 1))) for parent in parents}
        search[key] = Choice((0, 1), when=when)
    return dict(draw(st.permutations(list(search.items()))))


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda: Choice(()), ["empty"]),
        (lambda: Choice((1, 2, 1)), ["1", "more than once"]),
        (lambda: Choice((1, 1.0)), ["1.0", "more than once"]),
        (lambda: FloatRange(2.0, 1.0), ["[2.0, 1.0]", "swap"]),
        (lambda: FloatRange(0.0, 1.0, log=True), ["log", "0.0"]),
        (lambda: FloatRange(-2.0, -1.0, log=True), ["log", "-2.0"]),
        (lambda: FloatRange(True, 2.0), ["True", "number"]),
        (lambda: FloatRange(0.0, math.inf), ["inf", "finite"]),
        (lambda: FloatRange(math.nan, 1.0), ["nan", "finite"]),
        (lambda: FloatRange(0.0, 10**400), ["finite"]),
        (lambda: IntRange(1, 2.5), ["2.5", "whole"]),  # pyright: ignore[reportArgumentType]: what is refused
        (lambda: IntRange(3, 2), ["[3, 2]", "swap"]),
        (lambda: IntRange(0, 4, log=True), ["log", "0"]),
        (lambda: IntRange(0, 4, step=0), ["step=0"]),
        (lambda: IntRange(0, 4, step=True), ["step=True"]),
        (lambda: IntRange(1, 4, log=True, step=3), ["step=3", "log"]),
        (lambda: IntRange(2, 9, step=4), ["6 or 10"]),
    ],
)
def test_an_impossible_domain_is_refused_with_its_numbers(build, names):
    """No domain exists that could not be sampled; the error has the numbers and what to do."""
    with pytest.raises(ConfigError) as refused:
        build()
    assert all(name in str(refused.value) for name in names)


def test_truth_values_are_no_numbers():
    """True and 1 are two values, although Python calls them equal."""
    assert Choice((True, 1)).values == (True, 1)
    assert same(1, 1.0)
    assert not same(True, 1)
    assert not holds({"a": True}, {"a": 1})


@quick
@given(low=numbers, width=st.floats(0, 1e6))
def test_probes_of_a_float_range_are_its_ends_and_a_point_inside(low, width):
    """Both ends come first, nothing lies outside, and a range with room has a point inside that is not whole."""
    domain = FloatRange(low, low + width)
    probes = domain.probes()
    assert set(domain.ends()) == {low, low + width}
    assert probes[: len(domain.ends())] == domain.ends()
    assert all(low <= probe <= low + width for probe in probes)
    if width > 1e-3:
        assert len(probes) == 3


@quick
@example(low=0, width=144)
@given(low=st.integers(-(10**6), 10**6), width=st.integers(1, 80))
def test_the_probe_inside_a_float_range_is_short_and_not_whole(low, width):
    """Between whole ends a whole number is a rare sample, so the probe is not one; it has two decimals if they do."""
    probe = FloatRange(float(low), float(low + width)).probes()[2]
    assert not probe.is_integer()
    assert probe == round(probe, 2) or width == 144


@quick
@given(domain=int_ranges())
def test_probes_of_an_int_range_are_its_ends_and_members(domain):
    """Both ends come first, every probe can be sampled, and no probe repeats."""
    probes, members = domain.probes(), range(domain.low, domain.high + 1, domain.step)
    assert probes[: len(domain.ends())] == domain.ends()
    assert set(domain.ends()) == {domain.low, domain.high}
    assert set(probes) <= set(members)
    assert len(set(probes)) == len(probes)
    assert set(probes) == set(members) or len(members) > len(probes) >= 5


@quick
@given(domain=int_ranges())
def test_levels_of_an_int_range_are_all_its_members_or_an_error(domain):
    """A grid takes every value of a short range, and refuses a long one with its length."""
    members = tuple(range(domain.low, domain.high + 1, domain.step))
    if len(members) <= GRID_LEVELS:
        assert domain.levels() == members
    else:
        with pytest.raises(ConfigError, match=str(len(members))):
            domain.levels()


def test_a_float_range_has_no_levels():
    """A grid over floats is refused, and the error names choice."""
    with pytest.raises(ConfigError, match="choice"):
        FloatRange(0.0, 1.0).levels()


@pytest.mark.parametrize(
    "domain",
    [
        Choice((1, "a", None, True), when={"b": 1, "a": "x"}),
        FloatRange(1.0, 2.0, log=True, when={"a": True}),
        IntRange(1, 9, step=2),
        IntRange(1, 9, log=True),
    ],
)
def test_equal_domains_print_and_hash_alike_and_survive_a_pickle(domain):
    """Equal domains have one text and one hash, also on the far side of a pickle."""
    again = pickle.loads(pickle.dumps(domain))
    assert again == domain
    assert hash(again) == hash(domain)
    assert str(again) == str(domain)


def test_different_domains_print_differently():
    """The text tells any two domains apart: kind, ends, log, step, condition, 1 from True and from '1'."""
    domains = [
        Choice((1, 2)), Choice((2, 1)), Choice(("1", 2)), Choice((True, 2)), Choice((1, 2), when={"a": 1}),
        FloatRange(1.0, 2.0), FloatRange(1.0, 2.0, log=True), FloatRange(1.0, 2.0, when={"a": 1}),
        IntRange(1, 3), IntRange(1, 3, log=True), IntRange(1, 3, step=2), IntRange(1, 3, when={"a": True}),
    ]  # fmt: skip
    assert len({str(domain) for domain in domains}) == len(domains)


@quick
@given(search=forests())
def test_parents_come_first_and_nothing_is_lost(search):
    """Every key comes after those that its condition names, and keys without conditions keep the file's order."""
    keys = [key for key, _ in parents_first(search)]
    assert sorted(keys) == sorted(search)
    for key, domain in search.items():
        assert all(keys.index(parent) < keys.index(key) for parent in domain.when)
    free = [key for key in search if not search[key].when]
    assert [key for key in keys if key in free] == free
    assert cycle(search) == ()


@quick
@given(search=forests(), data=st.data())
def test_a_cycle_is_found_and_named(search, data):
    """If a key is made to wait for one that waits for it, exactly a circle of waiting keys is returned."""
    children = [key for key in search if search[key].when]
    assume(children)
    child = data.draw(st.sampled_from(children))
    parent = data.draw(st.sampled_from(sorted(search[child].when)))
    loop = cycle(search | {parent: Choice((0, 1), when={child: 0})})
    closed = (*loop, loop[0])
    whole = search | {parent: Choice((0, 1), when={child: 0})}
    assert len(loop) >= 2
    assert all(after in whole[before].when for before, after in itertools.pairwise(closed))


@quick
@given(search=forests())
def test_a_walk_visits_each_sample_once(search):
    """A walk yields the same samples as drawing at random for long, none twice."""
    rows = [tuple(sorted(row.items())) for row in walk(parents_first(search), lambda domain: domain.ends(), {})]
    assert len(set(rows)) == len(rows)
    rng = random.Random(0)
    for _ in range(50):
        sample: dict[str, object] = {}
        for key, domain in parents_first(search):
            if holds(domain.when, sample):
                sample[key] = rng.choice(domain.ends())
        assert tuple(sorted(sample.items())) in rows


@quick
@given(search=forests())
def test_requirements_are_what_every_sample_with_the_key_has_in_common(search):
    """A key has requirements exactly if some sample holds it, and each such sample meets them."""
    rows = list(walk(parents_first(search), lambda domain: domain.ends(), {}))
    for key in search:
        needed, holding = requirements(key, search), [row for row in rows if key in row]
        assert (needed is None) == (not holding)
        assert all(agree(needed or {}, row) and (needed or {}).keys() <= row.keys() for row in holding)

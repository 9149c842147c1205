"""A space that has fewer configurations than are wanted."""

from dataclasses import replace

from par.ledger.current_space import current_space, write_exhausted, write_totals
from par.objects import encode
from tests.report.pages import good, small


def test_an_exhausted_space_is_complete_for_every_reader(tmp_path):
    """Who reads the ledger later wants no more than there is; until more are asked for: then the search looks again."""
    ledger = small(tmp_path, {0: good(2.0)}, seeds=1)
    space = replace(current_space(ledger), configurations=9)
    write_totals(ledger, space)
    write_exhausted(ledger, space, "tiny-qwen2", found=1)
    read = current_space(ledger)
    assert (read.configurations, read.shares()) == (9, {"tiny-qwen2": 1})
    assert replace(read, configurations=8).shares() == {"tiny-qwen2": 1}
    assert replace(read, configurations=10).shares() == {"tiny-qwen2": 10}


def test_what_a_person_wants_meanwhile_stays(tmp_path):
    """That a space is exhausted is written beside the totals, whatever they are by then."""
    ledger = small(tmp_path, {0: good(2.0)}, seeds=1)
    began = current_space(ledger)
    write_totals(ledger, replace(began, configurations=40))
    write_exhausted(ledger, began, "tiny-qwen2", found=1)
    assert current_space(ledger).shares() == {"tiny-qwen2": 40}


def test_totals_of_an_older_version_are_read(tmp_path):
    """A number of seeds, as it was written before there were races, is a single rung."""
    ledger = small(tmp_path, {0: good(2.0)}, seeds=1)
    ledger.objects.put("wanted.json", encode("wanted.json", {"seeds": 3}))
    assert current_space(ledger).stages.rungs == (3,)

"""What may be written into a ledger, and how often, in a local folder and in an object store."""

import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings

from par.errors import LedgerError
from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, ConfigRecord, SeedResult, SweepRecord, Verdict
from tests.ledger.ledgers import CONFIG, DONE, begun, contents, in_memory, results

FIRST, LATER = "2026-01-01T12:00:00+00:00", "2026-01-01T12:01:00+00:00"


@pytest.fixture
def ledger(new_storage) -> Ledger:
    return begun(new_storage())


def test_attempts_are_counted_on():
    """The next attempt has the number after the highest, also beyond nine."""
    ledger = in_memory()
    ledger.add_config(CONFIG)
    assert [ledger.begin_attempt(CONFIG.id, 0, Attempt()).number for _ in range(12)] == list(range(1, 13))


@given(results, results)
@settings(max_examples=30, deadline=None)
def test_a_result_is_final(first, second):
    """Finishing again with equal content is allowed; with other content it raises, and the first result stays."""
    ledger = in_memory()
    ledger.add_config(CONFIG)
    ledger.finish(CONFIG.id, 0, first)
    ledger.finish(CONFIG.id, 0, first)
    if first != second:
        with pytest.raises(LedgerError, match=r"seed-0/result\.json.*final"):
            ledger.finish(CONFIG.id, 0, second)
    assert ledger.read().configs[0].results == {0: first}


def test_verdicts_and_proposals_are_final(ledger):
    """A second verdict, or another proposal under the same id, raises unless it is equal."""
    verdict = Verdict(score=0.5, seeds=(0, 1))
    for _ in range(2):
        ledger.give_verdict(CONFIG.id, verdict)
        ledger.add_config(CONFIG)
    with pytest.raises(LedgerError, match=r"search-2\.json.*final"):
        ledger.give_verdict(CONFIG.id, Verdict(score=0.6, seeds=(0, 1)))
    with pytest.raises(LedgerError, match=r"config\.json.*final"):
        ledger.add_config(ConfigRecord(**{**CONFIG.to_dict(), "number": 1}))


def test_an_attempt_ends_once(ledger):
    """An attempt needs an end to end, ends again only in the same way, and one that never began cannot end."""
    begun = ledger.begin_attempt(CONFIG.id, 0, Attempt(node="a", start=FIRST, devices=2))
    with pytest.raises(LedgerError, match=r"attempt-1\.json: the attempt has no end"):
        ledger.end_attempt(CONFIG.id, 0, replace(begun, failure="HANG"))
    assert not ledger.read().configs[0].seeds[0].attempts[0].ended
    ended = begun.ended_at(LATER, saved_step=7)
    for _ in range(2):
        ledger.end_attempt(CONFIG.id, 0, ended)
    with pytest.raises(LedgerError, match=f"ended at {re.escape(LATER)} already"):
        ledger.end_attempt(CONFIG.id, 0, begun.ended_at(FIRST, saved_step=7))
    with pytest.raises(LedgerError, match=r"attempt-2\.json is missing"):
        ledger.end_attempt(CONFIG.id, 0, replace(ended, number=2))
    assert ledger.read().configs[0].seeds[0].attempts == (ended,)
    assert (ended.saved_step, ended.device_seconds) == (7, 120)


def test_an_attempt_is_written_as_far_as_it_is_known(ledger):
    """What is not known has no key, and before the end nothing of the end has one; the number is in the name alone."""
    path = f"configs/{CONFIG.id}/seed-0/attempt-1.json"
    begun = ledger.begin_attempt(CONFIG.id, 0, Attempt(start=FIRST, resumed_at=5))
    assert json.loads(ledger.objects.get(path)) == {"start": FIRST, "resumed_at": 5}
    assert ledger.read().configs[0].attempts(0)[0].saved_step == 5
    ledger.end_attempt(CONFIG.id, 0, replace(begun, failure="HANG", message="").ended_at(LATER, saved_step=0))
    assert json.loads(ledger.objects.get(path)) == {
        "start": FIRST, "resumed_at": 5, "end": LATER, "saved_step": 0, "device_seconds": 0.0, "failure": "HANG",
        "message": "",
    }  # fmt: skip


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, object(), {1: 2}])
def test_what_json_cannot_hold_is_named_and_not_written(ledger, value):
    """A value that is not finite or not plain is refused by its dotted key, and the ledger stays as it was."""
    before = contents(ledger)
    for write in (
        lambda: ledger.finish(CONFIG.id, 0, SeedResult(metrics={"G": 1.0, "d50": value})),
        lambda: ledger.give_verdict(CONFIG.id, Verdict(score=1.0, seeds=(0,), metrics={"d50": value})),
        lambda: ledger.begin_attempt(CONFIG.id, 0, Attempt(devices={"d50": value})),
        lambda: Ledger.create(ledger.storage, "other", SweepRecord(space="", libraries={"d50": value})),
    ):
        with pytest.raises(LedgerError, match=r"json: (metrics|devices|libraries)\.d50="):
            write()
    with pytest.raises(LedgerError, match=r"json: suggested\.betas\[1\]="):
        ledger.add_config(ConfigRecord(**{**CONFIG.to_dict(), "id": "0" * 8, "suggested": {"betas": [0, value]}}))
    assert contents(ledger) == before


def test_only_places_of_the_layout_are_written(ledger):
    """Unknown configurations, negative seeds, odd ids and foreign JSON names are refused, and nothing is written."""
    before = contents(ledger)
    for write in (
        lambda: ledger.add_config(ConfigRecord(**{**CONFIG.to_dict(), "id": "../../x"})),
        lambda: ledger.begin_attempt("0" * 8, 0, Attempt()),
        lambda: ledger.finish("0" * 8, 0, DONE),
        lambda: ledger.give_verdict("0" * 8, Verdict(score=1.0, seeds=())),
        lambda: ledger.begin_attempt(CONFIG.id, -1, Attempt()),
        lambda: ledger.finish("..", 0, DONE),
        lambda: ledger.write_bytes(CONFIG.id, 0, "../x", b""),
        lambda: ledger.write_bytes(CONFIG.id, 0, "result.json", b""),
    ):
        with pytest.raises(LedgerError):
            write()
    assert contents(ledger) == before

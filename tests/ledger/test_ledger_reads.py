"""The state of a sweep is rebuilt from a listing, in a local folder and in an object store."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from par.config.run import RunConfig
from par.errors import LedgerError
from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, Verdict
from par.objects import encode
from tests.ledger.ledgers import (
    CONFIG,
    DONE,
    CountingStore,
    attempts,
    begun,
    contents,
    ends,
    in_memory,
    results,
    verdicts,
)

LATER = "2026-01-01T13:00:00+00:00"


@pytest.fixture
def ledger(new_storage) -> Ledger:
    return begun(new_storage())


def test_layout_is_the_documented_one(ledger):
    """Every object lies where architecture says, whole JSON under its own name, and no draft is left."""
    ledger.begin_attempt(CONFIG.id, 2, Attempt(node="a"))
    ledger.write_bytes(CONFIG.id, 2, "accuracy.parquet", b"PAR1")
    ledger.finish(CONFIG.id, 2, DONE)
    ledger.give_verdict(CONFIG.id, Verdict(score=0.5, seeds=(2,)))
    ledger.give_verdict(CONFIG.id, Verdict(score=0.5, seeds=(8, 9), stage="confirm"))
    assert RunConfig(backbone="tiny-qwen2").fingerprint()[:8] == CONFIG.id
    below = f"configs/{CONFIG.id}"
    paths = {"sweep.json"} | {f"{below}/{name}.json" for name in ("config", "search-1", "confirm-2")}
    paths |= {f"{below}/seed-2/{name}.json" for name in ("attempt-1", "result")}
    found = contents(ledger)
    assert found.keys() == paths | {f"{below}/seed-2/accuracy.parquet"}
    assert all(isinstance(json.loads(found[path]), dict) for path in paths)
    assert found[f"{below}/seed-2/accuracy.parquet"] == b"PAR1"


def test_a_file_beside_the_result_is_read_back(ledger):
    """A file written beside a result is read byte by byte; one that was never written is None."""
    ledger.write_bytes(CONFIG.id, 2, "accuracy.parquet", b"PAR1\x00")
    assert ledger.read_bytes(CONFIG.id, 2, "accuracy.parquet") == b"PAR1\x00"
    assert ledger.read_bytes(CONFIG.id, 2, "history.parquet") is None
    assert ledger.read_bytes(CONFIG.id, 3, "accuracy.parquet") is None


@given(
    results=st.dictionaries(st.integers(0, 12), results, max_size=4),
    attempts=st.lists(st.tuples(st.integers(0, 12), attempts, st.none() | ends), max_size=6),
    verdicts=st.lists(verdicts, max_size=3, unique_by=lambda verdict: (verdict.stage, len(verdict.seeds))),
)
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(results, attempts, verdicts):
    """The state holds exactly what was written, floats to the last bit; an attempt has ended if its end was written."""
    ledger, lives = in_memory(), {}
    ledger.add_config(CONFIG)
    for seed, start, end in attempts:
        attempt = ledger.begin_attempt(CONFIG.id, seed, start)
        if end is None:
            attempt = replace(attempt, saved_step=start.resumed_at)
        else:
            attempt = replace(attempt, **end)
            ledger.end_attempt(CONFIG.id, seed, attempt)
        lives.setdefault(seed, []).append(attempt)
    for seed, result in results.items():
        ledger.finish(CONFIG.id, seed, result)
    for verdict in verdicts:
        ledger.give_verdict(CONFIG.id, verdict)
    (config,) = ledger.read().configs
    assert (config.record, config.results) == (CONFIG, results)
    assert sorted(config.verdicts, key=repr) == sorted(verdicts, key=repr)
    search = [verdict for verdict in verdicts if verdict.stage == "search"]
    assert config.verdict == max(search, key=lambda verdict: len(verdict.seeds), default=None)
    assert list(config.seeds) == sorted(results.keys() | lives.keys())
    for seed, state in config.seeds.items():
        assert list(state.attempts) == lives.get(seed, [])
        assert [life.number for life in state.attempts] == list(range(1, len(state.attempts) + 1))
        assert [life.ended for life in state.attempts] == [life.ended for life in lives.get(seed, [])]


def test_fields_of_a_later_version_are_tolerated_and_kept(ledger):
    """Objects with further fields read as before; the fields stay, also where an object is written again."""
    attempt = ledger.begin_attempt(CONFIG.id, 0, Attempt(node="a"))
    ledger.finish(CONFIG.id, 0, DONE)
    ledger.give_verdict(CONFIG.id, Verdict(score=0.5, seeds=(0,)))
    before = ledger.read()
    for path, data in contents(ledger).items():
        ledger.objects.put(path, encode(path, {**json.loads(data), "colour": "blue"}))
    again = Ledger.open(ledger.storage, "smoke")
    [config] = again.read().configs
    assert config.record == CONFIG
    assert (config.results, config.verdict) == (before.configs[0].results, before.configs[0].verdict)
    again.finish(CONFIG.id, 0, DONE)
    again.end_attempt(CONFIG.id, 0, replace(attempt, end=LATER))
    assert again.read().configs[0].attempts(0) == (Attempt(number=1, node="a", end=LATER),)
    assert all(json.loads(data)["colour"] == "blue" for data in contents(again).values())


def test_a_listing_is_enough(ledger):
    """What any process has written is in the state of every other one, which was told nothing."""
    other = Ledger.open(ledger.storage, "smoke")
    for seed in (3, 11):
        other.begin_attempt(CONFIG.id, seed, Attempt(node="b"))
    other.finish(CONFIG.id, 11, DONE)
    assert ledger.read() == other.read()
    assert ledger.read_config(CONFIG.id) == ledger.read().configs[0]
    assert {seed: state.result for seed, state in ledger.read().configs[0].seeds.items()} == {3: None, 11: DONE}


def test_reading_lists_once_and_reads_each_object_once():
    """The cost of a reading is one listing and one read per object; files beside the results cost nothing."""
    store = CountingStore()
    ledger = in_memory(store)
    ledger.add_config(CONFIG)
    for seed in range(3):
        ledger.begin_attempt(CONFIG.id, seed, Attempt())
        ledger.write_bytes(CONFIG.id, seed, "accuracy.parquet", b"PAR1")
        ledger.finish(CONFIG.id, seed, DONE)
    store.asked.clear()
    ledger.read()
    assert store.asked.total() == 1 + 1 + 2 * 3
    assert set(store.asked.values()) == {1}


def test_drafts_and_strangers_are_invisible(ledger):
    """What a writer left when it died half-way, and files that are not the ledger's, change nothing for readers."""
    ledger.finish(CONFIG.id, 0, DONE)
    before = ledger.read()
    for name in (".result.json.0123", "result.json.tmp", "result.json~", "attempt-x.json"):
        ledger.objects.put(f"configs/{CONFIG.id}/seed-1/{name}", b'{"metr')
    ledger.objects.put("configs/README.json", b"no JSON")
    assert ledger.read() == before
    assert ledger.begin_attempt(CONFIG.id, 1, Attempt()).number == 1


@pytest.mark.parametrize("text", [b"", b'{"metr', b"[1]", b"{}"])
def test_a_damaged_object_is_named(ledger, text):
    """An object that is no JSON, no object, or lacks a field raises LedgerError with its path."""
    ledger.finish(CONFIG.id, 0, DONE)
    ledger.objects.put(f"configs/{CONFIG.id}/seed-0/result.json", text)
    with pytest.raises(LedgerError, match=rf"configs/{CONFIG.id}/seed-0/result\.json"):
        ledger.read()


def test_a_lost_proposal_is_named(ledger):
    """Results without their configuration are not skipped in silence."""
    ledger.finish(CONFIG.id, 0, DONE)
    ledger.objects.delete(f"configs/{CONFIG.id}/config.json")
    with pytest.raises(LedgerError, match=rf"configs/{CONFIG.id}/config\.json is missing"):
        ledger.read()

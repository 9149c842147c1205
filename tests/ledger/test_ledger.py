"""Sweeps in a storage, a local folder or an object store: begun once, found again, refused if they are newer."""

import json

import pytest

from par.errors import LedgerError
from par.ledger.ledger import Ledger, sweeps
from par.ledger.records import FORMAT, SweepRecord, SweepTotals
from par.objects import Objects, encode, public
from tests.ledger.ledgers import CONFIG, begun, contents


@pytest.fixture
def storage(new_storage) -> str:
    return new_storage()


def test_opening_gives_back_what_creating_recorded(storage):
    """A sweep opened later is the one that was created."""
    ledger = begun(storage)
    again = Ledger.open(storage, "smoke")
    assert again.sweep == ledger.sweep == SweepRecord(space="question: why?", format=FORMAT)
    assert again.read() == ledger.read()
    assert again.checkpoints(CONFIG.id, 0).root == ledger.checkpoints(CONFIG.id, 0).root


def test_a_local_folder_has_a_path_and_a_uri(tmp_path):
    """A folder named as a Path, as its text or as a file:// URI holds the same sweep."""
    ledger = begun(str(tmp_path))
    for storage in (tmp_path, f"file://{tmp_path}"):
        again = Ledger.open(storage, "smoke")
        assert again.read() == ledger.read()
        assert again.checkpoints(CONFIG.id, 0) == ledger.checkpoints(CONFIG.id, 0)


def test_an_existing_sweep_is_resumed_not_created_again(storage):
    """Creating a sweep twice changes nothing and says how to go on, without the secret of the storage."""
    ledger = begun(storage)
    with pytest.raises(LedgerError, match=r"smoke exists.*par resume smoke") as refused:
        Ledger.create(storage, "smoke", SweepRecord(space=""))
    assert public(storage) in str(refused.value)
    assert "SECRET" not in str(refused.value)
    assert Ledger.open(storage, "smoke").sweep == ledger.sweep


def test_an_absent_sweep_is_answered_with_those_that_exist(storage, new_storage):
    """Opening an unknown name lists the sweeps there; a folder without sweep.json is none."""
    begun(storage)
    Objects.at(storage).put("notes/a.txt", b"")
    Ledger.create(storage, "paper", SweepRecord(space=""))
    assert sweeps(storage) == ("paper", "smoke")
    with pytest.raises(LedgerError, match=r"no sweep smok in .*: paper, smoke$"):
        Ledger.open(storage, "smok")
    with pytest.raises(LedgerError, match=r"sweeps there: none$"):
        Ledger.open(new_storage(), "smoke")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", ".hidden", "-x", "a b", "a\n", "é", "a" * 101])
def test_a_sweep_is_a_plain_folder_name(tmp_path, name):
    """A name that could leave the storage, hide, or need quoting is refused, and nothing is written."""
    for call in (lambda: Ledger.create(tmp_path, name, SweepRecord(space="")), lambda: Ledger.open(tmp_path, name)):
        with pytest.raises(LedgerError, match="plain name"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_of_storage_is_refused():
    """A scheme that no file system serves raises LedgerError that names the storage."""
    with pytest.raises(LedgerError, match="storage=ftp://host/x"):
        Ledger.open("ftp://host/x", "smoke")


@pytest.mark.parametrize("found", [FORMAT + 1, None, "1"])
def test_a_newer_format_is_refused(storage, found):
    """A sweep of a format that this version does not know is not touched, and the message says what to do."""
    ledger = begun(storage)
    ledger.objects.put("sweep.json", encode("sweep.json", {"format": found}))
    before = contents(ledger)
    with pytest.raises(LedgerError, match=f"format={found}, known up to {FORMAT}: update par"):
        Ledger.open(storage, "smoke")
    assert contents(ledger) == before


def test_records_of_the_sweep_name_what_they_lack_and_ignore_what_is_newer(storage):
    """sweep.json needs its space; a field of a later version, there and in the totals, changes nothing."""
    ledger = begun(storage)
    totals = SweepTotals(configurations=7, seeds=(2, 4))
    ledger.write_totals(totals)
    for path in ("sweep.json", "wanted.json"):
        ledger.objects.put(path, encode(path, {**json.loads(ledger.objects.get(path)), "colour": "blue"}))
    again = Ledger.open(storage, "smoke")
    assert (again.sweep, again.totals()) == (ledger.sweep, totals)
    ledger.objects.put("sweep.json", encode("sweep.json", {"format": FORMAT}))
    with pytest.raises(LedgerError, match=r"sweep\.json of smoke: SweepRecord lacks space"):
        Ledger.open(storage, "smoke")

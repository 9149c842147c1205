"""Laws of whole objects, on a local disk and on a real S3 server."""

import errno
import gc
import gzip
import multiprocessing
import os
import resource
import signal
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from par.errors import DiskFullError, LedgerError
from par.objects import Objects, public
from tests.disks import fill

BULK = 6_000_000
"""Bytes that a store takes in several parts, and a disk in several writes."""


class Interrupted(BaseException):
    """What a handler of signals raises, like KeyboardInterrupt and SystemExit."""


@pytest.fixture
def objects(new_storage) -> Objects:
    return Objects.at(new_storage())


def put_for_ever(objects: Objects, path: str) -> None:
    """Replace an object by one of other bytes and another length, again and again."""
    for number in count():
        objects.put(path, bytes([number % 256]) * (BULK - number % 2 * BULK // 2))


def test_what_is_put_is_got(objects):
    """Any bytes come back, also empty ones, under any suffix; putting again replaces the whole object."""
    for path in ("a/b/c.json", "d.json", "a/packed.json.gz"):
        for data in (b"", b"\x00\xff" * 5, gzip.compress(b"{}")):
            objects.put(path, data)
            assert objects.get(path) == data
    assert objects.sizes() == dict.fromkeys(("a/b/c.json", "d.json", "a/packed.json.gz"), len(data))
    assert objects.sizes("a/b") == {"a/b/c.json": len(data)}


def test_absence_is_told_from_presence(objects):
    """What was never put does not exist and cannot be got; a folder is no object; a listing of nothing is empty."""
    objects.put("a/b.json", b"1")
    assert objects.exists("a/b.json")
    assert not objects.exists("a")
    assert not objects.exists("a/c.json")
    assert objects.walk("nowhere", recursive=True) == []
    with pytest.raises(FileNotFoundError):
        objects.get("a/c.json")


def test_a_walk_names_objects_and_folders(objects):
    """A listing has what is directly below a folder, a recursive one everything, by the path from the root."""
    for path in ("a/b/c.json", "a/d.json", "e.json"):
        objects.put(path, b"1")
    assert sorted(objects.walk(recursive=False)) == ["a", "e.json"]
    assert sorted(objects.walk("a", recursive=False)) == ["a/b", "a/d.json"]
    assert sorted(objects.walk(recursive=True)) == ["a", "a/b", "a/b/c.json", "a/d.json", "e.json"]
    assert objects.below("a").sizes() == {"b/c.json": 1, "d.json": 1}


def test_what_is_deleted_is_gone_and_nothing_else(objects):
    """Deleting an object leaves its neighbours, deleting a folder all that is outside it; doing it again is allowed."""
    for path in ("a/b/c.json", "a/b/d/e.json", "a/bb.json", "f.json"):
        objects.put(path, b"1")
    for _ in range(2):
        objects.delete("f.json")
        assert set(objects.sizes()) == {"a/b/c.json", "a/b/d/e.json", "a/bb.json"}
    for _ in range(2):
        objects.delete_folder("a/b")
        assert set(objects.sizes()) == {"a/bb.json"}
    objects.put("a/b/c.json", b"2")
    assert objects.get("a/b/c.json") == b"2"


def test_no_object_is_ever_half_visible(objects):
    """Writers of a large object replace it without pause, one after the other is killed, and every reading is whole."""
    spawn = multiprocessing.get_context("spawn")
    readings = 0
    for wanted in (3, 6):
        writer = spawn.Process(target=put_for_ever, args=(objects, "large"))
        writer.start()
        while readings < wanted:
            if objects.exists("large"):
                assert is_whole(objects.get("large"))
                readings += 1
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    assert is_whole(objects.get("large"))


def is_whole(data: bytes) -> bool:
    number = data[0]
    return data == bytes([number]) * (BULK - number % 2 * BULK // 2)


def test_an_interrupted_writer_leaves_nothing_half_written(objects):
    """A signal whose handler raises, at whatever moment of a writing, leaves the object whole or absent, no draft."""

    def interrupt(number, frame):
        raise Interrupted

    gc.disable()  # a handler that raises inside a callback of the collector would be heard as an error of its own
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for tenths_ms in range(1, 300, 19):
            try:
                signal.setitimer(signal.ITIMER_REAL, tenths_ms / 10_000)
                objects.put(f"{tenths_ms}.json", b"whole")
            except Interrupted:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    found = objects.sizes()
    assert set(found.values()) == {len(b"whole")}
    assert all(path.endswith(".json") and not path.startswith(".") for path in found)


def test_a_disk_that_fills_up_leaves_no_draft(tmp_path):
    """An object that could not be written whole does not exist, nor does a part of it; what was there before stays."""
    objects = Objects.at(tmp_path)
    objects.put("a.json", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BULK // 2, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            objects.put("a.json", bytes(BULK))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert objects.sizes() == {"a.json": 3}


def test_drafts_of_the_dead_are_found(tmp_path):
    """What a killed writer left is listed once it is old enough; objects, and drafts of writers that live, are not."""
    objects = Objects.at(tmp_path)
    for name in ("a.json", f".a.json.{'0' * 32}", f".b.json.{'1' * 32}", ".hidden"):
        objects.put(f"seed-0/{name}", b"1")
    os.utime(tmp_path / f"seed-0/.b.json.{'1' * 32}", (0, 0))
    now = datetime.now(UTC)
    assert objects.drafts(before=now - timedelta(hours=1)) == [f"seed-0/.b.json.{'1' * 32}"]
    assert len(objects.drafts("seed-0", before=now + timedelta(hours=1))) == 2


@pytest.mark.parametrize(
    ("storage", "shown"),
    [
        ("s3://KEY:SECRET@bucket/a?region=eu", "s3://bucket/a?region=eu"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("/home/a@b/c", "/home/a@b/c"),
    ],
)
def test_secrets_are_not_shown(storage, shown):
    """A storage is shown without the key and the secret of its URI, and otherwise as it is."""
    assert public(storage) == shown


def test_a_refused_storage_does_not_show_its_secret():
    """The message that refuses a scheme names the storage, not the secret in it."""
    with pytest.raises(LedgerError, match="storage=ftp://host/x") as refused:
        Objects.at("ftp://KEY:SECRET@host/x")
    assert "SECRET" not in str(refused.value)


def test_an_object_is_created_once(objects):
    """Creating is refused where an object is, which stays as it is, and no draft is left behind."""
    assert objects.create("a.json", b"first")
    assert not objects.create("a.json", b"second")
    assert objects.get("a.json") == b"first"
    assert objects.sizes() == {"a.json": 5}


def test_a_disk_without_hard_links_creates_objects_too(tmp_path, monkeypatch):
    """Where a file system refuses hard links, objects are created all the same."""

    def refused(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    objects = Objects.at(tmp_path)
    assert [objects.create("a.json", b"1"), objects.create("a.json", b"2")] == [True, False]
    assert objects.sizes() == {"a.json": 1}


def test_a_full_disk_has_an_error_of_its_own(small_disk):
    """An object that does not fit leaves the one before it, and no draft; the message names folder and remedy."""
    objects = Objects.at(small_disk)
    objects.put("a", b"before")
    fill(small_disk, 4096)
    with pytest.raises(DiskFullError, match=rf"no space left in {small_disk}: \d+ bytes free.*par gc"):
        objects.put("a", bytes(100_000))
    assert objects.get("a") == b"before"
    assert set(objects.sizes()) == {"a", "filler"}

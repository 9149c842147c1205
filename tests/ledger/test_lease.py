"""One driver drives a sweep: another one is refused, follows one that died, or breaks the lease of one that hangs."""

import multiprocessing
import os
import signal
import socket
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from par.errors import DiskFullError, LedgerError
from par.ledger.lease import STALE_AFTER_S, Lease, LeaseRecord, break_lease, hold, holder, leases, require_free, take
from par.ledger.ledger import Ledger
from par.ledger.records import SweepRecord
from par.objects import encode
from tests.disks import fill


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.moment

    def move(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def at_once(seconds: float) -> None:
    """Wait for nothing."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(new_storage) -> Ledger:
    return Ledger.create(new_storage(), "smoke", SweepRecord(space=""))


@pytest.fixture
def local(tmp_path) -> Ledger:
    return Ledger.create(tmp_path, "smoke", SweepRecord(space=""))


def taken(ledger: Ledger, clock: Clock, **given) -> Lease:
    return take(ledger, now=clock, sleep=at_once, **given)


def left_behind(ledger: Ledger, clock: Clock, **changes) -> LeaseRecord:
    """The lease of a driver that ended without a word, which this process would be but for ``changes``."""
    mine = LeaseRecord.of_this_process(clock(), code="").to_dict() | changes
    ledger.objects.put("lease-1.json", encode("lease-1.json", mine))
    return LeaseRecord.from_dict(mine)


def test_a_second_driver_is_refused(ledger, clock):
    """While a lease is held, another driver is told who holds it, where, since when, and how to go on (R13)."""
    first = taken(ledger, clock, code="abc")
    clock.move(7)
    with pytest.raises(LedgerError) as refused:
        taken(ledger, clock)
    message = str(refused.value)
    for word in (first.record.owner, socket.gethostname(), f"pid {os.getpid()}", first.record.user, "7 s ago", "break"):
        assert word in message
    with pytest.raises(LedgerError) as foretold:
        require_free(ledger, now=clock)
    assert str(foretold.value) == message
    assert holder(ledger, now=clock) == first.record == leases(ledger)[0]
    assert first.record.code == "abc"
    clock.move(STALE_AFTER_S + 1)
    require_free(ledger, now=clock)


def test_a_released_lease_is_free(ledger, clock):
    """After its release the next driver takes it without a note, and both stay in the history."""
    taken(ledger, clock).release()
    assert holder(ledger, now=clock) is None
    clock.move(5)
    second = taken(ledger, clock)
    first, last = leases(ledger)
    assert datetime.fromisoformat(first.end) == clock() - timedelta(seconds=5)
    assert (last, last.note, last.end) == (second.record, "", None)


def test_renewals_keep_a_lease(ledger, clock):
    """A lease that is renewed in time is held for ever; one that is not may be taken after two minutes, with a note."""
    first = taken(ledger, clock)
    for _ in range(3):
        clock.move(STALE_AFTER_S)
        with pytest.raises(LedgerError, match="is driven by"):
            taken(ledger, clock)
        first.renew()
    clock.move(STALE_AFTER_S + 1)
    assert holder(ledger, now=clock) is None
    second = taken(ledger, clock)
    assert "no sign of life for 121 s" in second.record.note
    assert first.record.owner in second.record.note


def test_who_was_followed_finds_out(ledger, clock):
    """The former owner of a stale lease learns of it once, at its next renewal, and leaves its follower's alone."""
    said: list[str] = []
    first = taken(ledger, clock, on_lost=said.append)
    clock.move(STALE_AFTER_S + 1)
    second = taken(ledger, clock)
    for _ in range(2):
        first.renew()
        first.release()
    assert said == [first.lost]
    assert second.record.owner in first.lost
    assert holder(ledger, now=clock) == second.record
    second.renew()
    assert second.lost is None


def test_a_lease_is_broken_with_a_reason(ledger, clock):
    """Breaking ends a live lease at once; reason and breaker are kept, and the former owner is told of both."""
    first = taken(ledger, clock)
    for reason in ("", " "):
        with pytest.raises(LedgerError, match="reason"):
            break_lease(ledger, reason, now=clock, sleep=at_once)
    assert break_lease(ledger, "node is frozen", now=clock, sleep=at_once) == first.record
    assert holder(ledger, now=clock) is None
    first.renew()
    assert "node is frozen" in first.lost
    assert first.record.user in first.lost
    second = taken(ledger, clock)
    assert [record.reason for record in leases(ledger)] == ["", "node is frozen", ""]
    assert second.record.note == ""


def test_a_lease_that_nobody_holds_cannot_be_broken(ledger, clock):
    """Without a lease, and after its release, breaking is refused and leaves no trace."""
    for _ in range(2):
        before = leases(ledger)
        with pytest.raises(LedgerError, match="driven by nobody"):
            break_lease(ledger, "to be sure", now=clock, sleep=at_once)
        assert leases(ledger) == before
        taken(ledger, clock).release()


def test_a_lease_of_a_dead_process_is_followed_at_once(local, clock):
    """A process number that is free, or that a later process has, tells that the owner is dead: the note says so."""
    dead = left_behind(local, clock, process_start=1.0)
    assert holder(local, now=clock) is None
    assert f"process {dead.pid} of {dead.owner}" in taken(local, clock).record.note


def test_processes_of_other_machines_are_not_judged_by_their_number(local, clock):
    """Where a process number means nothing here, only the lack of renewals ends a lease."""
    left_behind(local, clock, pids="another boot", pid=2**22 + 1)
    with pytest.raises(LedgerError, match="is driven by"):
        taken(local, clock)
    clock.move(STALE_AFTER_S + 1)
    assert taken(local, clock).number == 2


def take_and_die(ledger: Ledger) -> None:
    take(ledger)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_driver_is_followed_at_once(local):
    """After SIGKILL of the process that holds the lease the next driver takes it, even before anyone has reaped it."""
    doomed = multiprocessing.get_context("spawn").Process(target=take_and_die, args=(local,))
    doomed.start()
    os.waitid(os.P_PID, doomed.pid, os.WEXITED | os.WNOWAIT)
    with hold(local) as lease:
        assert f"process {doomed.pid}" in lease.record.note
    doomed.join()
    assert [record.end is None for record in leases(local)] == [True, False]


def compete(ledger: Ledger, rounds: int, together, won) -> None:
    for number in range(rounds):
        together.wait()
        try:
            lease = take(ledger)
        except LedgerError:
            lease = None
        together.wait()
        if lease:
            won.put((number, os.getpid()))
            lease.release()


def test_of_many_at_once_exactly_one_wins(local):
    """Processes that take the lease of a sweep on a disk at the same moment: one has it, in each of many rounds."""
    spawn, rounds = multiprocessing.get_context("spawn"), 20
    together, won = spawn.Barrier(4), spawn.Queue()
    rivals = [spawn.Process(target=compete, args=(local, rounds, together, won)) for _ in range(4)]
    for rival in rivals:
        rival.start()
    winners = dict(won.get() for _ in range(rounds))
    for rival in rivals:
        rival.join()
        assert rival.exitcode == 0
    assert sorted(winners) == list(range(rounds))
    assert won.empty()
    assert len(leases(local)) == rounds


def test_in_an_object_store_the_last_writer_has_it(s3, clock):
    """Where several can create a lease at once, all but the last one are refused when they read it back, and one that
    had read it back before the last one wrote finds its lease lost when it renews it."""
    late = LeaseRecord.of_this_process(clock(), code="late")
    data = encode("lease-1.json", late.to_dict())
    ledger = Ledger.create(s3.format("late-writer"), "smoke", SweepRecord(space=""))
    with pytest.raises(LedgerError, match=f"is driven by {late.owner}"):
        take(ledger, now=clock, sleep=lambda seconds: ledger.objects.put("lease-1.json", data))
    ledger = Ledger.create(s3.format("later-writer"), "smoke", SweepRecord(space=""))
    early = taken(ledger, clock)
    ledger.objects.put("lease-1.json", data)
    early.renew()
    assert late.owner in early.lost
    assert holder(ledger, now=clock) == late


def test_a_driver_renews_while_it_works_and_is_told_of_its_loss(local):
    """Within ``hold`` the lease is renewed again and again by itself, until it is broken: then the driver is told."""
    told, renewed = threading.Event(), threading.Event()
    clock = Clock()

    def ticking() -> datetime:
        clock.move(1)
        if clock() > datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC):
            renewed.set()
        return clock()

    with hold(local, on_lost=lambda why: told.set(), every_s=0.001, now=ticking) as lease:
        assert renewed.wait(60)
        assert leases(local)[0].renewed > lease.record.since
        break_lease(local, "a test")
        assert told.wait(60)
        assert "a test" in lease.lost
    assert [record.reason for record in leases(local)] == ["", "a test"]


def test_a_storage_that_does_not_answer_costs_no_lease(local, tmp_path, clock):
    """A renewal that fails is an error of its moment: the next one renews, and nobody has lost anything."""
    lease, away = taken(local, clock), tmp_path / "away"
    (tmp_path / "smoke").rename(away)
    with pytest.raises(OSError, match="smoke"):
        lease.renew()
    away.rename(tmp_path / "smoke")
    clock.move(60)
    lease.renew()
    assert lease.lost is None
    assert holder(local, now=clock).age_s(clock()) == 0


def test_a_full_disk_costs_no_lease(small_disk, clock):
    """While nothing can be written the holder goes on renewing, releases without an error, and its lease lapses."""
    ledger = Ledger.create(small_disk, "smoke", SweepRecord(space=""))
    with hold(ledger, every_s=0.01) as lease:
        filler = fill(small_disk, 0)
        with pytest.raises(DiskFullError):
            lease.renew()
        filler.unlink()
        renewed = lease.record.renewed
        deadline = time.monotonic() + 60
        while lease.record.renewed == renewed:
            assert time.monotonic() < deadline, "the thread renews no more"
        fill(small_disk, 0)
    assert lease.lost is None
    assert holder(ledger) == leases(ledger)[0]


def test_a_user_without_a_name_has_a_number(monkeypatch):
    """In a container whose user has no name the lease tells the number."""

    def nameless() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert LeaseRecord.of_this_process(Clock()(), code="").user == str(os.getuid())

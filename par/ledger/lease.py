"""The lease: who drives a sweep now. A second driver is refused, one that died is followed, one that hangs is broken.

    <storage>/<sweep>/lease-<n>.json        the n-th time that somebody drove the sweep, or broke a lease

The last one counts; the earlier ones are the history. Taking and breaking create the next number, which on a disk only
one process can. A holder writes its own object alone, and has lost the lease once there is a later one.

The clocks of machines that share a storage must agree to better than a minute.
"""

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

from par.errors import DiskFullError, LedgerError
from par.ledger.ledger import Ledger
from par.ledger.processes import own_start, pids, runs, user_name
from par.ledger.records import Record
from par.objects import decode, encode

__all__ = ["Lease", "LeaseRecord", "break_lease", "hold", "holder", "latest", "leases", "require_free", "take"]

RENEW_EVERY_S = 20.0
STALE_AFTER_S = 120.0
"""A lease that was not renewed for so long may be taken."""
SETTLE_S = 2.0
"""In an object store, where the last of several writers stays, how long a new holder waits until it reads back whether
it is the one. A writer that was held up for longer is seen by the other one when that renews its lease."""
_LEASE = re.compile(r"lease-(\d+)\.json")

Clock = Callable[[], datetime]
utc_now: Clock = partial(datetime.now, UTC)


@dataclass(frozen=True, kw_only=True)
class LeaseRecord(Record):
    """Who drives, or drove, a sweep; or, with a ``reason``, who broke the lease before."""

    owner: str
    """A name for this taking, drawn at random."""
    host: str
    pid: int
    pids: str
    """Names the space in which the process number has a meaning: a boot of a machine, and a namespace on it."""
    process_start: float
    """Seconds since 1970, which tell the process from a later one of its number."""
    user: str
    code: str
    """Version of the code that drives."""
    since: str
    """ISO 8601, as all times here."""
    renewed: str
    """The last sign of life."""
    end: str | None = None
    """When it was released; None while it holds, and for ever if its process died."""
    note: str = ""
    """Why it was taken although the one before had not been released."""
    reason: str = ""
    """Why the one before was broken."""
    stopping: str = ""
    """Why whoever works under it is to save and leave; empty while the work goes on."""

    @classmethod
    def of_this_process(cls, now: datetime, *, code: str) -> "LeaseRecord":
        """Describe this process as the holder."""
        return cls(
            owner=uuid4().hex[:8], host=socket.gethostname(), pid=os.getpid(), pids=pids(),
            process_start=own_start(), user=user_name(), code=code, since=_text(now), renewed=_text(now),
        )  # fmt: skip

    def age_s(self, now: datetime) -> float:
        """Seconds since the last sign of life."""
        return (now - datetime.fromisoformat(self.renewed)).total_seconds()

    def lapsed(self, now: datetime) -> str | None:
        """Why this lease, which was not released, keeps nobody out any more; None while it does."""
        if self.pids == pids() and not runs(self.pid, self.process_start):
            return f"process {self.pid} of {self.owner} on {self.host} is dead"
        if self.age_s(now) > STALE_AFTER_S:
            return f"{self.owner} on {self.host} (pid {self.pid}) gave no sign of life for {self.age_s(now):.0f} s"
        return None


@dataclass(kw_only=True)
class Lease:
    """The right to drive a sweep, held by this process."""

    ledger: Ledger
    number: int
    record: LeaseRecord
    on_lost: Callable[[str], object]
    """Called once, with the reason, when another process has taken the lease or broken it."""
    now: Clock
    last_seen: str
    """Until when the driver before was alive."""
    lost: str | None = None
    """Why it is not held any more: stop driving."""
    writing: threading.Lock = field(default_factory=threading.Lock)

    def renew(self) -> None:
        """Give a sign of life, or find the lease lost. Raises OSError if the storage does not answer."""
        if self.lost:
            return
        if later := [number for number in _numbers(self.ledger) if number > self.number]:
            self._lose(_how_lost(_load(self.ledger, later[0])))
        elif (there := _load(self.ledger, self.number)).owner != self.record.owner:
            self._lose(_how_lost(there))
        else:
            self._write(renewed=_text(self.now()))

    def ask_to_stop(self, reason: str) -> None:
        """Tell all who work under the lease to save and leave."""
        if not self.lost:
            self._write(stopping=reason)

    def release(self) -> None:
        """End the lease, if it is still held."""
        self.renew()
        if not self.lost:
            self._write(end=_text(self.now()))

    def _write(self, **changes: str) -> None:
        with self.writing:
            self.record = replace(self.record, **changes)
            self.ledger.objects.put(_path(self.number), encode(_path(self.number), self.record.to_dict()))

    def _lose(self, why: str) -> None:
        self.lost = f"the lease of sweep {self.ledger.name} is lost: {why}"
        self.on_lost(self.lost)


@contextmanager
def hold(
    ledger: Ledger,
    *,
    code: str = "",
    on_lost: Callable[[str], object] = lambda why: None,
    every_s: float = RENEW_EVERY_S,
    now: Clock = utc_now,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Lease]:
    """Drive a sweep: take its lease, renew it every ``every_s`` seconds from a thread, release it at the end.

    ``on_lost`` is called from that thread. Raises LedgerError while another driver holds the lease.
    """
    lease, done = take(ledger, code=code, on_lost=on_lost, now=now, sleep=sleep), threading.Event()
    thread = threading.Thread(target=_renew_until, args=(lease, done, every_s), name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        done.set()
        thread.join()
        with suppress(OSError, DiskFullError):  # the storage takes nothing: the lease lapses
            lease.release()


def take(
    ledger: Ledger,
    *,
    code: str = "",
    on_lost: Callable[[str], object] = lambda why: None,
    now: Clock = utc_now,
    sleep: Callable[[float], object] = time.sleep,
) -> Lease:
    """Take the lease; whoever takes it renews and releases it. Raises LedgerError that names the holder if it is held.

    A lease whose process is known to be dead, or that was not renewed for STALE_AFTER_S, is taken with a note.
    """
    while True:
        number, last = _last(ledger)
        note = _vacancy(ledger, last, now())
        mine = replace(LeaseRecord.of_this_process(now(), code=code), note=note)
        if _create(ledger, number + 1, mine, sleep):
            seen = mine.since if last is None else last.end or last.renewed
            return Lease(ledger=ledger, number=number + 1, record=mine, on_lost=on_lost, now=now, last_seen=seen)


def break_lease(
    ledger: Ledger, reason: str, *, now: Clock = utc_now, sleep: Callable[[float], object] = time.sleep
) -> LeaseRecord:
    """End a lease that is held and return it; its holder finds it lost when it renews it next.

    ``reason``, who broke it, from where and when, stay in the history. Raises LedgerError without a reason, or if
    nobody holds the lease.
    """
    if not reason.strip():
        raise LedgerError("reason='' says nothing: tell why the driver is given up, its lease keeps it")
    while True:
        number, last = _last(ledger)
        if last is None or last.end is not None:
            raise LedgerError(f"sweep {ledger.name} is driven by nobody: there is no lease to break, resume it")
        broken = replace(LeaseRecord.of_this_process(now(), code=""), end=_text(now()), reason=reason)
        if _create(ledger, number + 1, broken, sleep):
            return last


def holder(ledger: Ledger, *, now: Clock = utc_now) -> LeaseRecord | None:
    """Return who drives the sweep now; None if nobody does, or only who died."""
    _, last = _last(ledger)
    return last if last and last.end is None and not last.lapsed(now()) else None


def require_free(ledger: Ledger, *, now: Clock = utc_now) -> None:
    """Raise LedgerError that names the holder while a driver holds the lease: as ``take`` would, without taking it."""
    _vacancy(ledger, _last(ledger)[1], now())


def latest(ledger: Ledger) -> LeaseRecord | None:
    """Return the lease that was taken last, whatever became of it; None for a sweep that nobody has driven."""
    return _last(ledger)[1]


def leases(ledger: Ledger) -> tuple[LeaseRecord, ...]:
    """Return the history, oldest first."""
    return tuple(_load(ledger, number) for number in _numbers(ledger))


def _vacancy(ledger: Ledger, last: LeaseRecord | None, now: datetime) -> str:
    """Why the lease is free although nobody released it; empty if it was released. Raises LedgerError if it is held."""
    if last is None or last.end is not None:
        return ""
    if why := last.lapsed(now):
        return why
    lapses = now + timedelta(seconds=STALE_AFTER_S - last.age_s(now))
    raise LedgerError(
        f"sweep {ledger.name} is driven by {last.owner} on {last.host} (pid {last.pid}, user {last.user}) since "
        f"{last.since}, last sign of life {last.age_s(now):.0f} s ago: let it finish, or stop it there; if it is gone, "
        f"its lease lapses at {_text(lapses)}; if it hangs, break its lease with a reason"
    )


def _how_lost(later: LeaseRecord) -> str:
    if later.reason:
        return f"{later.user} on {later.host} broke it at {later.since} ({later.reason})"
    return f"{later.owner} on {later.host} (pid {later.pid}, user {later.user}) took it at {later.since}"


def _renew_until(lease: Lease, done: threading.Event, every_s: float) -> None:
    while not done.wait(every_s) and not lease.lost:
        with suppress(OSError, DiskFullError):  # try again: the lease stands until somebody takes it
            lease.renew()


def _create(ledger: Ledger, number: int, record: LeaseRecord, sleep: Callable[[float], object]) -> bool:
    """Create the object of a lease; False if another process was first."""
    if not ledger.objects.create(_path(number), encode(_path(number), record.to_dict())):
        return False
    if not ledger.objects.is_local:
        sleep(SETTLE_S)
    return _load(ledger, number).owner == record.owner


def _last(ledger: Ledger) -> tuple[int, LeaseRecord | None]:
    number = max(_numbers(ledger), default=0)
    return number, _load(ledger, number) if number else None


def _numbers(ledger: Ledger) -> list[int]:
    return sorted(int(m[1]) for path in ledger.objects.walk(recursive=False) if (m := _LEASE.fullmatch(path)))


def _load(ledger: Ledger, number: int) -> LeaseRecord:
    return LeaseRecord.from_dict(decode(_path(number), ledger.objects.get(_path(number))))


def _path(number: int) -> str:
    return f"lease-{number}.json"


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")

"""The ledger: the truth of a sweep as a tree of small JSON objects, each written whole. Loads without torch.

    <storage>/<sweep>/
      sweep.json                                SweepRecord
      computing.json                            Computing, as the last driver was told
      lease-<n>.json                            who drives it, or drove it: see par.ledger.lease
      wanted.json                               SweepTotals, where the sweep was made larger or ran out
      configs/<id>/config.json                  ConfigRecord
      configs/<id>/seed-<n>/attempt-<k>.json    Attempt: begun, and ended unless it died without a word
      configs/<id>/seed-<n>/result.json         SeedResult; exists exactly when the seed is done
      configs/<id>/seed-<n>/…parquet            accuracy by depth, training history: beside the result, before it
      configs/<id>/search-<n>.json              Verdict over the n seeds of a rung
      configs/<id>/confirm-<n>.json             Verdict over n fresh seeds

A lease is written again while it holds, an attempt once, when it ends, wanted.json when a person wants more or the
search finds no more, computing.json when a person says otherwise. All else is final.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from par.errors import LedgerError
from par.ledger.records import (
    FORMAT,
    Attempt,
    Computing,
    ConfigRecord,
    Record,
    SeedResult,
    SweepRecord,
    SweepTotals,
    Verdict,
)
from par.ledger.state import ConfigState, SweepState, snapshot
from par.objects import Objects, decode, encode, public

READERS = 16
"""Objects read at once from an object store, where each read is a round trip; threads only delay a local disk."""

ACCURACY = "accuracy.parquet"
"""Accuracy by depth of one seed: depth, single_query, full_state, sequences."""
TRACE = "trace.parquet"
"""What the model says after every iteration, where halting is learned: see par.evaluation.traces."""
HALTING = "halting.parquet"
"""What learned halting achieves by depth, where it is learned: the fields of HaltingCurve."""
HISTORY = "history.parquet"
"""Training records of one seed: step, and every train/ metric."""

TOTALS = "wanted.json"
COMPUTING = "computing.json"

R = TypeVar("R", bound=Record)

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SEED = re.compile(r"configs/[0-9a-f]{8}/seed-\d+")
_OBJECT = re.compile(r"configs/[0-9a-f]{8}/(?:config|(?:search|confirm)-\d+|seed-\d+/(?:result|attempt-\d+))\.json")


def sweeps(storage: str | Path) -> tuple[str, ...]:
    """Name the sweeps in ``storage``, sorted."""
    objects = Objects.at(storage)
    return tuple(name for name in sorted(objects.walk(recursive=False)) if objects.exists(f"{name}/sweep.json"))


@dataclass(frozen=True, slots=True)
class Ledger:
    """One sweep on its storage.

    Processes may write different seeds at once, and anyone may read meanwhile; one process at a time writes a seed.
    """

    storage: str
    name: str
    sweep: SweepRecord
    objects: Objects

    @classmethod
    def create(cls, storage: str | Path, sweep: str, record: SweepRecord) -> Self:
        """Begin a sweep. Raises LedgerError if it exists or its name is not a plain folder name."""
        objects = Objects.at(storage).below(plain_name("sweep", sweep))
        if not objects.create("sweep.json", encode("sweep.json", record.to_dict())):
            raise LedgerError(
                f"sweep {sweep} exists in {public(storage)}: go on with `par resume {sweep}`, or name another"
            )
        return cls(str(storage), sweep, record, objects)

    @classmethod
    def open(cls, storage: str | Path, sweep: str) -> Self:
        """Go on with a sweep. Raises LedgerError if it is absent, naming those that exist, or of a newer format."""
        objects = Objects.at(storage).below(plain_name("sweep", sweep))
        try:
            record = decode("sweep.json", objects.get("sweep.json"))
        except FileNotFoundError:
            there = ", ".join(sweeps(storage)) or "none"
            raise LedgerError(f"no sweep {sweep} in {public(storage)}; sweeps there: {there}") from None
        if not isinstance(record.get("format"), int) or record["format"] > FORMAT:
            raise LedgerError(f"sweep {sweep} has format={record.get('format')}, known up to {FORMAT}: update par")
        try:
            return cls(str(storage), sweep, SweepRecord.from_dict(record), objects)
        except LedgerError as fault:
            raise LedgerError(f"sweep.json of {sweep}: {fault}") from None

    def write_totals(self, totals: SweepTotals) -> None:
        """Write what the sweep is to have in the end, where that is not what it began with."""
        self.objects.put(TOTALS, encode(TOTALS, totals.to_dict()))

    def totals(self) -> SweepTotals:
        """What the sweep is to have in the end; nothing is said for one that is as it began."""
        return self._load_if_there(TOTALS, SweepTotals) or SweepTotals()

    def keep_computing(self, computing: Computing) -> None:
        """Write how seeds are computed from now on, where that differs from what is kept."""
        if computing != self.computing():
            self.objects.put(COMPUTING, encode(COMPUTING, computing.to_dict()))

    def computing(self) -> Computing:
        """How seeds are computed, as far as a person said so; nothing for a sweep that knows no such record."""
        return self._load_if_there(COMPUTING, Computing) or Computing()

    def checkpoints(self, config: str, seed: int) -> Objects:
        """Where the checkpoints of a seed lie."""
        return self.objects.below(f"{_seed(config, seed)}/checkpoints")

    def add_config(self, record: ConfigRecord) -> None:
        """Write a proposal. Raises LedgerError if another one has its id: ask the search for a different one."""
        self._write_once(f"configs/{record.id}/config.json", record)

    def begin_attempt(self, config: str, seed: int, attempt: Attempt) -> Attempt:
        """Write the start of an attempt at the seed and return it with its number, counted from 1."""
        self._require(config)
        attempt = replace(attempt, number=1 + self.last_attempt(config, seed))
        path = f"{_seed(config, seed)}/attempt-{attempt.number}.json"
        self.objects.put(path, encode(path, attempt.to_dict()))
        return attempt

    def last_attempt(self, config: str, seed: int) -> int:
        """Number of the seed's last attempt; 0 before the first."""
        names = self.files(config, seed)
        return max((int(m[1]) for name in names if (m := re.fullmatch(r"attempt-(\d+)\.json", name))), default=0)

    def end_attempt(self, config: str, seed: int, attempt: Attempt) -> None:
        """Add its end to an attempt, which needs one. Raises LedgerError if it has ended otherwise."""
        path = f"{_seed(config, seed)}/attempt-{attempt.number}.json"
        if not attempt.ended:
            raise LedgerError(f"{path}: the attempt has no end; give the time at which it ended")
        begun = self._load(path)
        data = encode(path, {**begun, **attempt.to_dict()})
        if "end" in begun and begun != decode(path, data):
            raise LedgerError(f"{path} ended at {begun['end']} already: begin another attempt")
        self.objects.put(path, data)

    def write_bytes(self, config: str, seed: int, name: str, data: bytes) -> None:
        """Put a file, such as accuracy.parquet, beside the result. Write it first: a result says that all is there."""
        if plain_name("file", name).endswith(".json"):
            raise LedgerError(f"file={name}: JSON objects are the ledger's own; choose another ending")
        self._require(config)
        self.objects.put(f"{_seed(config, seed)}/{name}", data)

    def read_bytes(self, config: str, seed: int, name: str) -> bytes | None:
        """Read a file beside the result; None if it is not there."""
        try:
            return self.objects.get(f"{_seed(config, seed)}/{plain_name('file', name)}")
        except FileNotFoundError:
            return None

    def read_table(self, config: str, seed: int, name: str) -> pa.Table:
        """Read a Parquet file of a seed; an empty table if it is not there. Raises LedgerError if it is damaged."""
        if (data := self.read_bytes(config, seed, name)) is None:
            return pa.table({})
        try:
            return pq.read_table(pa.BufferReader(data), use_threads=False)
        except pa.ArrowInvalid as fault:
            place = f"{self.name}/{_seed(config, seed)}/{name}"
            raise LedgerError(f"{place} is damaged: {fault}; restore it from a copy, or remove it") from None

    def files(self, config: str, seed: int) -> list[str]:
        """Name what lies in the folder of a seed."""
        return [path.rpartition("/")[2] for path in self.objects.walk(_seed(config, seed), recursive=False)]

    def finish(self, config: str, seed: int, result: SeedResult) -> None:
        """Write the result: the seed is done. Raises LedgerError if it is done with a different one."""
        self._require(config)
        self._write_once(f"{_seed(config, seed)}/result.json", result)

    def give_verdict(self, config: str, verdict: Verdict) -> None:
        """Write what a configuration is worth. Raises LedgerError if it was said to be something else."""
        self._require(config)
        self._write_once(f"configs/{config}/{verdict.stage}-{len(verdict.seeds)}.json", verdict)

    def read(self) -> SweepState:
        """Rebuild the sweep's state: one recursive listing, then each object once.

        Raises LedgerError that names an object which is damaged or missing.
        """
        return snapshot(self.sweep, self._objects("configs"))

    def read_config(self, config: str) -> ConfigState:
        """Read one configuration. Raises LedgerError if it is not in the sweep, or as ``read`` does."""
        self._require(config)
        return snapshot(self.sweep, self._objects(f"configs/{config}")).configs[0]

    def _objects(self, folder: str) -> dict[str, dict[str, Any]]:
        listed = {path for path in self.objects.walk(folder, recursive=True) if _OBJECT.fullmatch(path)}
        # A listing is no snapshot: it may show a seed and miss the configuration, which was written before it.
        paths = sorted(listed | {f"configs/{path.split('/')[1]}/config.json" for path in listed})
        if self.objects.is_local:
            return {path: self._load(path) for path in paths}
        with ThreadPoolExecutor(READERS) as pool:
            return dict(zip(paths, pool.map(self._load, paths), strict=True))

    def _load(self, path: str) -> dict[str, Any]:
        try:
            return decode(path, self.objects.get(path))
        except FileNotFoundError:
            raise LedgerError(f"{path} is missing in sweep {self.name}: restore it or remove its folder") from None

    def _load_if_there(self, path: str, kind: type[R]) -> R | None:
        try:
            return kind.from_dict(decode(path, self.objects.get(path)))
        except FileNotFoundError:
            return None

    def _require(self, config: str) -> None:
        if not self.objects.exists(f"configs/{config}/config.json"):
            raise LedgerError(f"configuration {config} is not in sweep {self.name}: add it first")

    def _write_once(self, path: str, record: Record) -> None:
        if not _OBJECT.fullmatch(path):
            raise LedgerError(f"{path} is no place in the ledger: take the id from the configuration's fingerprint")
        data = encode(path, record.to_dict())
        if not self.objects.exists(path):
            self.objects.put(path, data)
        elif record.from_dict(self._load(path)) != record.from_dict(decode(path, data)):
            raise LedgerError(f"{path} in sweep {self.name} is written with other content, and it is final")


@dataclass(frozen=True, slots=True)
class SeedFolder:
    """Where one seed lies in a ledger: its checkpoints, its files, and the result that says that it is done."""

    ledger: Ledger
    config: str
    seed: int

    @property
    def objects(self) -> Objects:
        """All that lies there."""
        return self.ledger.objects.below(_seed(self.config, self.seed))

    @property
    def checkpoints(self) -> Objects:
        """Every worker of the seed sees them."""
        return self.ledger.checkpoints(self.config, self.seed)

    def write(self, name: str, data: bytes) -> None:
        """Put a file beside the result, before it."""
        self.ledger.write_bytes(self.config, self.seed, name, data)

    def finish(self, result: SeedResult) -> None:
        """Write the result: the seed is done."""
        self.ledger.finish(self.config, self.seed, result)


def _seed(config: str, seed: int) -> str:
    """Path of a seed's folder."""
    path = f"configs/{config}/seed-{seed}"
    if not _SEED.fullmatch(path):
        raise LedgerError(f"{path} is no place for a seed: give a configuration's id and a seed from 0 on")
    return path


def plain_name(what: str, name: str) -> str:
    """Return the name of a folder or file. Raises LedgerError if it could be anything but one path component."""
    if not _PLAIN.fullmatch(name):
        raise LedgerError(
            f"{what}={name!r} must be a plain name: 1 to 100 of A-Z a-z 0-9 . _ -, a letter or digit first"
        )
    return name

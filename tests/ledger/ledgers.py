"""What the tests of the ledger share: a configuration, a result, arbitrary records, and stores that are watched."""

from collections import Counter

from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import strategies as st
from pyarrow.fs import FSSpecHandler, PyFileSystem

from par.config.run import RunConfig
from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, ConfigRecord, SeedResult, SweepRecord, Verdict
from par.objects import Objects

CONFIG = ConfigRecord.of(RunConfig(backbone="tiny-qwen2"), number=0, suggested={})
DONE = SeedResult(metrics={"G": 8.0}, step=100)
BULK = "x" * 300_000

names = st.text(max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
attempts = st.builds(
    Attempt, node=st.none() | names, devices=st.none() | finite, resumed_at=st.integers(), asked_for=st.booleans()
)
ends = st.fixed_dictionaries(
    {"end": names, "saved_step": st.integers(), "device_seconds": finite},
    optional={"failure": names, "message": names, "traceback": names, "next_micro_batch": st.integers(1)},
)
metrics = st.dictionaries(names, finite, max_size=4)
results = st.builds(SeedResult, metrics=metrics, failure=st.none() | names, message=names, step=st.integers(0, 10_000))
stages = st.sampled_from(["search", "confirm"])
seeds = st.lists(st.integers(0, 9), min_size=1).map(tuple)
verdicts = st.builds(Verdict, score=finite, seeds=seeds, stage=stages, metrics=metrics)


class CountingStore(FSSpecHandler):
    """An object store in memory, without folders or renames, that counts what it is asked for."""

    def __init__(self) -> None:
        store = MemoryFileSystem()
        store.store, store.pseudo_dirs = {}, [""]
        super().__init__(store)
        self.asked: Counter[str] = Counter()

    def open_input_file(self, path):
        self.asked[path] += 1
        return super().open_input_file(path)

    def get_file_info_selector(self, selector):
        self.asked["listing"] += 1
        return super().get_file_info_selector(selector)

    def create_dir(self, path, recursive):
        raise AssertionError("an object store needs no folders")

    def move(self, src, dest):
        raise AssertionError("an object store has no atomic rename")


def in_memory(store: CountingStore | None = None, storage: str = "s3://bucket") -> Ledger:
    """A ledger in a store of its own that answers at once."""
    objects = Objects(PyFileSystem(store or CountingStore()), "/bucket/smoke")
    return Ledger(storage, "smoke", SweepRecord(space=""), objects)


def begun(storage: str) -> Ledger:
    """A sweep with one configuration."""
    ledger = Ledger.create(storage, "smoke", SweepRecord(space="question: why?"))
    ledger.add_config(CONFIG)
    return ledger


def contents(ledger: Ledger) -> dict[str, bytes]:
    """Every object of a sweep, drafts included, with its bytes."""
    return {path: ledger.objects.get(path) for path in ledger.objects.sizes()}

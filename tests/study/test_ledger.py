import json
import math
import multiprocessing
import os
import resource
import signal
from collections import Counter
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import FSSpecHandler, PyFileSystem

from par.config import RunConfig
from par.errors import LedgerError
from par.objects import Objects
from par.study.ledger import FORMAT, Attempt, ConfigRecord, Ledger, SeedResult, Verdict, sweeps
from par.study.records import snapshot

CONFIG = ConfigRecord.of(RunConfig(backbone="tiny-qwen2"), number=0, suggested={})
DONE = SeedResult(metrics={"G": 8.0}, step=100)
BULK = "x" * 300_000

names = st.text(max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
records = st.dictionaries(names.filter(lambda name: name != "end"), plain, max_size=3)
metrics = st.dictionaries(names, finite, max_size=4)
results = st.builds(SeedResult, metrics=metrics, failure=st.none() | names, message=names, step=st.integers(0, 10_000))
verdicts = st.builds(Verdict, score=finite, seeds=st.lists(st.integers(0, 9)).map(tuple), stage=names, metrics=metrics)


class CountingStore(FSSpecHandler):
    """An object store in memory, without folders or renames, that counts what it is asked for."""

    def __init__(self) -> None:
        store = MemoryFileSystem()
        store.store, store.pseudo_dirs = {}, [""]
        super().__init__(store)
        self.asked: Counter[str] = Counter()

    def open_input_stream(self, path):
        self.asked[path] += 1
        return super().open_input_stream(path)

    def get_file_info_selector(self, selector):
        self.asked["listing"] += 1
        return super().get_file_info_selector(selector)

    def create_dir(self, path, recursive):
        raise AssertionError("an object store needs no folders")

    def move(self, src, dest):
        raise AssertionError("an object store has no atomic rename")


def in_memory(store: CountingStore | None = None, storage: str = "s3://bucket") -> Ledger:
    objects = Objects(PyFileSystem(store or CountingStore()), "/bucket/smoke")
    return Ledger(storage, "smoke", {"format": FORMAT}, objects)


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    made = Ledger.create(tmp_path, "smoke", {"space": "question: why?"})
    made.add_config(CONFIG)
    return made


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_layout_is_the_documented_one(ledger, tmp_path):
    """Every object lies where architecture says, whole JSON under its own name, and no draft is left."""
    ledger.begin_attempt(CONFIG.id, 2, {"node": "a"})
    ledger.write_bytes(CONFIG.id, 2, "accuracy.parquet", b"PAR1")
    ledger.finish(CONFIG.id, 2, DONE)
    ledger.give_verdict(CONFIG.id, Verdict(score=0.5, seeds=(2,)))
    assert RunConfig(backbone="tiny-qwen2").fingerprint()[:8] == CONFIG.id
    below = f"smoke/configs/{CONFIG.id}"
    objects = {"smoke/sweep.json"} | {f"{below}/{name}.json" for name in ("config", "verdict")}
    objects |= {f"{below}/seed-2/{name}.json" for name in ("attempt-1", "result")}
    assert tree(tmp_path) == objects | {f"{below}/seed-2/accuracy.parquet"}
    assert all(isinstance(json.loads((tmp_path / path).read_bytes()), dict) for path in objects)
    assert ledger.folder(CONFIG.id, 2) == str(tmp_path / below / "seed-2")
    assert (tmp_path / below / "seed-2" / "accuracy.parquet").read_bytes() == b"PAR1"


def test_a_file_beside_the_result_is_read_back(ledger):
    """A file written beside a result is read byte by byte; one that was never written is None."""
    ledger.write_bytes(CONFIG.id, 2, "accuracy.parquet", b"PAR1\x00")
    assert ledger.read_bytes(CONFIG.id, 2, "accuracy.parquet") == b"PAR1\x00"
    assert ledger.read_bytes(CONFIG.id, 2, "history.parquet") is None
    assert ledger.read_bytes(CONFIG.id, 3, "accuracy.parquet") is None


@given(
    results=st.dictionaries(st.integers(0, 12), results, max_size=4),
    attempts=st.lists(st.tuples(st.integers(0, 12), records, st.none() | records), max_size=6),
    verdict=st.none() | verdicts,
)
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(results, attempts, verdict):
    """The state holds exactly what was written, floats to the last bit; an attempt has ended if its end was written."""
    ledger, lives = in_memory(), {}
    ledger.add_config(CONFIG)
    for seed, begun, ended in attempts:
        k = ledger.begin_attempt(CONFIG.id, seed, begun)
        if ended is not None:
            ledger.end_attempt(CONFIG.id, seed, k, {**ended, "end": 1.5})
        lives.setdefault(seed, []).append(Attempt(k, begun if ended is None else {**begun, **ended, "end": 1.5}))
    for seed, result in results.items():
        ledger.finish(CONFIG.id, seed, result)
    if verdict is not None:
        ledger.give_verdict(CONFIG.id, verdict)
    (config,) = ledger.read().configs
    assert (config.record, config.verdict, config.results) == (CONFIG, verdict, results)
    assert list(config.seeds) == sorted(results.keys() | lives.keys())
    for seed, state in config.seeds.items():
        assert list(state.attempts) == lives.get(seed, [])
        assert [life.number for life in state.attempts] == list(range(1, len(state.attempts) + 1))
        assert [life.ended for life in state.attempts] == ["end" in life.record for life in state.attempts]


@given(st.permutations(range(6)), st.randoms(use_true_random=False))
def test_the_state_does_not_depend_on_the_order_of_reading(numbers, chance):
    """Configurations come in order of number, seeds and attempts too, in whatever order the objects are found."""
    objects = {}
    for i, number in enumerate(numbers):
        objects[f"configs/{i:08x}/config.json"] = {**CONFIG.to_dict(), "id": f"{i:08x}", "number": number}
        objects[f"configs/{i:08x}/seed-{10 - i}/result.json"] = DONE.to_dict()
        objects |= {f"configs/{i:08x}/seed-0/attempt-{k}.json": {} for k in (10, 9, 1)}
    shuffled = list(objects.items())
    chance.shuffle(shuffled)
    state = snapshot({}, dict(shuffled))
    assert [config.record.number for config in state.configs] == list(range(6))
    assert all(list(config.seeds) == sorted(config.seeds) for config in state.configs)
    assert all([life.number for life in c.seeds[0].attempts] == [1, 9, 10] for c in state.configs)


def test_reading_lists_once_and_reads_each_object_once():
    """The cost of a reading is one listing and one read per object; files beside the results cost nothing."""
    store = CountingStore()
    ledger = in_memory(store)
    ledger.add_config(CONFIG)
    for seed in range(3):
        ledger.begin_attempt(CONFIG.id, seed, {})
        ledger.write_bytes(CONFIG.id, seed, "accuracy.parquet", b"PAR1")
        ledger.finish(CONFIG.id, seed, DONE)
    store.asked.clear()
    ledger.read()
    assert store.asked.total() == 1 + 1 + 2 * 3
    assert set(store.asked.values()) == {1}


@pytest.mark.parametrize("storage", ["s3://bucket{}", "s3://bucket/{}", "gs://bucket/runs{}", "gs://bucket/runs/{}"])
@pytest.mark.parametrize("options", ["", "?region=eu&scheme=http"])
def test_a_folder_in_an_object_store_keeps_the_options_of_the_storage(storage, options):
    """The folder of a seed is a URI that opens the same store again, its options included."""
    folder = in_memory(storage=storage.format(options)).folder(CONFIG.id, 3)
    assert folder == f"{storage.format('').rstrip('/')}/smoke/configs/{CONFIG.id}/seed-3{options}"


def test_a_proposal_holds_its_run_without_the_seed():
    """Seeds of one configuration share one record, from which each run is rebuilt."""
    run = RunConfig(backbone="tiny-qwen2", seed=3)
    assert ConfigRecord.of(run, number=0, suggested={}) == CONFIG
    assert RunConfig.model_validate({**CONFIG.run, "seed": 3}) == run
    assert "seed" not in CONFIG.run


def test_attempts_are_counted_on():
    """The next attempt has the number after the highest, also beyond nine."""
    ledger = in_memory()
    ledger.add_config(CONFIG)
    assert [ledger.begin_attempt(CONFIG.id, 0, {}) for _ in range(12)] == list(range(1, 13))


def test_a_reader_in_the_middle_of_an_object_keeps_the_old_one(ledger, tmp_path):
    """Ending an attempt replaces the object: whoever has it open goes on reading the whole of what was there."""
    k = ledger.begin_attempt(CONFIG.id, 0, {"node": "a"})
    with (tmp_path / f"smoke/configs/{CONFIG.id}/seed-0/attempt-1.json").open() as reader:
        ledger.end_attempt(CONFIG.id, 0, k, {"end": 1})
        assert json.load(reader) == {"node": "a"}


def test_a_disk_that_fills_up_leaves_no_half_object(ledger, tmp_path):
    """An object that could not be written whole does not exist, and is written once there is room again."""
    before, result = ledger.read(), SeedResult(metrics={}, message=BULK)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(BULK) // 2, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            ledger.finish(CONFIG.id, 0, result)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ledger.read() == before
    ledger.finish(CONFIG.id, 0, result)
    assert ledger.read().configs[0].results == {0: result}


def test_opening_gives_back_what_creating_recorded(ledger, tmp_path):
    """A sweep opened later, by path or by URI, is the one that was created."""
    for storage in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        again = Ledger.open(storage, "smoke")
        assert again.sweep == ledger.sweep == {"space": "question: why?", "format": FORMAT}
        assert again.read() == ledger.read()
        assert again.folder(CONFIG.id, 0) == ledger.folder(CONFIG.id, 0)


def test_an_existing_sweep_is_resumed_not_created_again(ledger, tmp_path):
    """Creating a sweep twice changes nothing and says how to go on."""
    with pytest.raises(LedgerError, match=r"smoke exists.*--resume smoke"):
        Ledger.create(tmp_path, "smoke", {})
    assert Ledger.open(tmp_path, "smoke").sweep == ledger.sweep


def test_an_absent_sweep_is_answered_with_those_that_exist(ledger, tmp_path):
    """Opening an unknown name lists the sweeps there; a folder without sweep.json is none."""
    (tmp_path / "notes").mkdir()
    Ledger.create(tmp_path, "paper", {})
    assert sweeps(tmp_path) == ("paper", "smoke")
    with pytest.raises(LedgerError, match=r"no sweep smok in .*: paper, smoke$"):
        Ledger.open(tmp_path, "smok")
    with pytest.raises(LedgerError, match=r"sweeps there: none$"):
        Ledger.open(tmp_path / "nowhere", "smoke")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", ".hidden", "-x", "a b", "a\n", "é", "a" * 101])
def test_a_sweep_is_a_plain_folder_name(tmp_path, name):
    """A name that could leave the storage, hide, or need quoting is refused, and nothing is written."""
    for call in (lambda: Ledger.create(tmp_path, name, {}), lambda: Ledger.open(tmp_path, name)):
        with pytest.raises(LedgerError, match="plain name"):
            call()
    assert tree(tmp_path) == set()


def test_an_unknown_kind_of_storage_is_refused():
    """A scheme that no file system serves raises LedgerError that names the storage."""
    with pytest.raises(LedgerError, match="storage=ftp://host/x"):
        Ledger.open("ftp://host/x", "smoke")


@pytest.mark.parametrize("found", [FORMAT + 1, None, "1"])
def test_a_newer_format_is_refused(ledger, tmp_path, found):
    """A sweep of a format that this version does not know is not touched."""
    (tmp_path / "smoke/sweep.json").write_text(json.dumps({"format": found}))
    with pytest.raises(LedgerError, match=f"format={found}, known up to {FORMAT}"):
        Ledger.open(tmp_path, "smoke")


def test_fields_of_a_later_version_are_ignored(ledger, tmp_path):
    """Objects with further fields read as before, and finishing again with the same content still changes nothing."""
    ledger.finish(CONFIG.id, 0, DONE)
    ledger.give_verdict(CONFIG.id, Verdict(score=0.5, seeds=(0,)))
    before = ledger.read()
    for path in (tmp_path / "smoke").rglob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "colour": "blue"}))
    again = Ledger.open(tmp_path, "smoke")
    assert again.read().configs == before.configs
    again.finish(CONFIG.id, 0, DONE)
    assert "blue" in (tmp_path / f"smoke/configs/{CONFIG.id}/seed-0/result.json").read_text()


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
    with pytest.raises(LedgerError, match=r"verdict\.json.*final"):
        ledger.give_verdict(CONFIG.id, Verdict(score=0.6, seeds=(0, 1)))
    with pytest.raises(LedgerError, match=r"config\.json.*final"):
        ledger.add_config(ConfigRecord(**{**CONFIG.to_dict(), "number": 1}))


def test_an_attempt_ends_once(ledger):
    """An attempt needs an end to end, ends again only in the same way, and one that never began cannot end."""
    k = ledger.begin_attempt(CONFIG.id, 0, {"node": "a", "cores": (1, 2)})
    with pytest.raises(LedgerError, match=r"attempt-1\.json: the record has no end"):
        ledger.end_attempt(CONFIG.id, 0, k, {"cause": "HANG"})
    assert not ledger.read().configs[0].seeds[0].attempts[0].ended
    for _ in range(2):
        ledger.end_attempt(CONFIG.id, 0, k, {"end": 7, "steps": (1, 2)})
    with pytest.raises(LedgerError, match="ended at 7 already"):
        ledger.end_attempt(CONFIG.id, 0, k, {"end": 8})
    with pytest.raises(LedgerError, match=r"attempt-2\.json is missing"):
        ledger.end_attempt(CONFIG.id, 0, 2, {"end": 8})
    whole = {"node": "a", "cores": [1, 2], "end": 7, "steps": [1, 2]}
    assert ledger.read().configs[0].seeds[0].attempts == (Attempt(1, whole),)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, object(), {1: 2}])
def test_what_json_cannot_hold_is_named_and_not_written(ledger, tmp_path, value):
    """A value that is not finite or not plain is refused by its dotted key, and the ledger stays as it was."""
    before = tree(tmp_path)
    for write in (
        lambda: ledger.finish(CONFIG.id, 0, SeedResult(metrics={"G": 1.0, "d50": value})),
        lambda: ledger.give_verdict(CONFIG.id, Verdict(score=1.0, seeds=(0,), metrics={"d50": value})),
        lambda: ledger.begin_attempt(CONFIG.id, 0, {"metrics": {"d50": value}}),
        lambda: Ledger.create(tmp_path, "other", {"metrics": {"d50": value}}),
    ):
        with pytest.raises(LedgerError, match=r"json: metrics\.d50="):
            write()
    with pytest.raises(LedgerError, match=r"json: suggested\.betas\[1\]="):
        ledger.add_config(ConfigRecord(**{**CONFIG.to_dict(), "id": "0" * 8, "suggested": {"betas": [0, value]}}))
    assert tree(tmp_path) == before


def test_only_places_of_the_layout_are_written(ledger, tmp_path):
    """Unknown configurations, negative seeds, odd ids and foreign JSON names are refused, and nothing is written."""
    before = tree(tmp_path)
    for write in (
        lambda: ledger.add_config(ConfigRecord(**{**CONFIG.to_dict(), "id": "../../x"})),
        lambda: ledger.begin_attempt("0" * 8, 0, {}),
        lambda: ledger.finish("0" * 8, 0, DONE),
        lambda: ledger.give_verdict("0" * 8, Verdict(score=1.0, seeds=())),
        lambda: ledger.begin_attempt(CONFIG.id, -1, {}),
        lambda: ledger.finish("..", 0, DONE),
        lambda: ledger.write_bytes(CONFIG.id, 0, "../x", b""),
        lambda: ledger.write_bytes(CONFIG.id, 0, "result.json", b""),
    ):
        with pytest.raises(LedgerError):
            write()
    assert tree(tmp_path) == before


def test_drafts_and_strangers_are_invisible(ledger, tmp_path):
    """What a writer left when it died half-way, and files that are not the ledger's, change nothing for readers."""
    ledger.finish(CONFIG.id, 0, DONE)
    before = ledger.read()
    seed = tmp_path / "smoke/configs" / CONFIG.id / "seed-1"
    seed.mkdir()
    for name in (".result.json.0123", "result.json.tmp", "result.json~", "attempt-x.json"):
        (seed / name).write_text('{"metr')
    (tmp_path / "smoke/configs/README.json").write_text("no JSON")
    assert ledger.read() == before
    assert ledger.begin_attempt(CONFIG.id, 1, {}) == 1


@pytest.mark.parametrize("text", ["", '{"metr', "[1]", "{}"])
def test_a_damaged_object_is_named(ledger, tmp_path, text):
    """An object that is no JSON, no object, or lacks a field raises LedgerError with its path."""
    ledger.finish(CONFIG.id, 0, DONE)
    (tmp_path / f"smoke/configs/{CONFIG.id}/seed-0/result.json").write_text(text)
    with pytest.raises(LedgerError, match=rf"configs/{CONFIG.id}/seed-0/result\.json"):
        ledger.read()


def test_a_lost_proposal_is_named(ledger, tmp_path):
    """Results without their configuration are not skipped in silence."""
    ledger.finish(CONFIG.id, 0, DONE)
    (tmp_path / f"smoke/configs/{CONFIG.id}/config.json").unlink()
    with pytest.raises(LedgerError, match=rf"configs/{CONFIG.id}/config\.json is missing"):
        ledger.read()


def test_an_object_of_an_earlier_version_takes_the_defaults(ledger, tmp_path):
    """A field that has a default may be missing."""
    ledger.finish(CONFIG.id, 0, DONE)
    (tmp_path / f"smoke/configs/{CONFIG.id}/seed-0/result.json").write_text('{"metrics": {"G": 8.0}}')
    assert ledger.read().configs[0].results == {0: SeedResult(metrics={"G": 8.0})}


def test_a_failed_seed_scores_zero():
    """A failure counts as 0 under every metric; a metric that was not measured is an error, not a zero."""
    assert SeedResult(metrics={"G": 3.0}, failure="NUMERIC").score("G") == 0
    assert DONE.score("G") == 8
    with pytest.raises(LedgerError, match="no metric d50: choose one of G"):
        DONE.score("d50")


def write_seeds(ledger: Ledger, first: int, last: int) -> None:
    for seed in range(first, last):
        k = ledger.begin_attempt(CONFIG.id, seed, {"bulk": BULK})
        ledger.end_attempt(CONFIG.id, seed, k, {"end": 1})
        ledger.finish(CONFIG.id, seed, SeedResult(metrics={"G": float(seed)}, message=BULK))


def write_for_ever(ledger: Ledger, seed: int) -> None:
    while True:
        ledger.end_attempt(CONFIG.id, seed, ledger.begin_attempt(CONFIG.id, seed, {"bulk": BULK}), {"end": 1})


def test_processes_write_at_once_while_others_read(ledger):
    """Three processes write seeds of one configuration, a fourth is killed while it writes; every reading succeeds,
    results never go away, and in the end everything is there."""
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_seeds, args=(ledger, 5 * i, 5 * i + 5)) for i in range(3)]
    doomed = spawn.Process(target=write_for_ever, args=(ledger, 99))
    for process in (*writers, doomed):
        process.start()
    seen = {}
    while len(seen) < 15 or doomed.is_alive():
        (config,) = ledger.read().configs
        assert seen.items() <= config.results.items()
        seen = config.results
        if 99 in config.seeds and len(config.seeds[99].attempts) >= 3 and doomed.is_alive():
            os.kill(doomed.pid, signal.SIGKILL)
            doomed.join()
    for process in writers:
        process.join()
        assert process.exitcode == 0
    (config,) = ledger.read().configs
    assert {seed: result.metrics["G"] for seed, result in config.results.items()} == {i: i for i in range(15)}
    assert all(life.ended for seed in range(15) for life in config.seeds[seed].attempts)
    assert all(life.record["bulk"] == BULK for life in config.seeds[99].attempts)

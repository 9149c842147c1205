"""`par export` as a user types it: the table of all seeds, read back with pyarrow and the csv module."""

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from par.ledger.current_space import current_space
from par.ledger.lease import hold
from par.ledger.ledger import HISTORY, Ledger
from par.ledger.records import Attempt, SeedResult
from ray_jobs.console import BAD_INPUT
from tests.ledger.ledgers import contents
from tests.ray_jobs.exports import (
    BEST,
    CLIMBING,
    LOW,
    ONE,
    export,
    files_below,
    half_way,
    new_sweep,
    refused,
    scored,
    trials_of,
    unfinished,
)
from tests.ray_jobs.projected import LATER, SPACE, begin, finish, ids, new_ledger


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return unfinished(tmp_path)


def table_of(ledger: Ledger, file: Path) -> pa.Table:
    done = export(ledger, "--parquet", str(file))
    assert done.exit_code == 0, done.output
    return parquet.read_table(file)


def csv_of(ledger: Ledger, file: Path) -> list[dict[str, str]]:
    assert export(ledger, "--csv", str(file)).exit_code == 0
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def test_every_wanted_seed_has_a_row(ledger, tmp_path):
    """Both files have a row for each seed, failed and missing ones too, with types, and the space beside it (X10)."""
    table, space = table_of(ledger, tmp_path / "a.parquet"), current_space(ledger)
    rows = [(row["seed"], row["status"], row["failure"], row["score"]) for row in table.to_pylist()]
    assert rows == [(0, "done", None, 0.5), (1, "done", "NUMERIC", 0.0), (0, "failed", "HANG", None),
                    (1, "waiting", None, None)]  # fmt: skip
    assert table["recurrence.gradient_window"].to_pylist() == [2, 2, 3, 3]
    assert table.schema.field("recurrence.gradient_window").type == pa.int64()
    metadata = {key: table.schema.metadata[key.encode()].decode() for key in ("par.sweep", "par.space")}
    assert metadata == {"par.sweep": "demo", "par.space": SPACE}
    assert table.schema.metadata[b"par.space_fingerprint"].decode() == space.fingerprint()
    text = csv_of(ledger, tmp_path / "a.csv")
    assert list(text[0]) == table.column_names
    assert [row["status"] for row in text] == [row["status"] for row in table.to_pylist()]
    assert [row["score"] for row in text] == ["0.5", "0", "", ""]


def test_a_failed_and_a_censored_seed_keep_their_numbers(ledger, tmp_path):
    """A diverged seed counts as 0, a censored one is marked, what a seed has not is null: no NaN, no seed left out."""
    second = ids(ledger)[1]
    finish(ledger, second, 1, SeedResult(metrics={"G": 16.0, "censored": 1.0, "extrapolation_auc": 1.0}))
    table = table_of(ledger, tmp_path / "a.parquet")
    found = {name: table[name].to_pylist() for name in ("G", "censored", "diverged_step", "score", "attempts")}
    assert found == {
        "G": [4.0, 0.0, None, 16.0],
        "censored": [0.0, None, None, 1.0],
        "diverged_step": [None, 7.0, None, None],
        "score": [0.5, 0.0, None, 1.0],
        "attempts": [1, 1, 1, 1],
    }
    numbers = [field.name for field in table.schema if field.type == pa.float64()]
    assert set(numbers) == {"device_hours", "score", "G", "censored", "diverged_step", "extrapolation_auc"}
    assert not any(pc.any(pc.is_nan(table[name])).as_py() for name in numbers)
    text = csv_of(ledger, tmp_path / "a.csv")
    assert [row["diverged_step"] for row in text] == ["", "7", "", ""]


def test_a_key_that_is_not_active_is_null(tmp_path):
    """A key whose condition does not hold is null in the table and no parameter of the trial, and its column keeps its
    type; a choice of lists and null is JSON text, so that its null is told from a key that is not active."""
    keys = (
        "search:\n"
        "  halting.mode: {choice: [forced, learned]}\n"
        "  halting.tau: {float: [0.2, 0.8], when: {halting.mode: learned}}\n"
        "  halting.k: {int: [1, 4], when: {halting.mode: learned}}\n"
        "  recurrence.split: {choice: [[1, 1, 1], null], when: {halting.mode: learned}}\n"
    )
    learned = {"halting.mode": "learned", "halting.tau": 0.5, "halting.k": 2}
    proposals = (
        {"halting.mode": "forced"}, learned | {"recurrence.split": [1, 1, 1]}, learned | {"recurrence.split": None},
    )  # fmt: skip
    rest = f"backbones: [{ONE}]\n{keys}configurations: 3\nseeds: 1\n"
    ledger = new_sweep(tmp_path, rest, *((ONE, suggested) for suggested in proposals))
    table = table_of(ledger, tmp_path / "a.parquet")
    assert table["halting.tau"].to_pylist() == [None, 0.5, 0.5]
    assert table["halting.k"].to_pylist() == [None, 2, 2]
    assert table["recurrence.split"].to_pylist() == [None, "[1, 1, 1]", "null"]
    types = {key: table.schema.field(key).type for key in ("halting.mode", "halting.tau", "halting.k")}
    assert types == {"halting.mode": pa.string(), "halting.tau": pa.float64(), "halting.k": pa.int64()}
    assert [row["halting.k"] for row in csv_of(ledger, tmp_path / "a.csv")] == ["", "2", "2"]
    forced, split, whole = (trial.params for trial in trials_of(ledger, tmp_path / "a.db"))
    assert (forced, whole) == (proposals[0], proposals[2])
    assert split == learned | {"recurrence.split": "[1, 1, 1]"}


def test_a_variant_is_known_by_its_name(tmp_path):
    """Each variant has its name in one column, as it is written, and as the one parameter of its trial."""
    names = ["PAR", 'no anchoring, "plain"']
    variants = f"variants:\n  {names[0]}: {{}}\n  '{names[1]}': {{recurrence.anchor: none}}\n"
    rest = f"backbones: [{ONE}]\n{variants}seeds: 2\n"
    ledger = new_sweep(tmp_path, rest, *((ONE, {"variant": name}) for name in names))
    finish(ledger, ids(ledger)[1], 0, scored(0.5))
    table, text = table_of(ledger, tmp_path / "a.parquet"), csv_of(ledger, tmp_path / "a.csv")
    expected = [names[0], names[0], names[1], names[1]]
    assert table["variant"].to_pylist() == [row["variant"] for row in text] == expected
    assert table["status"].to_pylist() == ["waiting", "waiting", "done", "waiting"]
    assert "recurrence.anchor" not in table.column_names
    assert [trial.params for trial in trials_of(ledger, tmp_path / "a.db")] == [{"variant": name} for name in names]


def test_a_race_has_the_rows_that_it_has_come_to(tmp_path):
    """Each configuration has the seeds of its rung, the one that is confirmed its fresh ones, too, each with its stage,
    whether or not they have begun; of a higher rung nothing is said."""
    ledger = half_way(tmp_path)
    best, climbing, low = ids(ledger)
    rows = table_of(ledger, tmp_path / "a.parquet").to_pylist()
    wanted = [(best, seed, "search", "done") for seed in range(4)]
    wanted += [(best, 1000, "confirm", "done"), (best, 1001, "confirm", "waiting")]
    wanted += [(climbing, seed, "search", "done") for seed in range(3)] + [(climbing, 3, "search", "waiting")]
    wanted += [(low, 0, "search", "done")]
    assert [tuple(row[key] for key in ("configuration", "seed", "stage", "status")) for row in rows] == wanted
    assert [row["score"] for row in rows] == [*BEST, 0.5, None, *CLIMBING, None, *LOW]


def test_a_running_sweep_is_exported_as_it_stands(tmp_path):
    """Whatever its driver is about to write, a seed has one row with what is known, and the sweep is left alone; once
    the driver is gone, nothing runs."""
    ledger = new_ledger(tmp_path)
    config = ids(ledger)[0]
    half = Path(ledger.objects.root, f"configs/{config}/seed-0/.result.json.{'0' * 32}")
    life = [
        (lambda: None, "waiting", None),
        (lambda: begin(ledger, config, 0), "running", None),
        (lambda: ledger.write_bytes(config, 0, HISTORY, b"PAR1"), "running", None),
        (lambda: half.write_text('{"metrics": {"extrapol'), "running", None),
        (lambda: ledger.finish(config, 0, scored(0.5)), "done", 0.5),
        (lambda: ledger.end_attempt(config, 0, Attempt(number=1, end=LATER)), "done", 0.5),
        (lambda: begin(ledger, config, 1), "done", 0.5),
    ]
    with hold(ledger):
        for number, (write, status, score) in enumerate(life):
            write()
            before = contents(ledger)
            rows = table_of(ledger, tmp_path / f"{number}.parquet").to_pylist()
            assert (rows[0]["seed"], rows[0]["status"], rows[0]["score"]) == (0, status, score)
            assert (len(rows), contents(ledger)) == (4, before)
        assert rows[1]["status"] == "running"
    assert table_of(ledger, tmp_path / "after.parquet")["status"].to_pylist() == [
        "done",
        "killed",
        "waiting",
        "waiting",
    ]


def test_nothing_that_exists_is_written_over(ledger, tmp_path):
    """A second export to a file or study, be it by the same command, and one to nowhere, end with exit code 2 and what
    to do."""
    file, url = tmp_path / "a.csv", f"sqlite:///{tmp_path}/a.db"
    assert export(ledger, "--csv", str(file), "--optuna", url).exit_code == 0
    before = files_below(tmp_path)
    assert "name another file" in refused(ledger, "--csv", str(file), "--optuna", f"sqlite:///{tmp_path}/b.db")
    assert "optuna delete-study" in refused(ledger, "--optuna", url)
    assert "sqlite:///studies.db" in refused(ledger, "--optuna", "a.db")
    assert "give --parquet FILE" in refused(ledger)
    assert files_below(tmp_path) == before
    both = str(tmp_path / "both")
    done = export(ledger, "--parquet", both, "--csv", both)
    assert done.exit_code == BAD_INPUT
    assert f"--csv {both} exists" in done.stderr
    assert parquet.read_table(both).num_rows == 4


@pytest.mark.parametrize("option", ["--parquet", "--csv", "--optuna"])
def test_a_folder_that_is_not_there_is_not_made(ledger, tmp_path, option):
    """A place whose folder is missing is refused by name with what to do, and nothing is written."""
    before, file = files_below(tmp_path), tmp_path / "no" / "folder" / "a"
    place = f"sqlite:///{file}" if option == "--optuna" else str(file)
    other = ("--csv", str(tmp_path / "b.csv")) if option != "--csv" else ()
    said = refused(ledger, option, place, *other)
    assert f"{option} {place}" in said
    assert "name another" in said
    assert files_below(tmp_path) == before

"""`par evaluate`: a kept model read once more, as its run read it and otherwise."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from par.evaluation.accuracy import depth_curve
from par.ledger.ledger import ACCURACY, HALTING, Ledger, SeedFolder
from par.ledger.records import Attempt, ConfigRecord, SweepRecord, now
from par.seed import KeptModel, run_seed
from par.testing import tiny_run
from ray_jobs.cli import app

OLD = Path(__file__).parent.parent / "old_ledger" / "old"


def begun(storage: Path, **changes) -> SeedFolder:
    """Two configurations, of which only the first is trained."""
    ledger = Ledger.create(storage, "sweep", SweepRecord(space=""))
    records = [ConfigRecord.of(tiny_run(**changes), number=0, suggested={})]
    records += [ConfigRecord.of(tiny_run(recurrence__anchor="none"), number=1, suggested={})]
    for record in records:
        ledger.add_config(record)
    return SeedFolder(ledger, records[0].id, 0)


@pytest.fixture(scope="module")
def learned(tmp_path_factory) -> SeedFolder:
    """A trained seed with learned halting."""
    folder = begun(tmp_path_factory.mktemp("storage"), halting__mode="learned")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run_seed(tiny_run(halting__mode="learned"), folder, report=lambda row: None)
    torch.set_num_threads(threads)
    return folder


@pytest.fixture
def seed(learned, tmp_path) -> SeedFolder:
    """A copy of its own."""
    storage = shutil.copytree(learned.ledger.storage, tmp_path / "storage")
    return SeedFolder(Ledger.open(storage, "sweep"), learned.config, 0)


def evaluate(seed: SeedFolder, *arguments: object, name: str | None = None) -> tuple[int, str]:
    """Exit code and output, all blanks alike."""
    name = f"sweep/{seed.config}/seed-0" if name is None else name
    command = ["evaluate", name, "--storage", seed.ledger.storage, *map(str, arguments)]
    done = CliRunner().invoke(app, command)
    return done.exit_code, " ".join(done.output.split())


def contents(seed: SeedFolder) -> dict[str, bytes]:
    return {path: seed.objects.get(path) for path in seed.objects.sizes()}


def written(seed: SeedFolder, number: int) -> list[dict]:
    return pq.read_table(Path(seed.objects.root) / f"evaluation-{number}.parquet").to_pylist()


def test_read_as_its_run_read_it(seed):
    """Accuracies and halting are those of the run, to the bit; what the ledger has of the seed is not touched."""
    before = contents(seed)
    code, output = evaluate(seed, "--halting")
    assert code == 0, output
    rows = written(seed, 1)
    there = seed.ledger.read_table(seed.config, 0, ACCURACY).to_pylist()
    assert [{name: row[name] for name in there[0]} for row in rows] == there
    for row, halting in zip(rows, seed.ledger.read_table(seed.config, 0, HALTING).to_pylist(), strict=True):
        assert {name: row[f"halting_{name}"] for name in halting} == halting
    after = contents(seed)
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {"evaluation-1.parquet", "evaluation-1.png"}


def test_other_depths_other_ways_other_files(seed):
    """Depths beyond the run's, another c, stretch, split, rule: the figures of such an exam, never over a file."""
    kept = KeptModel.open(seed)
    asked = ("--depths", "6, 64,6", "--step-size", 2, "--stretch", 1.25, "--split", "calibration", "--sequences", 5)
    code, output = evaluate(seed, *asked, "--halting", "--tau", 0.4, "--k", 1, "--m", 2)
    assert code == 0, output
    wanted = depth_curve(kept.exam([6, 64], step_size=2, stretch=1.25, split="calibration", sequences=5))
    rows = written(seed, 1)
    assert [(row["depth"], row["iteration"], row["sequences"]) for row in rows] == [(6, 3, 5), (64, 32, 5)]
    assert tuple(row["single_query"] for row in rows) == wanted.single_query
    about = pq.read_schema(Path(seed.objects.root) / "evaluation-1.parquet").metadata[b"par.evaluation"]
    assert json.loads(about) == {
        "sweep": "sweep", "config": seed.config, "seed": 0, "step": 20, "split": "calibration", "step_size": 2,
        "stretch": 1.25, "sequences": 5, "rule": {"tau": 0.4, "k": 1, "m": 2},
    }  # fmt: skip
    folders = Path(seed.objects.root), Path(seed.objects.root).parent
    assert [evaluate(seed, "--depths", 4, name=f"{folder}/")[0] for folder in folders] == [0, 0]
    assert [row["depth"] for row in written(seed, 2)] == [4]
    picture = Path(seed.objects.root, "evaluation-2.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_seed_that_is_not_done_is_told_apart(seed):
    """Its model is read, and the output says where it stands."""
    run = KeptModel.open(seed).run
    longer = ConfigRecord.of(run.from_dotted(run.dotted() | {"train.steps": 21}), number=2, suggested={})
    seed.ledger.add_config(longer)
    begun = SeedFolder(seed.ledger, longer.id, 0)
    for path, size in seed.checkpoints.sizes().items():
        assert size
        begun.checkpoints.put(path, seed.checkpoints.get(path))
    attempt = seed.ledger.begin_attempt(longer.id, 0, Attempt(start=now()))
    code, output = evaluate(begun, "--depths", 4)
    assert code == 0, output
    assert attempt.number == 1
    assert "not done: its model stands at step 20 of 21" in output


def test_files_go_where_they_are_wanted(seed, tmp_path):
    """With --out nothing is added to the sweep, which may be somebody else's."""
    before = contents(seed)
    code, output = evaluate(seed, "--depths", 4, "--out", tmp_path / "new")
    assert code == 0, output
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["evaluation-1.parquet", "evaluation-1.png"]
    assert contents(seed) == before


def test_a_model_of_an_earlier_version_is_read(tmp_path):
    """The accuracies of a seed that 0.1.0 trained are those that it measured."""
    shutil.copytree(OLD, tmp_path / "old")
    folder = SeedFolder(Ledger.open(tmp_path, "old"), "3be64399", 1)
    code, output = evaluate(folder, name="old/3be64399/seed-1")
    assert code == 0, output
    there = folder.ledger.read_table(folder.config, 1, ACCURACY).to_pylist()
    assert [{name: row[name] for name in there[0]} for row in written(folder, 1)] == there


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (None, ("--depths", "4,x"), "x is no depth: give 1 to 65536"),
        (None, ("--depths", "0"), "0 is no depth"),
        (None, ("--depths", ","), "nothing is no depth"),
        (None, ("--depths", "99999999999"), "is no depth"),
        (None, ("--split", "train"), "choose one of test, calibration, validation"),
        (None, ("--stretch", "0"), "give a factor above 0 and at most 1000"),
        (None, ("--stretch", "nan"), "give a factor above 0 and at most 1000"),
        (None, ("--stretch", "1e300"), "give a factor above 0 and at most 1000"),
        (None, ("--tau", "0.5"), "--tau needs --halting"),
        (None, ("--halting", "--k", "9"), "halting.k=9 is above halting.m=8"),
        (None, ("--halting", "--tau", "1"), "halting.tau=1"),
        (None, ("--out", "{file}"), "no folder that can be written"),
        ("", (), "SEED is no seed"),
        ("elsewhere", (), "sweeps there: sweep"),
        ("sweep", (), "the configuration is missing: choose one of"),
        ("sweep/none", (), "there is no configuration none: choose one of"),
        ("sweep/{config}/seed-7", (), "there is no seed seed-7: choose one of seed-0"),
        ("sweep/{other}", (), "the seed is missing: none has begun yet"),
        ("sweep/a/b/c", (), "is no seed: give SWEEP/CONFIG/seed-N"),
    ],
)
def test_bad_input(seed, tmp_path, name, arguments, message):
    """One line that says what is wrong and what to do, exit code 2, nothing written."""
    (tmp_path / "file").write_text("")
    other = next(config.id for config in seed.ledger.read().configs if config.id != seed.config)
    texts = {"file": tmp_path / "file", "config": seed.config, "other": other}
    before = contents(seed)
    arguments = [argument.format(**texts) for argument in arguments]
    code, output = evaluate(seed, *arguments, name=None if name is None else name.format(**texts))
    assert code == 2
    assert message in output
    assert "Traceback" not in output
    assert contents(seed) == before


def test_a_seed_without_a_model_or_a_yes(seed):
    """One that has no checkpoint is told to be trained, one that never learned to halt cannot be asked to."""
    plain = begun(Path(seed.ledger.storage) / "plain")
    run_seed(tiny_run(), plain, report=lambda row: None)
    assert "trained with halting.mode=forced" in evaluate(plain, "--halting")[1]
    shutil.rmtree(Path(plain.objects.root) / "checkpoints")
    code, output = evaluate(plain)
    assert code == 2
    assert "train the seed first" in output

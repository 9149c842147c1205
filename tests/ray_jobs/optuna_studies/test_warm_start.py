"""A new search that begins with what an older sweep found, and only with that of it which is comparable."""

import math
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from par.errors import ConfigError
from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, Verdict
from par.space.space import Space, load_space
from ray_jobs.driver.resolve import begin
from ray_jobs.optuna_studies.warm_start import fitting, warm_points
from ray_jobs.sweep import app
from tests.ledger.ledgers import contents
from tests.ray_jobs.searches import begin_search

SPACE = """
question: Which?
backbones: [{backbones}]
fixed: {{task.name: swap-s3, task.rendering: compact, task.train_depth: 4, train.steps: {steps}}}
search:
  optim.lr: {{float: [{low}, {high}], log: true}}
  halting.mode: {{choice: [{modes}]}}
  {rest}
configurations: 4
seeds: 1
sampler: {sampler}
sampler_seed: {sampler_seed}
score: {score}
"""
TAU = "halting.tau: {float: [0.2, 0.8], when: {halting.mode: learned}}"
WINDOW = "recurrence.gradient_window"
USUAL = {
    "backbones": "tiny-qwen2", "steps": 400, "low": 1e-4, "high": 1e-2, "modes": "forced, learned", "rest": TAU,
    "sampler": "tpe", "sampler_seed": 0, "score": "extrapolation_auc",
}  # fmt: skip


def space(folder: Path, **changes: object) -> Space:
    path = folder / "space.yaml"
    path.write_text(SPACE.format(**USUAL | changes))
    return load_space(path)


@pytest.fixture
def old(tmp_path) -> Ledger:
    """Sixteen configurations with a score, the best around 1e-3, half of them with learned halting; one has none."""
    mine = space(tmp_path)
    ledger = begin(mine, "old", str(tmp_path))
    for number in range(17):
        rate = 10 ** (-4 + 2 * number / 16)
        mode = {"halting.mode": "learned", "halting.tau": 0.5} if number % 2 else {"halting.mode": "forced"}
        suggested = {"optim.lr": rate, **mode}
        record = ConfigRecord.of(mine.run_config("tiny-qwen2", suggested, 0), number=number, suggested=suggested)
        ledger.add_config(record)
        if number < 16:
            ledger.give_verdict(record.id, Verdict(score=-abs(math.log10(rate) + 3), seeds=(0,)))
    return ledger


def begun(folder: Path, name: str = "new", **changes: object) -> tuple[Space, Ledger]:
    chosen = space(folder, **changes)
    return chosen, begin(chosen, name, str(folder), **warm_points("sweep:old", chosen, str(folder)))


def first_rate(chosen: Space, ledger: Ledger) -> float:
    spec = begin_search(ledger, chosen).suggest("first")["spec"]
    return ledger.read_config(spec["config"]).record.suggested["optim.lr"]


def test_the_first_proposal_comes_from_what_was_learnt(tmp_path, old):
    """With enough points the random phase is over: over ten sampler seeds the first proposals lie nearer the optimum of
    the old sweep than those of a search that knows nothing; nothing of the old sweep is written (S7)."""
    before, distances = contents(old), {True: [], False: []}
    for number in range(10):
        warm = begun(tmp_path, f"warm-{number}", sampler_seed=number)
        cold = warm[0], begin(warm[0], f"cold-{number}", str(tmp_path))
        for informed, sweep in ((True, warm), (False, cold)):
            distances[informed].append(abs(math.log10(first_rate(*sweep)) + 3))
    assert sum(distances[True]) < 0.6 * sum(distances[False])
    assert contents(old) == before


def test_points_are_no_configurations(tmp_path, old):
    """A search of four configurations proposes four, whatever it knew, and each is told under its own number."""
    chosen, ledger = begun(tmp_path)
    searcher = begin_search(ledger, chosen)
    for number in range(4):
        spec = searcher.suggest(f"trial-{number}")["spec"]
        study = searcher.studies["tiny-qwen2"]
        study.tell(spec["config"], float(number))
        searcher.race.put(ledger.read_config(spec["config"]).judged(Verdict(score=float(number), seeds=(0,))))
        suggested = ledger.read_config(spec["config"]).record.suggested
        assert study.study.trials[-1].params == suggested
        assert study.study.trials[-1].value == number
    assert len(ledger.read().configs) == 4
    assert len(study.study.trials) == 16 + 4


def test_an_open_configuration_is_told_under_its_own_number(tmp_path, old):
    """After a resume the score of a configuration goes to its trial, and no point of the old sweep is touched."""
    chosen, ledger = begun(tmp_path)
    config = begin_search(ledger, chosen).suggest("first")["spec"]["config"]
    study = begin_search(ledger, chosen).studies["tiny-qwen2"]
    assert study.tell(config, 9.0)
    assert [trial.value for trial in study.study.trials][-1] == 9.0
    assert study.study.trials[-1].params == ledger.read_config(config).record.suggested


def test_a_resume_has_the_points_without_the_old_sweep(tmp_path, old):
    """A search that is rebuilt after the old sweep is gone has the trials of the one that goes on (S7)."""
    chosen, ledger = begun(tmp_path)
    going = begin_search(ledger, chosen)
    going.suggest("first")
    shutil.rmtree(tmp_path / "old")
    again = begin_search(Ledger.open(tmp_path, "new"), chosen)
    trials = [
        [(trial.number, trial.state, trial.params, trial.value) for trial in each.studies["tiny-qwen2"].study.trials]
        for each in (going, again)
    ]
    assert trials[0] == trials[1]
    assert len(trials[0]) == 17


@pytest.mark.parametrize(
    ("changes", "said", "kept"),
    [
        ({"low": 1e-3}, "8 points of old: optim.lr=0.0001 below 0.001", 8),
        ({"high": 1e-3}, "7 points of old: optim.lr=0.00133 above 0.001", 9),
        ({"modes": "learned"}, "8 points of old: halting.mode=forced is not in", 8),
        ({"rest": ""}, "8 points of old: halting.tau is not searched in this space", 8),
        (
            {"rest": f"{TAU}\n  {WINDOW}: {{choice: [2, 3]}}"},
            f"16 points of old: {WINDOW} is searched here, and was not there",
            0,
        ),
        ({"backbones": "tiny-qwen3"}, "16 points of old: backbone=tiny-qwen2 is not in this space", 0),
        ({"steps": 800}, "16 points of old: train.steps=400 there, 800 here", 0),
        ({"score": "G"}, "16 points of old: score=extrapolation_auc there, G here", 0),
    ],
)
def test_what_does_not_fit_is_dropped_with_its_reason(tmp_path, old, capsys, changes, said, kept):
    """Each kind of misfit is said once with its number of points; the others are kept, and none at all is refused."""
    chosen = space(tmp_path, **changes)
    if kept:
        assert len(fitting("sweep:old", chosen, str(tmp_path))) == kept
    else:
        with pytest.raises(ConfigError, match="no point that fits this space: drop the option"):
            fitting("sweep:old", chosen, str(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(said) for line in lines) == 1
    assert "1 point of old: score is not known: it has no verdict" in lines


@pytest.mark.parametrize(
    ("given", "changes", "said"),
    [
        ("old", {}, "--warm-start old does not say what it names: write sweep:old"),
        ("sweep:", {}, "write sweep:NAME"),
        ("sweep:nobody", {}, "sweeps there: old; name one of them"),
        ("sweep:old", {"sampler": "random"}, "sampler=random learns from no score: set sampler: tpe"),
    ],
)
def test_bad_input_names_the_next_action(tmp_path, old, given, changes, said):
    """Exit code 2 and one line for an unknown sweep, a missing prefix, and a search that does not learn."""
    space(tmp_path, **changes)
    told = ["--space", str(tmp_path / "space.yaml"), "--name", "new", "--storage", str(tmp_path), "--warm-start", given]
    done = CliRunner().invoke(app, told)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_resume_takes_no_points(tmp_path, old):
    """A sweep that exists keeps what it began with."""
    done = CliRunner().invoke(app, ["--resume", "old", "--storage", str(tmp_path), "--warm-start", "sweep:old"])
    assert done.exit_code == 2
    assert "--warm-start sweep:old is for a new sweep" in done.stderr

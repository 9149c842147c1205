"""The `par` command as a user types it."""

from inspect import signature

import pytest
from typer.testing import CliRunner

from par.evaluation.thresholds import Grid, ranking
from ray_jobs.cli import app
from ray_jobs.commands.sweep import resume, sweep
from ray_jobs.console import BAD_INPUT
from tests.evaluation.recorded import recorded


def par(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.parquet"
    path.write_bytes(recorded(iterations=12).to_parquet())
    return path


def test_the_best_rules_are_shown_first(trace):
    """`par thresholds` prints as many rules as asked for, names the best one's settings and how many were scored."""
    done = par("thresholds", str(trace), "--top", "3")
    assert done.exit_code == 0, done.output
    best = ranking(recorded(iterations=12), Grid.every(), top=3)[0].rule
    assert f"halting.tau={best.tau} halting.k={best.k} halting.m={best.m}" in done.output
    assert f"{len(Grid.every())} rules, 24 questions of 12 iterations each" in done.output
    assert sum(line.startswith("│") for line in done.output.splitlines()) == 3


@pytest.mark.parametrize("content", [None, b"PAR1 of something else"])
def test_no_trace_is_said_in_one_line(tmp_path, content):
    """A missing or malformed file ends with exit code 2 and one line that names it; there is no traceback."""
    path = tmp_path / "trace.parquet"
    if content:
        path.write_bytes(content)
    done = par("thresholds", str(path))
    assert done.exit_code == BAD_INPUT
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: {path} ")
    assert done.stdout == ""


def test_help_lists_the_commands():
    """`par`, and `par -h`, say what commands there are."""
    assert "thresholds" in par().output
    assert "thresholds" in par("-h").output


def test_a_resume_may_say_all_that_a_sweep_may():
    """`par resume` has every option of ray_jobs/sweep.py, explained by the same words, but for how a sweep begins."""
    of_sweep, of_resume = signature(sweep).parameters, signature(resume).parameters
    assert of_sweep.keys() - of_resume.keys() == {"resume", "warm_start"}
    shared = of_resume.keys() - {"name", "space"}
    assert {key: of_resume[key] for key in shared} == {key: of_sweep[key] for key in shared}


def test_the_shell_completes():
    """`par` offers to install completion."""
    assert "--install-completion" in par("--help").output

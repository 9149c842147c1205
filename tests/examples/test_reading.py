"""The examples that read what others have trained."""

import shutil
import subprocess
import sys

from tests.ray_jobs.sweeps import REPOSITORY

OLD = REPOSITORY / "tests" / "ray_jobs" / "old_ledger" / "old"


def example(name: str, *arguments: object) -> str:
    command = [sys.executable, str(REPOSITORY / "examples" / name), *map(str, arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kept_model_answers(tmp_path):
    """It is asked for every box of a problem, and each answer is told apart from the right one."""
    shutil.copytree(OLD, tmp_path / "old")
    said = example("ask_a_kept_model.py", tmp_path, "old/3be64399/seed-1").splitlines()
    assert said[0] == "tiny-qwen2, 120 steps on swap-s3"
    assert [line.split(" … ")[0] for line in said[3:]] == [f" Box {box} contains the" for box in "ABC"]
    assert all("(right)" in line or "(it is the " in line for line in said[3:])


def test_a_sweep_becomes_a_data_frame(tmp_path):
    """A row per seed with its status, the one that was interrupted included, and G over the seeds."""
    shutil.copytree(OLD, tmp_path / "old")
    table, spread = example("sweep_to_data_frame.py", tmp_path, "old").split("count")
    assert [line.split()[2] for line in table.splitlines()[1:5]] == ["done", "done", "done", "killed"]
    assert spread.count("45879d8c") == 1

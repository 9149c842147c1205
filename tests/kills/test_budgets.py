"""Processes of a real sweep that stop, or die again and again: what their budgets allow."""

import os
import signal
import time

import psutil
import pytest

from tests.ray_jobs.sweeps import attempts, files, results, start, wait_until, write_space

pytestmark = pytest.mark.slow


def train_workers(driver: int) -> list[psutil.Process]:
    """The processes that train together below a driver."""
    below = psutil.Process(driver).children(recursive=True)
    return [process for process in below if "RayTrainWorker" in " ".join(process.cmdline())]


def test_a_rank_that_stops_is_found_and_its_seed_starts_again(tmp_path):
    """One of two ranks is stopped: its peer ends both, the attempt is a HANG with stacks, and the seed goes on from its
    checkpoint to its result (T7 T13)."""
    space = write_space(tmp_path / "tiny.yaml", steps=200, workers=2, seeds=1)
    process = start("--space", str(space), "--storage", str(tmp_path), "--max-concurrent", "1", "--hang-after", "15")

    victims: list[psutil.Process] = []

    def stopped() -> bool:
        commits = list(tmp_path.glob("tiny/configs/*/seed-0/checkpoints/step_*/COMMIT.json"))
        ranks = train_workers(process.pid) if commits else []
        if len(ranks) == 2:
            victims.append(ranks[1])
            ranks[1].send_signal(signal.SIGSTOP)
        return bool(victims)

    wait_until(stopped, process, limit_s=240)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    assert len(results(tmp_path, "tiny")) == 2
    [hang] = [attempt for attempt in attempts(tmp_path, "tiny").values() if attempt.get("failure")]
    assert hang["failure"] == "HANG"
    [stacks] = files(tmp_path, "tiny/configs/*/seed-0/stacks-attempt1-rank*.txt").values()
    assert b"forward_backward" in stacks
    assert f"starts again (HANG: it had come further, to step {hang['saved_step']})" in output
    assert not victims[0].is_running() or victims[0].status() == psutil.STATUS_ZOMBIE


def test_a_seed_whose_process_is_killed_each_time_is_given_up(tmp_path):
    """After its budget of new starts the seed is given up, which names the log and the way on; the sweep ends."""
    space = write_space(tmp_path / "tiny.yaml", steps=100_000, seeds=1)
    place = ("--storage", str(tmp_path), "--max-concurrent", "1", "--max-failed-share", "0")
    process = start("--space", str(space), *place)
    first: list[str] = []
    killed: set[int] = set()

    def ended() -> bool:
        for path, attempt in attempts(tmp_path, "tiny").items():
            first.append(path.split("/")[2])
            if first[0] in path and attempt["pid"] not in killed:
                killed.add(attempt["pid"])
                os.kill(attempt["pid"], signal.SIGKILL)
        return process.poll() is not None

    deadline = time.monotonic() + 200
    while not ended():
        assert time.monotonic() < deadline, "the sweep did not end"
        time.sleep(0.1)
    output, _ = process.communicate()
    assert process.returncode == 1, output
    lives = [attempt for path, attempt in attempts(tmp_path, "tiny").items() if first[0] in path]
    assert [attempt["failure"] for attempt in lives] == ["WORKER_DIED"] * 3
    assert "is given up (WORKER_DIED after 3 attempts from step 0" in output
    assert lives[-1]["log"] in output.replace("\n", "")
    assert "par resume tiny --failed" in output

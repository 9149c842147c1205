"""Processes of a sweep that die by SIGKILL: a worker, a trial, the driver."""

import signal

import pytest

from tests.kills.scene import HALFWAY, output_of

pytestmark = [pytest.mark.kill, pytest.mark.timeout(900)]


def test_the_trial_process(scene, judged):
    """The process of a seed dies: the driver starts the seed again, from its last checkpoint (R11)."""
    sweep = scene()
    driver = sweep.start()
    attempt = sweep.await_halfway(driver)
    sweep.kill(sweep.attempts()[attempt]["pid"])
    sweep.await_training(driver)
    assert "starts again (WORKER_DIED" in output_of(driver)
    assert judged("trial process", sweep, attempt).lives == ("WORKER_DIED", "done")
    assert sweep.lives_of(attempt)[1]["resumed_at"] >= HALFWAY


def test_the_driver(scene, judged):
    """The driver dies, and all of its Ray with it; `--resume` goes on (R2)."""
    sweep = scene()
    driver = sweep.start()
    attempt = sweep.await_halfway(driver)
    sweep.kill(driver.pid)
    output_of(driver, expected=-signal.SIGKILL)
    sweep.await_silence()
    driver = sweep.resume()
    sweep.await_training(driver)
    output_of(driver)
    assert judged("sweep driver", sweep, attempt).lives == ("STOPPED", "done")


def test_a_train_worker(scene, judged):
    """One of two Train workers dies: its peer ends too, and the driver starts both again from their last checkpoint."""
    sweep = scene(workers=2)
    driver = sweep.start()
    attempt = sweep.await_halfway(driver)
    sweep.kill(sweep.pids("TrainWorker")[0])
    sweep.await_training(driver)
    assert "starts again (WORKER_DIED" in output_of(driver)
    assert judged("Train worker, one of two", sweep, attempt).lives == ("WORKER_DIED", "done")


def test_a_second_driver(scene, judged):
    """A second driver is refused with exit code 2, names the first and changes nothing; the first goes on (R13)."""
    sweep = scene()
    driver = sweep.start()
    attempt = sweep.await_halfway(driver)
    sweep.note_kill()
    refused = output_of(sweep.resume(), expected=2)
    assert f"pid {driver.pid}" in refused
    sweep.await_next_commit(driver)
    output_of(driver)
    assert len(sweep.attempts()) == 4
    assert judged("nothing: a second driver", sweep, attempt).lives == ("done",)

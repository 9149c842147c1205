"""How a sweep is asked to end."""

import os
import signal
import subprocess
import sys

import pytest

from ray_jobs.driver.stopping import GraceOver, StopCallback, Stopping


def test_the_first_reason_counts():
    """A later reason changes neither the reason nor the exit code, nor does it prolong the grace period."""
    now = [100.0]
    stopping = Stopping(clock=lambda: now[0])
    assert (stopping.reason, stopping.seconds()) == (None, 0.0)
    stopping.ask("BUDGET")
    now[0] += 7
    stopping.ask("SIGTERM", 143)
    assert (stopping.reason, stopping.exit_code, stopping.seconds()) == ("BUDGET", 1, 7.0)


def test_trials_are_ended_after_the_grace_period_alone():
    """Tune is told to end all trials once the grace period since the request is over, and not before a request."""
    now = [0.0]
    stopping = Stopping(clock=lambda: now[0])
    over = GraceOver(stopping, 10)
    now[0] = 50
    assert not over.stop_all()
    stopping.ask("SIGTERM", 143)
    now[0] = 59
    assert not over.stop_all()
    now[0] = 61
    assert over.stop_all()


def test_the_end_begins_once():
    """However often Tune goes round, the end begins once, with its reason; limits are looked at until then."""
    stopping, looks, begun = Stopping(), [], []
    callback = StopCallback(stopping, lambda: looks.append(1), begun.append)
    for step in range(6):
        if step == 3:
            stopping.ask("BUDGET")
        callback.on_step_begin(step, [])
    assert (len(looks), begun) == (3, ["BUDGET"])


SCRIPT = """
import os, signal, sys, time
from ray_jobs.driver.stopping import Stopping
stopping = Stopping()
with stopping.on_signals():
    print("ready", flush=True)
    while stopping.reason is None:
        time.sleep(0.05)
    print(stopping.reason, flush=True)
    time.sleep(30 if "deaf" in sys.argv else 0)
sys.exit(stopping.exit_code)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("deaf", [False, True])
def test_signals_ask_and_a_second_one_ends(number, code, deaf):
    """A real process takes one signal as a request; a second one ends it at once, with the same exit code."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *(["deaf"] if deaf else [])], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, number)
        assert process.stdout.readline() == f"{number.name}\n"
        if deaf:
            os.kill(process.pid, number)
        assert process.wait(20) == code

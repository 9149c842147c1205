"""The injector kills one process, at the call that was chosen."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kills.injector import KillAt

REPOSITORY = Path(__file__).parents[2]
SCRIPT = """
from par.metrics import by_name

for number in range(1, 4):
    by_name({})
    print(number, flush=True)
"""


def run(kill: KillAt, **environment: str) -> tuple[int, list[str]]:
    """Exit code, and the calls that were made before it."""
    variables = os.environ | kill.environment() | environment
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.split()


@pytest.mark.parametrize("call", [1, 3])
def test_it_kills_once(tmp_path, call):
    """The first process dies at the chosen call of the function, under whatever name it imported it; the next lives."""
    kill = KillAt(function="par.metrics:by_name", flag=str(tmp_path / "flag"), call=call)
    assert run(kill) == (-signal.SIGKILL, [str(number) for number in range(1, call)])
    assert (tmp_path / "flag").exists()
    assert run(kill) == (0, ["1", "2", "3"])


def test_it_chooses_the_process(tmp_path):
    """A process without the variables that were named lives."""
    kill = KillAt(function="par.metrics:by_name", flag=str(tmp_path / "flag"), call=2, after=True, where={"RANK": "1"})
    assert run(kill, RANK="0") == (0, ["1", "2", "3"])
    assert run(kill, RANK="1") == (-signal.SIGKILL, ["1"])

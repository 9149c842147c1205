"""A sweep that something kills: started, looked at and gone on with as a user does it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.ray_jobs.sweeps import attempts, results, start, write_space

NAME = "killed"
CONFIGURATIONS = 2
HALFWAY = 15
"""Nothing is killed before the second seed has committed this step."""
MARK = "PAR_SCENE"
"""Environment variable of every process of a scene."""
LIMIT_S = 300.0


@dataclass
class Scene:
    """One sweep whose seeds run one after another; the kill comes while the second one trains."""

    storage: Path
    workers: int = 1
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    killed_at: float = 0.0
    """Seconds since 1970."""
    finished: dict[str, bytes] = field(default_factory=dict)
    """Results of the seeds that were done at the kill."""
    lives: dict[str, dict] = field(default_factory=dict)
    """Attempts as they were at the kill."""
    seconds: float = 0.0
    """From the kill until the sweep trained again."""

    @property
    def seeds(self) -> int:
        """Of each configuration; a Train run takes so long to start that one has to do."""
        return 2 if self.workers == 1 else 1

    @property
    def steps(self) -> int:
        """Of each seed: so many that a kill arrives before the last one."""
        return 240 if self.workers == 1 else 150

    @property
    def tracking(self) -> str:
        """URI of its MLflow."""
        given = dict(zip(self.options, self.options[1:], strict=False)).get("--tracking-uri")
        return given or f"sqlite:///{self.storage}/mlflow.db"

    def start(self) -> subprocess.Popen[str]:
        space = self.storage.parent / f"{self.storage.name}.yaml"
        write_space(space, steps=self.steps, workers=self.workers, seeds=self.seeds)
        return self._run("--space", str(space), "--name", NAME)

    def resume(self, *options: str) -> subprocess.Popen[str]:
        return self._run("--resume", NAME, *options)

    def _run(self, *arguments: str) -> subprocess.Popen[str]:
        return start(
            *arguments, "--storage", str(self.storage), "--max-concurrent", "1", *self.options,
            environment={MARK: str(self.storage), **self.environment},
        )  # fmt: skip

    def await_halfway(self, driver: subprocess.Popen[str] | None) -> str:
        """Wait until a seed is done and the next one has come to HALFWAY; returns the attempt that runs."""
        self.wait(self._is_halfway, driver)
        return self.last_attempt()

    def note_kill(self, at: float | None = None) -> None:
        """Keep what is there at the kill, which is now or was ``at``."""
        self.killed_at = at or time.time()
        self.finished, self.lives = results(self.storage, NAME), self.attempts()

    def kill(self, *pids: int) -> None:
        """SIGKILL, noted."""
        self.note_kill()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def await_training(self, driver: subprocess.Popen[str] | None) -> None:
        """Wait for the first checkpoint that an attempt from after the kill commits."""
        self.wait(lambda: any(map(self._has_committed, self.attempts().keys() - self.lives.keys())), driver)
        self.seconds = time.time() - self.killed_at

    def await_next_commit(self, driver: subprocess.Popen[str]) -> None:
        """Wait for the next checkpoint of the attempt that runs."""
        path = self.last_attempt()
        step = self.committed(path)
        self.wait(lambda: self.committed(path) > step, driver)
        self.seconds = time.time() - self.killed_at

    def wait(self, condition: Callable[[], bool], driver: subprocess.Popen[str] | None) -> None:
        """Poll, since a sweep is another process; fail with what it said when it ends or the limit passes first."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert driver is None or driver.poll() is None, driver.communicate()[0]
            assert time.monotonic() < deadline, f"it did not come; processes: {self.commands()}"
            time.sleep(0.02)

    def attempts(self) -> dict[str, dict]:
        return attempts(self.storage, NAME)

    def last_attempt(self) -> str:
        """Path of the attempt that began last."""
        return max((life["start"], path) for path, life in self.attempts().items())[1]

    def lives_of(self, attempt: str) -> list[dict]:
        """All attempts of the seed that an attempt belongs to, in order."""
        folder = attempt.rpartition("/")[0]
        found = [life for path, life in self.attempts().items() if path.rpartition("/")[0] == folder]
        return sorted(found, key=lambda life: life["start"])

    def commands(self) -> dict[int, str]:
        """What runs of the scene, wherever it was started, by number of the process."""
        found: dict[int, str] = {}
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get(MARK) == str(self.storage) and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())
        return found

    def pids(self, name: str) -> list[int]:
        """Of the processes whose command has this name in it."""
        return [pid for pid, command in self.commands().items() if name in command]

    def await_silence(self) -> None:
        """Wait until no process of the scene is left: a killed driver leaves no orphans."""
        self.wait(lambda: not self.commands(), None)

    def end(self) -> None:
        """Kill what is left."""
        for pid in self.commands():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.await_silence()

    def committed(self, attempt: str) -> int:
        """The last step that the seed of an attempt has committed; 0 before the first."""
        commits = self.seed(attempt).glob("checkpoints/step_*/COMMIT.json")
        return max((int(commit.parent.name.removeprefix("step_")) for commit in commits), default=0)

    def seed(self, attempt: str) -> Path:
        return self.storage / NAME / attempt.rpartition("/")[0]

    def _is_halfway(self) -> bool:
        if not results(self.storage, NAME):
            return False
        attempt = self.last_attempt()
        return HALFWAY <= self.committed(attempt) < self.steps

    def _has_committed(self, attempt: str) -> bool:
        return self.committed(attempt) > self.attempts()[attempt]["resumed_at"]


def output_of(driver: subprocess.Popen[str], expected: int = 0) -> str:
    """Wait for the end of a driver, check its exit code, and return what it said."""
    output, _ = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == expected, output
    assert "Traceback" not in output, output
    return output

"""Ray goes away beneath a sweep: a node, the head with all of it; or Ray is asked to stop the job."""

import subprocess

import psutil
import pytest
from ray.cluster_utils import Cluster
from ray.job_submission import JobSubmissionClient

from tests.kills.scene import LIMIT_S, NAME, output_of
from tests.ray_jobs.heads import ray_head
from tests.ray_jobs.sweeps import REPOSITORY, runs, write_space

pytestmark = [pytest.mark.kill, pytest.mark.timeout(900)]


QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0, "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000, "health_check_failure_threshold": 4,
}  # fmt: skip
"""Of Ray: a node without a raylet is dead after 2 s, not 15, in which its workers would end the seed."""

SOON_WITHOUT_A_HEAD = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10"}
"""Of Ray: a driver ends when it has missed the head for so long, not for a minute."""


@pytest.fixture
def cluster(monkeypatch):
    """A head without CPUs and three nodes of one CPU."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    head = {"num_cpus": 0, "resources": {"PAR_DRIVER": 8}, "_system_config": QUICK_TO_NOTICE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(3):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def test_a_node(scene, judged, cluster):
    """The raylet of a node dies: the seed goes on with another node, and it uses up no budget (T16)."""
    sweep = scene(workers=2, options=("--address", cluster.address))
    driver = sweep.start()
    attempt = sweep.await_halfway(driver)
    workers = [p for p in psutil.Process().children(recursive=True) if "TrainWorker" in " ".join(p.cmdline())]
    of_this_seed = max(workers, key=psutil.Process.create_time)
    sweep.kill(of_this_seed.parent().pid)
    sweep.await_training(driver)
    assert "NODE_LOST: uses up no budget" in output_of(driver)
    assert judged("raylet of a node", sweep, attempt).lives == ("NODE_LOST", "done")


def test_the_head(scene, judged, tmp_path):
    """The head dies with all of Ray: the driver ends, and `--resume` goes on with another cluster."""
    with ray_head(REPOSITORY, tmp_path / "head.log", SOON_WITHOUT_A_HEAD) as head:
        sweep = scene(options=("--address", head.address), environment=SOON_WITHOUT_A_HEAD)
        driver = sweep.start()
        attempt = sweep.await_halfway(driver)
        everything = psutil.Process(head.process.pid).children(recursive=True)
        sweep.kill(head.process.pid, *(process.pid for process in everything))
        driver.communicate(timeout=LIMIT_S)
        assert driver.returncode not in (0, 2)
    with ray_head(REPOSITORY, tmp_path / "next.log") as head:
        sweep.options = ("--address", head.address)
        driver = sweep.resume()
        sweep.await_training(driver)
        output_of(driver)
    assert judged("head, with all of Ray", sweep, attempt).lives == ("STOPPED", "done")


def test_ray_job_stop(scene, judged, tmp_path):
    """`ray job stop` has the seed save and leave, marks its runs KILLED, and `--resume` goes on (J5)."""
    sweep = scene()
    space = write_space(tmp_path / "space.yaml", steps=sweep.steps)
    command = [
        "python", "ray_jobs/sweep.py", "--space", str(space), "--name", NAME, "--storage", str(sweep.storage),
        "--max-concurrent", "1",
    ]  # fmt: skip
    with ray_head(REPOSITORY, tmp_path / "head.log", {"RAY_JOB_STOP_WAIT_TIME_S": "60"}) as head:
        ray(head, "job", "submit", "--no-wait", "--submission-id", NAME, "--", *command)
        attempt = sweep.await_halfway(None)
        sweep.note_kill()
        JobSubmissionClient(head.client["RAY_ADDRESS"]).stop_job(NAME)
        assert "SIGTERM: trials save and leave" in ray(head, "job", "logs", NAME)
    assert sweep.attempts()[attempt]["failure"] == "STOPPED"
    assert {run.info.status for run in runs(sweep.storage)} == {"KILLED", "FINISHED"}
    driver = sweep.resume()
    sweep.await_training(driver)
    output_of(driver)
    assert judged("`ray job stop`", sweep, attempt).lives == ("STOPPED", "done")


def ray(head, *arguments: str) -> str:
    command, environment = ["ray", *arguments], dict(head.client)
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

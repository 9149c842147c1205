"""Deaths between two writes that belong together."""

import signal

import pytest

from tests.kills.injector import KillAt
from tests.kills.scene import output_of

pytestmark = [pytest.mark.kill, pytest.mark.timeout(900)]


def test_between_a_shard_and_the_manifest(scene, judged, tmp_path):
    """A rank dies with its shard written and no manifest: the checkpoint before is gone on from (T4)."""
    both_shards_of_step_45 = 2 * 9
    kill = KillAt(
        function="torch.distributed.checkpoint.filesystem:FileSystemWriter.write_data",
        flag=str(tmp_path / "flag"), call=both_shards_of_step_45, after=True, where={"RANK": "1"},
    )  # fmt: skip
    sweep = scene(workers=2, environment=kill.environment())
    driver = sweep.start()
    sweep.wait((tmp_path / "flag").exists, driver)
    sweep.note_kill((tmp_path / "flag").stat().st_mtime)
    attempt = sweep.last_attempt()
    sweep.await_training(driver)
    assert "starts again (WORKER_DIED" in output_of(driver)
    assert sweep.lives_of(attempt)[1]["resumed_at"] == 40
    assert judged("rank 1, between its shard and the manifest", sweep, attempt).lives == ("WORKER_DIED", "done")


def test_between_the_result_and_the_verdict(scene, judged, tmp_path):
    """The driver dies when a configuration's last result is there and its verdict is not: it is told at the resume."""
    kill = KillAt(function="par.ledger.ledger:Ledger.give_verdict", flag=str(tmp_path / "flag"))
    sweep = scene(environment=kill.environment())
    driver = sweep.start()
    attempt = sweep.await_halfway(driver)
    output_of(driver, expected=-signal.SIGKILL)
    sweep.note_kill((tmp_path / "flag").stat().st_mtime)
    assert len(sweep.finished) == 2
    sweep.await_silence()
    driver = sweep.resume()
    sweep.await_training(driver)
    output_of(driver)
    assert judged("sweep driver, between result and verdict", sweep, attempt).lives == ("done",)

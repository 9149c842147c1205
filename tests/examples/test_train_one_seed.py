"""The example that trains one seed."""

import subprocess
import sys

from typer.testing import CliRunner

from par.ledger.ledger import Ledger
from ray_jobs.cli import app
from tests.ray_jobs.sweeps import REPOSITORY


def test_it_trains_and_draws(tmp_path):
    """The script leaves a result and a picture; called again it has the same result."""
    for _ in range(2):
        command = [sys.executable, str(REPOSITORY / "examples" / "train_one_seed.py"), str(tmp_path)]
        subprocess.run(command, check=True, cwd=REPOSITORY, timeout=120)
    (config,) = Ledger.open(tmp_path, "one-seed").read().configs
    assert config.results[0].step == 20
    status = CliRunner().invoke(app, ["status", "one-seed", "--storage", str(tmp_path)])
    assert "Every seed has a result" in status.output
    assert (tmp_path / "accuracy_by_depth.png").read_bytes().startswith(b"\x89PNG")

"""What the seeds of one stage say about a configuration."""

import pytest

from par.ledger.records import Attempt, SeedResult
from par.ledger.state import ConfigState, SeedState
from par.race.verdicts import aggregates
from tests.ledger.ledgers import CONFIG


def config(*results: SeedResult) -> ConfigState:
    lives = tuple(Attempt(number=number, device_seconds=1800) for number in (1, 2))
    return ConfigState(record=CONFIG, seeds={seed: SeedState(lives, result) for seed, result in enumerate(results)})


def at(G: float, *, censored: bool = False) -> SeedResult:
    return SeedResult(metrics={"G": G, "censored": float(censored)})


FAILED = SeedResult(metrics={"G": 0.0}, failure="NUMERIC")


def test_aggregates_are_exactly_these():
    """A failed seed counts as 0 in each of them, and every attempt in the hours."""
    assert aggregates(config(at(16, censored=True), at(15.9), FAILED), (0, 1, 2)) == {
        "G_mean": pytest.approx(31.9 / 3), "G_sd": pytest.approx(9.209, abs=1e-3), "G_min": 0.0, "success_16x": 1 / 3,
        "success_lo": pytest.approx(0.0084, abs=1e-4), "success_hi": pytest.approx(0.9057, abs=1e-4), "n_seeds": 3,
        "n_failed": 1, "gpu_hours": 3.0,
    }  # fmt: skip


def test_nobody_knows_the_share_beyond_a_short_grid():
    """Where a seed was still right at the end of a grid below 16 times d_train, no success rate at 16 is claimed."""
    short = aggregates(config(at(8, censored=True), at(16, censored=True)), (0, 1))
    assert not {"success_16x", "success_lo", "success_hi"} & short.keys()
    assert aggregates(config(at(8), at(16, censored=True)), (0, 1))["success_16x"] == 0.5

"""How much the search flattered a configuration."""

import pytest

from par.ledger.records import SeedResult
from par.ledger.state import ConfigState, SeedState
from par.race.verdicts import judge, optimism
from tests.ledger.ledgers import CONFIG

FRESH = range(1000, 1010)
FAILED = SeedResult(metrics={}, failure="NUMERIC")


def confirmed(searched: list[float], fresh: list[float]) -> ConfigState:
    """A configuration that is judged on both; a score of 0 is that of a failed seed."""
    scores = dict(enumerate(searched)) | dict(zip(FRESH, fresh, strict=True))
    results = {seed: SeedResult(metrics={"G": score}) if score else FAILED for seed, score in scores.items()}
    config = ConfigState(CONFIG, {seed: SeedState((), result) for seed, result in results.items()})
    for stage, seeds in (("search", range(len(searched))), ("confirm", FRESH)):
        config = config.judged(judge(config, stage, seeds, "G"))
    return config


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_seeds_that_are_alike_show_no_optimism(pairs):
    """However few seeds the search had: their bound is lower than that of ten fresh ones, their mean is not (X1)."""
    config = confirmed([0.0, 0.8] * pairs, [0.0, 0.8] * 5)
    found = optimism(config, "G")
    assert found is not None
    assert config.verdict.score < config.confirmation.score
    assert (found.search, found.fresh, found.difference) == pytest.approx((0.4, 0.4, 0.0))


def test_a_lucky_configuration_shows_how_lucky_it_was():
    """The difference of the means, a failed fresh seed being 0 (X1)."""
    found = optimism(confirmed([1.0, 0.8], [0.0] * 5 + [0.4] * 5), "G")
    assert found is not None
    assert found.difference == pytest.approx(0.9 - 0.2)


def test_before_the_confirmation_there_is_none():
    """One verdict has nothing to be set against."""
    config = confirmed([1.0], [0.5] * 10)
    assert optimism(ConfigState(CONFIG, config.seeds, config.verdicts[:1]), "G") is None

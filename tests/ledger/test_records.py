"""What the ledger's objects hold, and the state that is built from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from par.config.run import RunConfig
from par.errors import LedgerError
from par.ledger.records import ConfigRecord, SeedResult, SweepRecord
from par.ledger.state import snapshot
from tests.ledger.ledgers import CONFIG, DONE


@given(st.permutations(range(6)), st.randoms(use_true_random=False))
def test_the_state_does_not_depend_on_the_order_of_reading(numbers, chance):
    """Configurations come in order of number, seeds and attempts too, in whatever order the objects are found."""
    objects = {}
    for i, number in enumerate(numbers):
        objects[f"configs/{i:08x}/config.json"] = {**CONFIG.to_dict(), "id": f"{i:08x}", "number": number}
        objects[f"configs/{i:08x}/seed-{10 - i}/result.json"] = DONE.to_dict()
        objects |= {f"configs/{i:08x}/seed-0/attempt-{k}.json": {} for k in (10, 9, 1)}
    shuffled = list(objects.items())
    chance.shuffle(shuffled)
    state = snapshot(SweepRecord(space=""), dict(shuffled))
    assert [config.record.number for config in state.configs] == list(range(6))
    assert all(list(config.seeds) == sorted(config.seeds) for config in state.configs)
    assert all([life.number for life in c.seeds[0].attempts] == [1, 9, 10] for c in state.configs)


def test_a_proposal_holds_its_run_without_the_seed():
    """Seeds of one configuration share one record, from which each run is rebuilt."""
    run = RunConfig(backbone="tiny-qwen2", seed=3)
    assert ConfigRecord.of(run, number=0, suggested={}) == CONFIG
    assert RunConfig.model_validate({**CONFIG.run, "seed": 3}) == run
    assert "seed" not in CONFIG.run


def test_an_object_of_an_earlier_version_takes_the_defaults():
    """A field that has a default may be missing; one without may not, and is named."""
    assert SeedResult.from_dict({"metrics": {"G": 8.0}}) == SeedResult(metrics={"G": 8.0})
    with pytest.raises(LedgerError, match="SeedResult lacks metrics"):
        SeedResult.from_dict({"step": 100})


def test_a_failed_seed_scores_zero():
    """A failure counts as 0 under every metric; a metric that was not measured is an error, not a zero."""
    assert SeedResult(metrics={"G": 3.0}, failure="NUMERIC").score("G") == 0
    assert DONE.score("G") == 8
    with pytest.raises(LedgerError, match="no metric d50: choose one of G"):
        DONE.score("d50")

"""Which configuration a sweep chooses."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from par.ledger.records import SeedResult
from par.ledger.state import ConfigState, SeedState
from par.race.racing import Race
from par.race.verdicts import winners
from par.space.stages import Stages
from tests.ledger.ledgers import CONFIG

STAGES = Stages(rungs=(2,), first_seed=0, confirmed=2, fresh=3)


def config(name: str, backbone: str, search: Sequence[float], fresh: Sequence[float] = ()) -> ConfigState:
    numbered = [*enumerate(search), *zip(STAGES.fresh_seeds, fresh, strict=False)]
    seeds = {seed: SeedState((), SeedResult(metrics={"score": score})) for seed, score in numbered}
    return ConfigState(record=replace(CONFIG, id=name, backbone=backbone), seeds=seeds)


def test_fresh_seeds_choose_and_the_search_has_no_say():
    """Each backbone gets the one that is best on fresh seeds, with their mean."""
    lucky = config("a", "tiny-qwen2", (0.9, 0.9), (0.3, 0.2, 0.1))
    steady = config("b", "tiny-qwen2", (0.5, 0.5), (0.6, 0.6, 0.6))
    poor = config("c", "tiny-qwen2", (0.1, 0.1))
    other = config("d", "tiny-qwen3", (0.1, 0.1), (0.2, 0.4, 0.6))
    first, second = winners(Race(STAGES, "score", (lucky, steady, poor, other)))
    assert (first.config.id, first.confirmed, first.fresh, first.score) == ("b", 2, 3, pytest.approx(0.6))
    assert (second.config.id, second.confirmed, second.score) == ("d", 1, pytest.approx(0.4))
    assert str(first).startswith("tiny-qwen2: take b (the fixed settings), best of 2 confirmed.")


def test_nothing_is_chosen_before_all_of_the_best_are_confirmed():
    """A confirmation that comes first does not win by that."""
    first = config("a", "tiny-qwen2", (0.9, 0.9), (0.3, 0.2, 0.1))
    for fresh, chosen in (((), []), ((0.6, 0.6), []), ((0.6, 0.6, 0.6), ["b"])):
        second = config("b", "tiny-qwen2", (0.5, 0.5), fresh)
        assert [winner.config.id for winner in winners(Race(STAGES, "score", (first, second)))] == chosen


def test_without_a_confirmation_nothing_is_chosen():
    """The seeds of the search alone would flatter whatever they chose (X1)."""
    assert not list(winners(Race(STAGES, "score", (config("a", "tiny-qwen2", (0.9, 0.9)),))))

"""Which configuration of each backbone a sweep chooses, what that is worth, and how much the search flattered it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from par.ledger.state import ConfigState
from par.race.racing import Race
from par.statistics.scores import selected


@dataclass(frozen=True, slots=True)
class Winner:
    """The best confirmed configuration of a backbone."""

    config: ConfigState
    confirmed: int
    """Configurations that it was chosen from."""
    fresh: int
    """Seeds of the confirmation of each."""
    score: float
    """Mean score over seeds, estimated so that choosing does not flatter it."""

    def __str__(self) -> str:
        """A sentence for a person."""
        settings = ", ".join(self.config.record.choices()) or "the fixed settings"
        among = f"best of {self.confirmed} confirmed" if self.confirmed > 1 else "the one that is confirmed"
        return (
            f"{self.config.record.backbone}: take {self.config.id} ({settings}), {among}. Mean score over {self.fresh} "
            f"fresh seeds, half of which choose and the others judge: {self.score:.3f}"
        )


def winners(race: Race) -> Iterator[Winner]:
    """The winner of each backbone whose best configurations are all confirmed: among these, and any others that are."""
    confirmed = {
        name: config for name, config in race.configs.items() if config.results.keys() >= set(race.stages.fresh_seeds)
    }
    for backbone in race.known:
        best = race.best(backbone)
        if best and confirmed.keys() >= set(best):
            scores = {name: _scores(race, of) for name, of in confirmed.items() if of.record.backbone == backbone}
            found = selected(scores, race.score)
            yield Winner(confirmed[found.name], len(scores), race.stages.fresh, found.score)


def _scores(race: Race, config: ConfigState) -> list[float]:
    return [config.results[seed].score(race.score) for seed in race.stages.fresh_seeds]


@dataclass(frozen=True, slots=True)
class Optimism:
    """Mean scores of a confirmed configuration over the seeds of the search, and over fresh ones.

    Means, as lower bounds also differ with the number of seeds: that of 10 fresh ones is above that of 2 alike.
    """

    search: float
    fresh: float

    @property
    def difference(self) -> float:
        """Above 0 where the search promised too much."""
        return self.search - self.fresh


def optimism(config: ConfigState, score: str) -> Optimism | None:
    """Compare what its verdicts cover, a failed seed being 0; None before the configuration is confirmed.

    Raises LedgerError if a seed was not measured by ``score``.
    """

    def mean(seeds: Sequence[int]) -> float:
        return fmean(config.results[seed].score(score) for seed in seeds)

    searched, confirmed = config.verdict, config.confirmation
    return Optimism(mean(searched.seeds), mean(confirmed.seeds)) if searched and confirmed else None

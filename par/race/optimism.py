"""How much the search flattered a configuration: what the seeds that chose it say of it, and what fresh ones say."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from par.ledger.records import ConfigState


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

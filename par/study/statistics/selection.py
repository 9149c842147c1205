"""What the chosen one of several configurations is worth, though the same seeds choose it and tell its worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from par.errors import DataError
from par.study.statistics.seeds import checked


@dataclass(frozen=True, slots=True)
class Selection:
    """The configuration with the best mean over all of its seeds, and an estimate of its score that choosing leaves
    unbiased."""

    name: str
    score: float


def selected(search: Mapping[str, Sequence[float]], fresh: Mapping[str, Sequence[float]]) -> Selection:
    """Choose among the configurations of ``fresh`` by the mean score over the seeds of both stages.

    The mean of the chosen one is too high, as luck had a part in the choice. So each fresh seed is left out in turn:
    the others choose, and its score of their choice counts. What comes out is, on average over seeds, the true score of
    what one seed fewer would have chosen. Fresh seeds are paired: the n-th one is the same for all configurations.

    Scores are those of the seeds, a failed one 0. Source: leave-one-out cross-validation (Stone 1974, "Cross-Validatory
    Choice and Assessment of Statistical Predictions"). Raises DataError for no configuration, for different numbers of
    fresh seeds, for none, and for a score that is not finite.
    """
    counts = {len(checked(scores)) for scores in fresh.values()}
    if len(counts) != 1:
        raise DataError(f"fresh seeds={sorted(counts)}: give each configuration the same ones")
    totals = {name: fsum(scores) + fsum(search.get(name, ())) for name, scores in fresh.items()}
    seeds = {name: len(scores) + len(search.get(name, ())) for name, scores in fresh.items()}

    def best(left_out: int | None) -> str:
        """The first one with the best mean, without the seed that is left out."""
        if left_out is None:
            return max(fresh, key=lambda name: totals[name] / seeds[name])
        return max(fresh, key=lambda name: (totals[name] - fresh[name][left_out]) / max(1, seeds[name] - 1))

    [count] = counts
    return Selection(best(None), fsum(fresh[best(seed)][seed] for seed in range(count)) / count)

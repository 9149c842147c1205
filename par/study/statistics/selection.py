"""What the chosen one of several configurations is worth, though the same seeds choose it and tell its worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from par.errors import DataError
from par.study.stages import FEWEST_FRESH
from par.study.statistics.scores import lower_bound
from par.study.statistics.seeds import checked


@dataclass(frozen=True, slots=True)
class Selection:
    """The configuration with the best lower bound, and an estimate of its mean score that choosing leaves unbiased."""

    name: str
    score: float


def selected(scores: Mapping[str, Sequence[float]], metric: str = "") -> Selection:
    """Choose among configurations by the lower bound of their scores over seeds, all of which had no part before.

    The mean of the chosen one is too high, as luck had a part in the choice. So each seed is left out in turn: the
    others choose, and its score of their choice counts. What comes out is, on average over seeds, the true mean score
    of what one seed fewer would have chosen. Seeds are paired: the n-th one is the same for all configurations.

    Scores are those of the seeds by ``metric``, a failed one 0. Source: leave-one-out cross-validation (Stone 1974,
    "Cross-Validatory Choice and Assessment of Statistical Predictions"). Raises DataError for no configuration, for
    different numbers of seeds, for fewer than two, and for a score that is not finite.
    """
    counts = {len(checked(seeds)) for seeds in scores.values()}
    if len(counts) != 1 or min(counts) < FEWEST_FRESH:
        raise DataError(f"fresh seeds={sorted(counts)}: give each configuration the same ones, at least {FEWEST_FRESH}")
    [count] = counts

    def best(*left_out: int) -> str:
        """The first one with the best bound over the other seeds."""
        kept = [seed for seed in range(count) if seed not in left_out]
        return max(scores, key=lambda name: lower_bound([scores[name][seed] for seed in kept], metric))

    return Selection(best(), fsum(scores[best(seed)][seed] for seed in range(count)) / count)

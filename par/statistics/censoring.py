"""G where accuracy never fell below one half: a lower bound, not a value."""

from collections.abc import Sequence

from par.statistics.seeds import aligned, checked

ROUNDING = 1e-9
"""How far above one half a product of shares may end that is one half."""


def censored_share(censored: Sequence[bool]) -> float:
    """Share of the seeds whose G is a lower bound, in [0, 1]. Raises DataError for no seed."""
    flags = checked(censored)
    return sum(flags) / len(flags)


def median_G(Gs: Sequence[float], censored: Sequence[bool]) -> float | None:
    """Kaplan-Meier median: the least G beyond which at most half of the seeds get; None where it is not reached.

    A seed that is censored at some G counts as getting beyond it; a failed one fails at 0. It assumes that the tested
    depths do not depend on how the seed does. Raises DataError for no seed, a G that is not finite, or flags of another
    number. Source: Kaplan & Meier 1958, J. Am. Stat. Assoc. 53.
    """
    from scipy.stats import CensoredData, ecdf

    seeds = checked(Gs)
    aligned(seeds, censored)
    data = CensoredData(
        uncensored=[G for G, bound in zip(seeds, censored, strict=True) if not bound],
        right=[G for G, bound in zip(seeds, censored, strict=True) if bound],
    )
    survival = ecdf(data).sf
    reached = survival.quantiles[survival.probabilities <= 0.5 + ROUNDING]
    return float(reached[0]) if len(reached) else None

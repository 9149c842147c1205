"""One group of seeds in full, worst first: what a report says about a configuration or a backbone."""

from collections.abc import Sequence
from dataclasses import dataclass

from par.statistics.location import censored_share, interquartile_mean, mean_interval, median_G, summary
from par.statistics.seeds import Interval, TooFew
from par.statistics.success import SUCCESS, THRESHOLDS, ProfilePoint, performance_profile, success_conditional_mean


@dataclass(frozen=True, slots=True)
class Description:
    """A group of seeds, in units of G; the shares lie in [0, 1]. ``median`` is None where it is not reached."""

    n: int
    worst: float
    success: tuple[ProfilePoint, ...]
    conditional_mean: float | TooFew
    mean: float
    interval: Interval | TooFew
    sd: float | TooFew
    censored: float
    median: float | None
    iqm: float | TooFew

    def __str__(self) -> str:
        """Lines of text. The IQM comes last: it leaves failed seeds out, so nobody should read it first."""
        return "\n".join(
            [
                f"seeds: {self.n}, the worst at G = {self.worst:.2f}",
                *(f"G ≥ {level:g}: {success}" for level, success in self.success),
                f"mean of those with G ≥ {SUCCESS:g}: {_shown(self.conditional_mean)}",
                f"mean {self.mean:.2f} {self.interval}, sd {_shown(self.sd)}",
                f"censored {self.censored:.0%}, median {'not reached' if self.median is None else _shown(self.median)}",
                f"IQM {_shown(self.iqm)}",
            ]
        )


def describe(Gs: Sequence[float], censored: Sequence[bool]) -> Description:
    """Every number on one group of seeds, TooFew where they do not suffice for it.

    Raises DataError for no seed, a G that is not finite, or flags of another number.
    """
    short = summary(Gs)
    return Description(
        n=short.n,
        worst=short.worst,
        success=performance_profile(Gs, THRESHOLDS),
        conditional_mean=success_conditional_mean(Gs),
        mean=short.mean,
        interval=mean_interval(Gs),
        sd=TooFew(short.n, 2) if short.sd is None else short.sd,
        median=median_G(Gs, censored),
        censored=censored_share(censored),
        iqm=interquartile_mean(Gs),
    )


def _shown(value: float | TooFew) -> str:
    return str(value) if isinstance(value, TooFew) else f"{value:.2f}"

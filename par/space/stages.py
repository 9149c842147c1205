"""The stages of a sweep: with how many seeds a configuration begins, and how it comes to more. Loads without torch."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import pairwise

FRESH = 1000
"""Distance of the first fresh seed from the first one of the search, which never comes so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """Search, where the better part of the configurations climbs from rung to rung, then confirmation."""

    rungs: tuple[int, ...]
    """Seeds of a configuration at each rung, rising; a single rung gives all configurations the same."""
    first_seed: int
    """Of the search; the others follow, the same for every configuration."""
    confirmed: int
    """Configurations of each backbone that are confirmed, the best ones."""
    fresh: int
    """Seeds of a confirmation."""

    def rung(self, level: int) -> range:
        """The seeds of a configuration that has come to a rung, counted from 0."""
        return range(self.first_seed, self.first_seed + self.rungs[level])

    @property
    def search_seeds(self) -> range:
        """All that the search may run."""
        return self.rung(-1)

    @property
    def fresh_seeds(self) -> range:
        """The seeds of a confirmation, which the search never sees."""
        return range(self.first_seed + FRESH, self.first_seed + FRESH + self.fresh)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Those of the search and of the confirmation."""
        return (*self.search_seeds, *self.fresh_seeds)

    def level(self, begun: Collection[int]) -> int:
        """The rung that a configuration has come to if these seeds of it have begun."""
        last = max((seed for seed in begun if seed in self.search_seeds), default=self.first_seed)
        return next(level for level in range(len(self.rungs)) if last in self.rung(level))

    def up_to(self, seeds: int) -> "Stages":
        """The stages with another number of seeds at the most: the last rung of a race, or the only one."""
        below = tuple(rung for rung in self.rungs if rung < seeds) if len(self.rungs) > 1 else ()
        return replace(self, rungs=(*below, seeds))

    def grows_into(self, other: "Stages") -> bool:
        """Whether the other stages keep all seeds of these and only add some."""
        kept = len(self.rungs) == 1 or other.rungs[: len(self.rungs)] == self.rungs
        counts = ((mine.rungs[-1], mine.confirmed, mine.fresh) for mine in (self, other))
        more = all(before <= after for before, after in zip(*counts, strict=True))
        return kept and more and other.first_seed == self.first_seed

    def meaning(self) -> dict[str, object]:
        """What a space file says of the stages, as JSON values; no confirmation is not mentioned."""
        confirmation = {"confirm": self.confirmed, "fresh_seeds": self.fresh} if self.confirmed else {}
        return {"seeds": list(self.rungs), "first_seed": self.first_seed, **confirmation}

    def fewest(self, configurations: int) -> int:
        """Seeds of the whole race if the order of the configurations never changes: half of a rung climbs."""
        return self._seeds(configurations, lambda below: below // 2)

    def most(self, configurations: int) -> int:
        """Seeds of the whole race if all climb: every newcomer is the best so far, or is proposed again."""
        return self._seeds(configurations, lambda below: below)

    def _seeds(self, configurations: int, climbing: Callable[[int], int]) -> int:
        """Seeds of the search and of the confirmation, where ``climbing`` of those on a rung come to the next one."""
        here, seeds = configurations, configurations * self.rungs[0]
        for below, above in pairwise(self.rungs):
            here = climbing(here)
            seeds += here * (above - below)
        return seeds + min(self.confirmed, configurations) * self.fresh

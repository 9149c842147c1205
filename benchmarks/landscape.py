"""A simulated landscape: how likely a seed succeeds, by settings.

A seed scores about 0.9 if it succeeds and about 0.1 if it does not, so that outcomes have two humps, as measured for
PAR on larger backbones (sd of 33 to 43 points). The chance of success is 0.8 inside a basin that lies somewhere in
four settings, and falls to nothing around it: about one configuration in thirty comes within a tenth of the best one,
whose own seeds have an sd of 32 points.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from par.space.space import Space
from ray_jobs.optuna_studies.study import distribution

GOOD, BAD, NOISE = 0.9, 0.1, 0.05
TOP, WIDTHS, EDGE = 0.8, (0.3, 0.36, 0.48, 0.75), 0.13
Setting = Mapping[str, Any]


class Landscape:
    """Chance of success by settings, and seeds drawn from it."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self.rng = rng
        self.distributions = {key: distribution(domain) for key, domain in space.search.items()}
        self.centre = dict(zip(self.distributions, rng.uniform(0.2, 0.8, len(self.distributions)), strict=True))

    def chance(self, setting: Setting) -> float:
        """Of success: TOP at the centre of the basin."""
        offsets = (self._unit(key, setting[key]) - self.centre[key] for key in self.centre)
        distance = math.hypot(*(offset / width for offset, width in zip(offsets, WIDTHS, strict=True)))
        return TOP * (1 + math.exp(-1 / EDGE)) / (1 + math.exp((distance - 1) / EDGE))

    def true_score(self, setting: Setting) -> float:
        """Mean score over all seeds there could be."""
        return BAD + (GOOD - BAD) * self.chance(setting)

    @property
    def best(self) -> float:
        """True score at the centre."""
        return BAD + (GOOD - BAD) * TOP

    def seed(self, setting: Setting) -> float:
        """Score of one more seed, between 0 and 1."""
        hump = GOOD if self.rng.random() < self.chance(setting) else BAD
        return float(np.clip(hump + self.rng.normal(0, NOISE), 0, 1))

    def _unit(self, key: str, value: float) -> float:
        """Where a value lies between the ends of its domain."""
        domain: Any = self.distributions[key]
        low, high, at = (math.log(x) if domain.log else x for x in (domain.low, domain.high, value))
        return (at - low) / (high - low)

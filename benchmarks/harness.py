"""Measuring a piece of work beside another: agreement first, then times taken in turn, then ratios held to targets."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.machine import Hardware, device_clock, provenance

TOLERANCE = 1e-4
"""Largest difference between a number of the product and the same number of the reference."""

Work = Callable[[], Sequence[float]]
"""Do the work once and return the numbers that tell whether it was done right."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a ratio shall be: at least, or at most."""

    sign: Literal["≥", "≤"]
    limit: float

    def met(self, ratio: float) -> bool:
        """Whether the ratio is on the right side; the limit itself is."""
        return ratio >= self.limit if self.sign == "≥" else ratio <= self.limit

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """The product's work beside other work that it is held against."""

    name: str
    setting: Mapping[str, Any]
    """What is measured, for the record."""
    amount: int
    """Units of work done by one call."""
    unit: str = "answers"
    product: Work
    reference: Work
    """The same work in the plain way, or the bare matrix products of it."""
    target: Target
    """At least: for reference time / product time. At most: for product time / reference time."""
    flops: float | None = None
    """Of the matrix products in one call of the product; None where its use of the machine is not asked for."""
    utilisation: Target = Target("≥", 0.6)
    """For the product's FLOP/s / the matrix-product peak of the machine."""
    repeats: int = 7
    """Timed calls of each."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle half of repeated measurements."""

    median: float
    low: float
    """First quartile."""
    high: float
    """Third quartile."""

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray) -> "Spread":
        """Median and quartiles, linear between neighbours."""
        low, median, high = np.percentile(values, [25, 50, 75]).tolist()
        return cls(median, low, high)

    def scaled(self, factor: float) -> "Spread":
        """The same in another unit."""
        return Spread(self.median * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of every timed call; calls of equal number were made one after the other."""

    product_s: tuple[float, ...]
    reference_s: tuple[float, ...]

    @property
    def speed_up(self) -> Spread:
        """How many times as long the reference takes, over pairs: a load that both calls of a pair share cancels."""
        return Spread.of(np.divide(self.reference_s, self.product_s))

    @property
    def overhead(self) -> Spread:
        """How many times as long the product takes, over the same pairs."""
        return Spread.of(np.divide(self.product_s, self.reference_s))


def disagreement(case: Case) -> float | None:
    """Do the work once in both ways; return the largest difference between their numbers, None if they have none.

    Raises ValueError if it is above TOLERANCE (or not a number): a ratio between different results means nothing.
    """
    product, reference = np.array(case.product()), np.array(case.reference())
    if not product.size and not reference.size:
        return None
    largest = float(np.abs(product - reference).max()) if product.shape == reference.shape else np.inf
    if not largest <= TOLERANCE:
        raise ValueError(
            f"{case.name}: product {product} and reference {reference} differ by {largest:.2g}, limit {TOLERANCE}: "
            "find out which one is wrong before timing them"
        )
    return largest


def take_times(case: Case, *, repeats: int, warm_ups: int = 0, clock: Callable[[], float] = device_clock) -> Times:
    """Time ``repeats`` calls of both ways in turn, after ``warm_ups`` calls of each that do not count.

    Whoever has looked for a disagreement has warmed up.
    """
    pairs = [(_seconds(case.product, clock), _seconds(case.reference, clock)) for _ in range(warm_ups + repeats)]
    product_s, reference_s = zip(*pairs[warm_ups:], strict=True)
    return Times(product_s, reference_s)


def _seconds(work: Work, clock: Callable[[], float]) -> float:
    started = clock()
    work()
    return clock() - started


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A case that was measured."""

    case: Case
    disagreement: float | None
    times: Times
    peak: float | None = None
    """FLOP/s of the machine's matrix products; None where the use of the machine is not asked for."""

    @property
    def product(self) -> Spread:
        """Units per second of the product."""
        return Spread.of(np.divide(self.case.amount, self.times.product_s))

    @property
    def reference(self) -> Spread:
        """Units per second of the reference."""
        return Spread.of(np.divide(self.case.amount, self.times.reference_s))

    @property
    def ratio(self) -> Spread:
        """The ratio that the case's target speaks of."""
        return self.times.speed_up if self.case.target.sign == "≥" else self.times.overhead

    @property
    def rate(self) -> Spread | None:
        """FLOP/s of the product."""
        return Spread.of(np.divide(self.case.flops, self.times.product_s)) if self.case.flops else None

    @property
    def utilisation(self) -> Spread | None:
        """Share of the machine's peak that the product reaches."""
        if self.case.flops is None or self.peak is None:
            return None
        return Spread.of(np.divide(self.case.flops / self.peak, self.times.product_s))

    def record(self) -> dict[str, Any]:
        """Everything that was measured, and how."""
        use = self.utilisation
        record = {
            "setting": dict(self.case.setting),
            "unit": self.case.unit,
            "units_per_call": self.case.amount,
            "disagreement": self.disagreement,
            "product_per_s": asdict(self.product),
            "reference_per_s": asdict(self.reference),
            **_judged("ratio", self.ratio, self.case.target),
            **asdict(self.times),
        }
        if use is None:
            return record
        return record | {
            "product_flops": self.case.flops,
            "peak_flops_per_s": self.peak,
            **_judged("utilisation", use, self.case.utilisation),
        }


def _judged(name: str, found: Spread, target: Target) -> dict[str, Any]:
    return {name: asdict(found), f"{name}_target": str(target), f"{name}_target_met": target.met(found.median)}


def store(results: Sequence[Result], hardware: Hardware, folder: Path) -> Path:
    """Write the results into the file of this hardware; cases that were not measured now keep their last record."""
    path = folder / f"{hardware.slug}.json"
    cases = json.loads(path.read_text())["cases"] if path.exists() else {}
    cases |= {result.case.name: provenance() | result.record() for result in results}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hardware": asdict(hardware), "cases": cases}, indent=1) + "\n")
    return path

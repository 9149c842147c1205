"""Measuring one piece of work done in two ways: agreement first, then times taken in turn."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from benchmarks.machine import Hardware, provenance

TOLERANCE = 1e-4
"""Largest difference between a number of the product and the same number of the reference."""

Work = Callable[[], Sequence[float]]
"""Do the work once and return the numbers that tell whether it was done right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """The same work done in two ways."""

    name: str
    setting: Mapping[str, Any]
    """What is measured, for the record."""
    answers: int
    """Questions answered by one call."""
    product: Work
    reference: Work


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


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of every timed call; calls of equal number were made one after the other."""

    product_s: tuple[float, ...]
    reference_s: tuple[float, ...]

    @property
    def ratio(self) -> Spread:
        """How many times as long the reference takes, over pairs: a load that both calls of a pair share cancels."""
        return Spread.of(np.divide(self.reference_s, self.product_s))


def device_clock() -> float:
    """Seconds, once the GPU (if there is one) has finished what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()


def disagreement(case: Case) -> float:
    """Do the work once in both ways; return the largest difference between their numbers.

    Raises ValueError if it is above TOLERANCE (or not a number): a ratio between different results means nothing.
    """
    product, reference = np.array(case.product()), np.array(case.reference())
    largest = float(np.abs(product - reference).max())
    if not largest <= TOLERANCE:
        raise ValueError(
            f"{case.name}: product {product} and reference {reference} differ by {largest:.2g}, limit {TOLERANCE}: "
            "find out which one is wrong before timing them"
        )
    return largest


def take_times(case: Case, *, repeats: int, warm_ups: int = 1, clock: Callable[[], float] = device_clock) -> Times:
    """Time ``repeats`` calls of both ways in turn, after ``warm_ups`` calls of each that do not count."""
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
    disagreement: float
    times: Times

    @property
    def product(self) -> Spread:
        """Answers per second of the product."""
        return Spread.of(np.divide(self.case.answers, self.times.product_s))

    @property
    def reference(self) -> Spread:
        """Answers per second of the reference."""
        return Spread.of(np.divide(self.case.answers, self.times.reference_s))

    def record(self) -> dict[str, Any]:
        """Everything that was measured, and how."""
        return {
            "setting": dict(self.case.setting),
            "answers_per_call": self.case.answers,
            "disagreement": self.disagreement,
            "product_answers_per_s": asdict(self.product),
            "reference_answers_per_s": asdict(self.reference),
            "ratio": asdict(self.times.ratio),
            **asdict(self.times),
        }


def store(results: Sequence[Result], hardware: Hardware, folder: Path) -> Path:
    """Write the results into the file of this hardware; cases that were not measured now keep their last record."""
    path = folder / f"{hardware.slug}.json"
    cases = json.loads(path.read_text())["cases"] if path.exists() else {}
    cases |= {result.case.name: provenance() | result.record() for result in results}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hardware": asdict(hardware), "cases": cases}, indent=1) + "\n")
    return path

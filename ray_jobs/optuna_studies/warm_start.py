"""What a new search knows from an older sweep: configurations that fit its space, with the scores that they had."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from par.config.run import RunConfig
from par.errors import ConfigError, LedgerError
from par.ledger.current_space import current_space
from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord
from par.ledger.state import ConfigState
from par.race.verdicts import as_judged
from par.report.table import counted
from par.space.domains import Choice, Domain, FloatRange, same
from par.space.space import Space
from ray_jobs.console import say

PREFIX = "sweep:"
RECORDED = "warm_start"
"""Where the record of a sweep has its points."""


@dataclass(frozen=True, slots=True)
class Point:
    """A configuration of another sweep: none of this one's, it takes nothing of its budget."""

    backbone: str
    suggested: Mapping[str, Any]
    """Searched keys with their values, all of them possible in the new space."""
    score: float


class Misfit(NamedTuple):
    """Why a point does not fit: what of it, and which limit; ``value`` is what one point has."""

    what: str
    value: object
    limit: str

    def __str__(self) -> str:
        value = f"{self.value:.3g}" if isinstance(self.value, float) else self.value
        return f"{self.what} {self.limit}" if value is None else f"{self.what}={value} {self.limit}"


def warm_points(given: str, space: Space, storage: str) -> dict[str, Any]:
    """What the record of a sweep that begins with the points of another one has of them.

    So a resume needs that other sweep no more. Raises ConfigError as ``fitting`` does.
    """
    points = fitting(given, space, storage)
    return {RECORDED: {"sweep": given.removeprefix(PREFIX), "points": [asdict(point) for point in points]}}


def fitting(given: str, space: Space, storage: str) -> tuple[Point, ...]:
    """The points of the sweep in ``given`` that fit the space; why others do not is printed, each kind once.

    Nothing of the other sweep is written. Raises ConfigError if there is no such sweep, or it has no point that fits.
    """
    ledger = _named(given, space, storage)
    there, found = current_space(ledger), list[Point]()
    dropped = dict[tuple[str, str], list[Misfit]]()
    for config in as_judged(ledger.read(), there).configs:
        if misfit := next(_misfits(config, there.score, space), None):
            dropped.setdefault((misfit.what, misfit.limit), []).append(misfit)
        elif config.verdict:
            found.append(Point(config.record.backbone, config.record.suggested, config.verdict.score))
    for alike in dropped.values():
        say(f"{counted(len(alike), 'point')} of {ledger.name}: {alike[0]}")
    if not found:
        raise ConfigError(f"--warm-start {given}: it has no point that fits this space: drop the option")
    say(f"The search begins with {counted(len(found), 'point')} of {ledger.name}")
    return tuple(found)


def _named(given: str, space: Space, storage: str) -> Ledger:
    name = given.removeprefix(PREFIX)
    if name == given or not name:
        raise ConfigError(f"--warm-start {given} does not say what it names: write {PREFIX}{name or 'NAME'}")
    if space.sampler != "tpe":
        raise ConfigError(
            f"--warm-start {given}: sampler={space.sampler} learns from no score: set sampler: tpe, or drop the option"
        )
    try:
        return Ledger.open(storage, name)
    except LedgerError as fault:
        raise ConfigError(f"--warm-start {given}: {fault}; name one of them, or drop the option") from None


def recorded_points(ledger: Ledger, backbone: str) -> list[Point]:
    """The points of a backbone that the search of a sweep began with."""
    points = [Point(**point) for point in (ledger.sweep.warm_start or {}).get("points", ())]
    return [point for point in points if point.backbone == backbone]


def _misfits(config: ConfigState, score: str, space: Space) -> Iterator[Misfit]:
    """Why a configuration that was ranked by ``score`` is no point of the space."""
    record = config.record
    if config.verdict is None:
        yield Misfit("score", None, "is not known: it has no verdict")
    if score != space.score:
        yield Misfit("score", score, f"there, {space.score} here")
    if record.backbone not in space.backbones:
        yield Misfit("backbone", record.backbone, "is not in this space")
    yield from _unsearched(record.suggested, space)
    yield from _different(record, space.run_config(record.backbone, record.suggested, 0))


def _unsearched(suggested: Mapping[str, Any], space: Space) -> Iterator[Misfit]:
    """Keys that are searched on one side only, given the point's other values, and values that are impossible here."""
    for key in sorted(suggested.keys() - space.search.keys()):
        yield Misfit(key, None, "is not searched in this space")
    for key, domain in space.ordered():
        active = space.is_active(key, suggested)
        if active != (key in suggested):
            limit = "is searched here, and was not there" if active else "is not searched here with the other values"
            yield Misfit(key, None, limit)
        elif active and (limit := _limit(domain, suggested[key])):
            yield Misfit(key, suggested[key], limit)


def _limit(domain: Domain, value: Any) -> str | None:
    """What the value violates; None for a value of the domain."""
    if isinstance(domain, Choice):
        there = any(same(value, list(each) if isinstance(each, tuple) else each) for each in domain.values)
        return None if there else f"is not in {domain}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is no number"
    if value < domain.low:
        return f"below {domain.low:g}"
    if value > domain.high:
        return f"above {domain.high:g}"
    on_step = isinstance(domain, FloatRange) or (value - domain.low) % domain.step == 0
    return None if on_step else f"is not in {domain}"


def _different(record: ConfigRecord, here: RunConfig) -> Iterator[Misfit]:
    """Settings that are fixed on both sides, and otherwise: scores of different tasks are not comparable."""
    try:
        before = RunConfig.model_validate({**record.run, "seed": here.seed})
    except ValueError:
        yield Misfit("settings", None, "are of another version of par")
        return
    if before.fingerprint() != here.fingerprint():
        there = before.dotted()
        for key, value in here.dotted().items():
            if there[key] != value and not key.startswith("compute."):
                yield Misfit(key, there[key], f"there, {value} here")

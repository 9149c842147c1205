"""The domains of a search: small frozen values that check, print and compare themselves. Loads without torch."""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from par.errors import ConfigError
from par.space.yaml_lines import Document, did_you_mean

OPTIONS = {"choice": ("when",), "float": ("log", "when"), "int": ("log", "step", "when")}
"""The kinds of domain, and what each may have beside its values."""
GRID_LEVELS = 16
"""Most values of a whole-number range in a grid."""
PROBED_WHOLE = 8
"""Most values of a whole-number range that are all checked; of more, the ends, their neighbours and the middle."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Where a float range is probed inside: such a point is neither whole nor a neat fraction."""

LARGEST = sys.float_info.max

N = TypeVar("N", int, float)
When = Mapping[str, object]
"""Dotted keys and the values that they must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conditional:
    """What every domain has."""

    when: When = field(default_factory=dict, hash=False)
    """The domain is searched only where all of these hold."""


@dataclass(frozen=True, slots=True)
class Choice(_Conditional):
    """One of the values listed. Raises ConfigError for an empty list or a repeated value."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError("choice [] is empty: list at least one value")
        repeated = [v for i, v in enumerate(self.values) if any(same(v, w) for w in self.values[:i])]
        if repeated:
            raise ConfigError(f"choice lists {_show(repeated[0])} more than once: list each value once")

    def ends(self) -> tuple[Any, ...]:
        """Every value: as the ends that are checked together, as the probes of each, and as the levels of a grid."""
        return self.values

    probes = levels = ends

    def __str__(self) -> str:
        return f"choice {_show(self.values)}{_condition(self.when)}"


@dataclass(frozen=True, slots=True)
class _Range(_Conditional, Generic[N]):
    """Numbers between two ends, both possible; ``log`` draws the logarithm."""

    low: N
    high: N
    log: bool = False

    def ends(self) -> tuple[N, ...]:
        """Both ends."""
        return tuple(dict.fromkeys((self.low, self.high)))


@dataclass(frozen=True, slots=True)
class FloatRange(_Range[float]):
    """A number between two ends, both possible; ``log`` draws its logarithm. Raises ConfigError for impossible ends."""

    def __post_init__(self) -> None:
        _refuse(_end_faults("float", self.low, self.high, self.log))

    def probes(self) -> tuple[float, ...]:
        """Both ends and a point inside that is not whole, with two decimals where they suffice."""
        inside = self.low + GOLDEN * (self.high - self.low)
        short = round(inside, 2)
        fits = self.low < short < self.high and not short.is_integer()
        return tuple(dict.fromkeys((*self.ends(), short if fits else inside)))

    def levels(self) -> tuple[float, ...]:
        """Raises ConfigError: a grid cannot list a range of floats."""
        raise ConfigError(f"{self} has no list of values for sampler grid: use choice, or sampler tpe or random")

    def __str__(self) -> str:
        return f"float [{self.low}, {self.high}]{' log' if self.log else ''}{_condition(self.when)}"


@dataclass(frozen=True, slots=True)
class IntRange(_Range[int]):
    """A whole number from ``low`` in steps to ``high``, both possible. Raises ConfigError for impossible ends."""

    step: int = 1

    def __post_init__(self) -> None:
        _refuse(_end_faults("int", self.low, self.high, self.log))
        _refuse(_step_faults(self.low, self.high, self.log, self.step))

    def probes(self) -> tuple[int, ...]:
        """Both ends, then every value between them, or of many the neighbours of the ends and the middle."""
        count = self._count()
        inner = range(count) if count <= PROBED_WHOLE else (1, 2, count // 2, count - 2)
        return tuple(dict.fromkeys((*self.ends(), *(self.low + i * self.step for i in inner))))

    def levels(self) -> tuple[int, ...]:
        """Every value, for a grid. Raises ConfigError if they are too many to be meant."""
        if self._count() > GRID_LEVELS:
            raise ConfigError(
                f"{self} has {self._count()} values, above the {GRID_LEVELS} of a range in sampler grid: use choice"
            )
        return tuple(range(self.low, self.high + 1, self.step))

    def _count(self) -> int:
        return (self.high - self.low) // self.step + 1

    def __str__(self) -> str:
        log, step = " log" if self.log else "", f" step {self.step}" if self.step != 1 else ""
        return f"int [{self.low}, {self.high}]{log}{step}{_condition(self.when)}"


Domain = Choice | FloatRange | IntRange


def same(a: object, b: object) -> bool:
    """Equal, and not one a truth value and the other a number (Python calls True and 1 equal)."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def read_domains(document: Document, search: Mapping[str, Any]) -> dict[str, Domain]:
    """The domains under ``search`` that are right in themselves."""
    domains: dict[str, Domain] = {}
    for key, written in search.items():
        kinds = [name for name in written if name in OPTIONS] if isinstance(written, dict) else []
        if len(kinds) != 1:
            document.fault(f"{key}: {_kind_hint(written, kinds)}", "search", key)
            continue
        kind, options = kinds[0], {name: value for name, value in written.items() if name != kinds[0]}
        for name in options.keys() - set(OPTIONS[kind]):
            hint = did_you_mean(name, OPTIONS[kind]) or f"it takes {' and '.join(OPTIONS[kind])}"
            document.fault(f"{key}: {name} is no option of {kind}: {hint}", "search", key, name)
            del options[name]
        try:
            domains[key] = _build(kind, written[kind], options)
        except ConfigError as fault:
            document.fault(f"{key}: {fault}", "search", key, kind)
    return domains


def _kind_hint(written: Any, kinds: list[str]) -> str:
    """What to write instead of something that is not one domain."""
    if kinds:
        return f"{' and '.join(kinds)} are two domains: keep one"
    if isinstance(written, dict):
        named = next(iter(written), "nothing")
        if named.startswith("grid"):
            return f"{named} is not a kind of domain: use choice, and sampler: grid to try every combination"
        return f"{named} is not a kind of domain: {did_you_mean(named, OPTIONS) or 'use choice, float or int'}"
    if isinstance(written, tuple):
        return "a list is not a domain: write {choice: [...]} around the values, or {float: [lower, upper]}"
    return f"{written!r} is not a domain: move it under fixed, or write {{choice: [...]}}"


def _build(kind: str, values: Any, options: dict[str, Any]) -> Domain:
    """The domain; raises ConfigError that says what is wrong with it."""
    if not isinstance(options.get("when", {}), dict):
        raise ConfigError(f"when={options['when']!r} is not a mapping: write e.g. {{stretch.enabled: true}}")
    if kind == "choice":
        if not isinstance(values, tuple):
            raise ConfigError(f"choice={values!r} is not a list: write [...] around the values")
        return Choice(values, **options)
    if not isinstance(values, tuple) or len(values) != 2:
        raise ConfigError(f"{kind}={values!r} is not a pair: write [lower, upper]")
    if kind == "int":
        return IntRange(*values, **options)
    return FloatRange(*(_as_float(end) for end in values), **options)


def _as_float(end: Any) -> Any:
    """A whole number as a float if it is in reach; anything else as it is, for the domain to refuse."""
    return float(end) if isinstance(end, int) and not isinstance(end, bool) and abs(end) <= LARGEST else end


def _refuse(faults: Iterator[str]) -> None:
    found = list(faults)
    if found:
        raise ConfigError("; ".join(found))


def _end_faults(kind: str, low: float, high: float, log: bool) -> Iterator[str]:
    wrong = [message for end in (low, high) for message in _number_faults(kind, end)]
    yield from wrong
    if not isinstance(log, bool):
        yield f"log={log!r} is neither true nor false"
    if wrong:
        return
    if low > high:
        yield f"{kind} [{low}, {high}] has its lower end above the upper one: swap them"
    if log is True and min(low, high) <= 0:
        yield f"{kind} [{low}, {high}] with log reaches {min(low, high)}: keep both ends above 0, or drop log"


def _number_faults(kind: str, end: float) -> Iterator[str]:
    if isinstance(end, bool) or not isinstance(end, int | float):
        yield f"{kind} ends at {end!r}, which is not a number: write one, without quotes"
    elif kind == "int" and not isinstance(end, int):
        yield f"int ends at {end}, which is not a whole number: write one without a point or exponent, or use float"
    elif kind == "float" and not abs(end) <= LARGEST:
        yield f"float ends at {end if isinstance(end, float) else 'a number beyond floats'}: use a finite number"


def is_end(kind: str, value: Any, *, log: bool) -> bool:
    """Whether a range of ``kind`` can end at ``value``."""
    return not any(_number_faults(kind, value)) and not (log and value <= 0)


def _step_faults(low: int, high: int, log: bool, step: int) -> Iterator[str]:
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        yield f"step={step!r} is not a whole number above 0"
        return
    if log and step != 1:
        yield f"step={step} cannot go with log: drop one of them"
    if (high - low) % step:
        reached = high - (high - low) % step
        yield f"int [{low}, {high}] with step {step} does not meet its end: use {reached} or {reached + step}"


def _show(value: object) -> str:
    return json.dumps(value, default=str)


def _condition(when: When) -> str:
    return f" when {json.dumps(dict(sorted(when.items())), default=str)}" if when else ""

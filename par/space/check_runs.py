"""Whether every run that a space can propose is a valid RunConfig, and if not why. Loads without torch."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import combinations, islice, product
from typing import Any

from pydantic import ValidationError

from par.config.keys import explain, nest
from par.config.run import RunConfig
from par.space.conditions import holds, parents_first, requirements, walk, with_parents
from par.space.domains import OPTIONS, Choice, Domain, is_end
from par.space.parse import KEYS, SpaceFile
from par.space.yaml_lines import Document

EXHAUSTIVE = 2048
"""Most combinations of probes that are all checked; of more, every pair of probes and as many drawn at random."""
KEY = re.compile(rf"(?<![\w.])({'|'.join(sorted(map(re.escape, KEYS), key=len, reverse=True))})(?![\w.])")

Columns = Sequence[tuple[str, Domain]]
"""Keys with the values that are checked, parents first."""


def check_runs(
    document: Document, file: SpaceFile, domains: Mapping[str, Domain], searched: Mapping[str, Domain]
) -> None:
    """Find every value, and every combination of values, that a run would refuse; each kind of fault once.

    ``searched`` are those of the domains whose conditions can hold.
    """
    fixed = _valid_settings(document, ("fixed",), file.fixed)
    probes: dict[str, Domain] = {}
    for key, written in file.search.items():
        valid = _valid_values(document, key, written, domains.get(key))
        if valid and key in searched:
            probes[key] = Choice(valid, when=searched[key].when)
    probes = with_parents(probes, fixed)
    backbones: dict[str, Domain] = {"backbone": Choice(file.backbones)} if file.backbones else {}
    columns = parents_first(backbones | probes)
    missing = (file.fixed.keys() | file.search.keys() | {"backbone"}) - fixed.keys() - dict(columns).keys()
    for name, entries in file.runs().items():
        own = _valid_settings(document, ("variants", name), entries)
        for keys, message in _disagreements(columns, fixed | own, (missing | entries.keys()) - own.keys()):
            _place(document, name, keys, message)


def _place(document: Document, variant: str, keys: Sequence[str], message: str) -> None:
    """Make it a fault of a variant if a setting of it is named; else of the file, the same for every variant."""
    own, fixed, searched = (
        [(*part, key) for key in keys if (*part, key) in document.lines]
        for part in (("variants", variant), ("fixed",), ("search",))
    )
    if own:
        document.fault(f"{variant}: {message}", *own[0])
        return
    if searched:
        message = f"{message}; under search, narrow {' or '.join(key for _, key in searched)}"
    document.fault(message, *min(fixed + searched, key=lambda place: keys.index(place[1]), default=("backbones",)))


def _valid_settings(document: Document, place: tuple[str, ...], entries: Mapping[str, Any]) -> dict[str, object]:
    """The values that a run may take; of the others a mapping is a fault already."""
    valid: dict[str, object] = {}
    for key, value in entries.items():
        message = _objection(key, value)
        if message is None:
            valid[key] = value
        elif not isinstance(value, dict):
            document.fault(f"{place[1]}: {message}" if place[1:] else message, *place, key)
    return valid


def _values_to_check(key: str, written: Any, domain: Domain | None) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the values to check one by one, with their places; of a faulty domain those that are no fault of it."""
    kind = next((name for name in OPTIONS if name in written), None) if isinstance(written, dict) else None
    if kind is None:
        return
    if domain is not None and not isinstance(domain, Choice):
        yield from ((("search", key, kind), probe) for probe in domain.probes())
    elif isinstance(written[kind], tuple):
        log = written.get("log") is True
        for place, value in enumerate(written[kind]):
            if kind == "choice" or is_end(kind, value, log=log):
                yield ("search", key, kind, place), value


def _valid_values(document: Document, key: str, written: Any, domain: Domain | None) -> tuple[Any, ...]:
    """The values that a run may take; those of a range that it refuses are a fault once for each limit."""
    valid, reasons = [], set()
    for place, value in _values_to_check(key, written, domain):
        message = _objection(key, value)
        if message is None:
            valid.append(value)
            continue
        reason = message if "choice" in written else message.removeprefix(f"{key}={value!r}")
        if reason not in reasons:
            document.fault(message, *place)
        reasons.add(reason)
    return tuple(valid)


def _objection(key: str, value: object) -> str | None:
    """Why a run refuses ``value`` whatever the other settings are; None if it may be right."""
    try:
        RunConfig.model_validate(nest({key: value}), strict=True)
    except ValidationError as fault:
        for where, message in explain(fault):
            if where == key or where.startswith(f"{key}."):
                return message if key in message else f"{key}={value!r}: {message}"
    return None


def _disagreements(
    columns: Columns, fixed: Mapping[str, object], missing: Set[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys and the message of the first combination that breaks each rule between settings.

    A rule is known by the keys that its message names. One that names a ``missing`` key has been tried on a default
    that the file does not mean, and is left out.
    """
    broken: set[frozenset[str]] = set()
    for row in _rows(columns, fixed):
        for message in _complaints(row, missing):
            keys = tuple(dict.fromkeys(KEY.findall(message)))
            if frozenset(keys) not in broken:
                broken.add(frozenset(keys))
                yield keys, message


def _complaints(row: Mapping[str, object], missing: Set[str]) -> Iterator[str]:
    """Yield what a run says about the whole row. A part at odds with itself hides the rest: then ask without it."""
    try:
        RunConfig.model_validate(nest(row), strict=True)
    except ValidationError as fault:
        found = list(explain(fault))
    else:
        return
    for message in (sentence for _, text in found for sentence in text.split("; ")):
        if missing.isdisjoint(KEY.findall(message)):
            yield message
    parts = tuple(f"{part}." for part, _ in found if part)
    hidden = {key for key in row if key.startswith(parts)} if parts else set()
    if hidden:
        yield from _complaints({key: value for key, value in row.items() if key not in hidden}, missing | hidden)


def _rows(columns: Columns, fixed: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Yield every combination of the columns' values, or every pair of values and, for rules over more, many others."""
    every = list(islice(walk(columns, lambda domain: domain.ends(), fixed), EXHAUSTIVE + 1))
    if len(every) <= EXHAUSTIVE:
        yield from every
        return
    rng = random.Random(0)
    yield from _pairs(columns, fixed, rng)
    yield from (_draw(columns, fixed, {}, rng) for _ in range(EXHAUSTIVE))


def _pairs(columns: Columns, fixed: Mapping[str, object], rng: random.Random) -> Iterator[dict[str, object]]:
    """Yield a row for every two values that can be met together, the rest of it drawn at random."""
    search = dict(columns)
    needs = {key: requirements(key, search) or {} for key in search}
    for (a, left), (b, right) in combinations(columns, 2):
        for x, y in product(left.ends(), right.ends()):
            yield _draw(columns, fixed, needs[a] | needs[b] | {a: x, b: y}, rng)


def _draw(
    columns: Columns, fixed: Mapping[str, object], wanted: Mapping[str, object], rng: random.Random
) -> dict[str, object]:
    row = dict(fixed)
    for key, domain in columns:
        if not domain.when or holds(domain.when, row):
            values = domain.ends()
            row[key] = wanted[key] if key in wanted else values[int(rng.random() * len(values))]
    return row

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
from par.space.keys import KEYS
from par.space.parse import Draft
from par.space.variants import Variant
from par.space.yaml_lines import Fault, Located

EXHAUSTIVE = 2048
"""Most combinations of probes that are all checked; of more, every pair of probes and as many drawn at random."""
KEY = re.compile(rf"(?<![\w.])({'|'.join(sorted(map(re.escape, KEYS), key=len, reverse=True))})(?![\w.])")

Columns = Sequence[tuple[str, Domain]]
"""Keys with the values that are checked, parents first."""


def judge(draft: Draft, faults: list[Fault]) -> None:
    """Append every value, and every combination of values, that a run would refuse; each kind of fault once."""
    fixed = _good_settings(draft.fixed, "", faults)
    probes: dict[str, Domain] = {}
    for key, entry in draft.search.items():
        good = _good_values(key, entry, draft.domains.get(key), faults)
        if good and key in draft.searched:
            probes[key] = Choice(good, when=draft.searched[key].when)
    probes = with_parents(probes, fixed)
    backbones: dict[str, Domain] = {"backbone": Choice(draft.backbones)} if draft.backbones else {}
    columns = parents_first(backbones | probes)
    missing = (draft.fixed.keys() | draft.search.keys() | {"backbone"}) - fixed.keys() - dict(columns).keys()
    for variant in draft.variants:
        own = _good_settings(variant.entries, f"{variant.name}: ", faults)
        for keys, message in _disagreements(columns, fixed | own, (missing | variant.entries.keys()) - own.keys()):
            faults.append(_placed(draft, variant, keys, message))


def _placed(draft: Draft, variant: Variant, keys: Sequence[str], message: str) -> Fault:
    """The fault of a variant if a setting of it is named; else of the file, the same for every variant."""
    own = [variant.entries[key].line for key in keys if key in variant.entries]
    if own:
        return Fault(own[0], f"{variant.name}: {message}")
    line = next((draft.lines[key] for key in keys if key in draft.lines), draft.lines.get("backbones", 1))
    searched = " or ".join(key for key in keys if key in draft.search)
    return Fault(line, f"{message}; under search, narrow {searched}" if searched else message)


def _good_settings(entries: Mapping[str, Located], where: str, faults: list[Fault]) -> dict[str, object]:
    """The values that a run may take; the others are appended to ``faults``, but for a mapping, which was before."""
    good: dict[str, object] = {}
    for key, entry in entries.items():
        message = _objection(key, entry.plain())
        if message is None:
            good[key] = entry.plain()
        elif not isinstance(entry.value, dict):
            faults.append(Fault(entry.line, f"{where}{message}"))
    return good


def _candidates(entry: Located, domain: Domain | None) -> Iterator[tuple[int, Any]]:
    """Yield the values to check one by one, with their lines; of a faulty domain those that are no fault of it."""
    kind = next((name for name in OPTIONS if name in entry.value), None) if isinstance(entry.value, dict) else None
    if kind is None:
        return
    written = entry.value[kind]
    if domain is not None and not isinstance(domain, Choice):
        yield from ((written.line, probe) for probe in domain.probes())
    elif isinstance(written.value, list):
        log = "log" in entry.value and entry.value["log"].value is True
        items = ((item.line, item.plain()) for item in written.value)
        yield from (item for item in items if kind == "choice" or is_end(kind, item[1], log=log))


def _good_values(key: str, entry: Located, domain: Domain | None, faults: list[Fault]) -> tuple[Any, ...]:
    """The values that a run may take; the others are appended to ``faults``, those of a range once for each limit."""
    good, reasons = [], set()
    for line, value in _candidates(entry, domain):
        message = _objection(key, value)
        if message is None:
            good.append(value)
            continue
        reason = message if "choice" in entry.value else message.removeprefix(f"{key}={value!r}")
        if reason not in reasons:
            faults.append(Fault(line, message))
        reasons.add(reason)
    return tuple(good)


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

"""Which domain is searched when: conditions on other settings, and the order that they impose. Loads without torch.

A setting may also do nothing unless another one has a certain value. Searching it then compares runs that are alike.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from par.config.groups import ActsUnder
from par.config.keys import fields
from par.config.run import RunConfig
from par.space.domains import Choice, Domain, When, same
from par.space.parse import SpaceFile, key_faults
from par.space.yaml_lines import Document

ACTS_UNDER = {key: mark for key, field in fields(RunConfig) for mark in field.metadata if isinstance(mark, ActsUnder)}


def holds(when: When, chosen: Mapping[str, object]) -> bool:
    """Whether every key of ``when`` is chosen and has its value: a key that is itself inactive decides no."""
    return all(key in chosen and same(chosen[key], value) for key, value in when.items())


def parents_first(search: Mapping[str, Domain]) -> list[tuple[str, Domain]]:
    """The domains in the order of the file, but each after those that its condition names; without cycle()."""
    waiting, placed = dict(search), []
    while ready := [key for key, domain in waiting.items() if not any(parent in waiting for parent in domain.when)]:
        placed += [(key, waiting.pop(key)) for key in ready]
    return placed


def cycle(search: Mapping[str, Domain]) -> tuple[str, ...]:
    """Keys whose conditions wait for one another in a circle; empty if there are none."""
    placed = {key for key, _ in parents_first(search)}
    path: list[str] = []
    key = next((key for key in search if key not in placed), None)
    while key is not None and key not in path:
        path.append(key)
        key = next(parent for parent in search[key].when if parent in search and parent not in placed)
    return tuple(path[path.index(key) :]) if key is not None else ()


def requirements(key: str, search: Mapping[str, Domain]) -> dict[str, object] | None:
    """The values that other keys must have for ``key`` to be searched; None if they contradict one another.

    The conditions must be free of cycles.
    """
    needed: dict[str, object] = {}
    for parent, value in search[key].when.items():
        above = requirements(parent, search) if parent in search else {}
        if above is None or not agree(needed, above | {parent: value}):
            return None
        needed |= above | {parent: value}
    return needed


def agree(a: Mapping[str, object], b: Mapping[str, object]) -> bool:
    """Whether no key has two different values."""
    return all(same(a[key], b[key]) for key in a.keys() & b.keys())


def walk(
    columns: Sequence[tuple[str, Domain]], values: Callable[[Domain], Sequence[object]], chosen: Mapping[str, object]
) -> Iterator[dict[str, object]]:
    """Yield ``chosen`` joined with every combination of the active domains' values; ``columns`` has parents first."""
    if not columns:
        yield dict(chosen)
        return
    (key, domain), rest = columns[0], columns[1:]
    if not holds(domain.when, chosen):
        yield from walk(rest, values, chosen)
        return
    for value in values(domain):
        yield from walk(rest, values, {**chosen, key: value})


def satisfiable(document: Document, domains: Mapping[str, Domain], file: SpaceFile) -> dict[str, Domain]:
    """The domains whose conditions can hold."""
    kept = dict(domains)
    for key in domains:
        for parent, value in domains[key].when.items():
            for message in _condition_faults(parent, value, domains, file):
                document.fault(f"{key}: {message}", "search", key, "when", parent)
                kept.pop(key, None)
    while loop := cycle(kept):
        around = " -> ".join((*loop, loop[0]))
        document.fault(f"the conditions {around} form a circle: drop one `when`", "search", loop[0])
        kept = {key: domain for key, domain in kept.items() if key not in loop}
    for key in [key for key in kept if requirements(key, kept) is None]:
        document.fault(f"{key}: its conditions contradict one another, so it is never searched", "search", key)
        del kept[key]
    return kept


def with_parents(search: Mapping[str, Domain], fixed: Mapping[str, object]) -> dict[str, Domain]:
    """The domains whose conditions name, directly and through others, only keys that are there."""
    kept = dict(search)
    while orphans := [key for key, domain in kept.items() if not domain.when.keys() <= kept.keys() | fixed.keys()]:
        kept = {key: domain for key, domain in kept.items() if key not in orphans}
    return kept


def _condition_faults(parent: str, wanted: object, domains: Mapping[str, Domain], file: SpaceFile) -> Iterator[str]:
    """Yield why ``parent`` can never have the value that a condition asks for."""
    wrong_key = list(key_faults(parent, wanted))
    if wrong_key:
        yield f"when: {wrong_key[0]}"
    elif parent in domains:
        domain = domains[parent]
        if not isinstance(domain, Choice):
            yield f"when: {parent} is {domain}: a condition needs a choice"
        elif not any(same(wanted, value) for value in domain.values):
            yield f"when: {parent}={wanted!r} never holds, it is {domain}: name one of its values"
    elif parent in file.fixed:
        if not same(wanted, file.fixed[parent]):
            yield f"when: {parent}={wanted!r} never holds, it is fixed at {file.fixed[parent]!r}: remove this domain"
    elif parent not in file.search:
        yield f"when: {parent} is neither fixed nor searched: put it under fixed or search"


def find_inactive(document: Document, file: SpaceFile, searched: Mapping[str, Domain]) -> None:
    """Find each setting that would do nothing: in its variant, or in some runs where it is searched."""
    for name, entries in file.variants.items():
        settings = RunConfig().dotted() | file.fixed | entries
        for key in entries.keys() & ACTS_UNDER.keys():
            other, useful = ACTS_UNDER[key]
            if not any(same(settings[other], good) for good in useful):
                message = f"{name}: {key} does nothing while {other}={settings[other]!r}: remove one of them"
                document.fault(message, "variants", name, key)
    for key in searched.keys() & ACTS_UNDER.keys():
        other, useful = ACTS_UNDER[key]
        met = _values_met(file, searched, key, other)
        idle = [value for value in met if not any(same(value, good) for good in useful)]
        if len(idle) == len(met) or (idle and len(useful) == 1):
            message = f"{key} does nothing while {other}={idle[0]!r}"
            remedy = f"search it with when: {{{other}: {str(useful[0]).lower()}}}, or fix {other} at that value"
            document.fault(f"{message}: {remedy}", "search", key)


def _values_met(file: SpaceFile, searched: Mapping[str, Domain], key: str, other: str) -> tuple[object, ...]:
    """The values that ``other`` has in the runs in which ``key`` is searched."""
    needed = requirements(key, searched) or {}
    if other in needed:
        return (needed[other],)
    if other in file.fixed:
        return (file.fixed[other],)
    domain = searched.get(other)
    return domain.values if isinstance(domain, Choice) else (RunConfig().dotted()[other],)

"""Settings that do nothing unless another one has a certain value. Searching one then compares runs that are alike."""

from collections.abc import Iterator, Mapping

from par.config.groups import ActsUnder
from par.config.keys import fields
from par.config.run import RunConfig
from par.space.conditions import requirements
from par.space.domains import Choice, Domain, same
from par.space.parse import SpaceFile
from par.space.yaml_lines import Document, Fault

ACTS_UNDER = {key: mark for key, field in fields(RunConfig) for mark in field.metadata if isinstance(mark, ActsUnder)}


def inactive_faults(document: Document, file: SpaceFile, searched: Mapping[str, Domain]) -> Iterator[Fault]:
    """Yield a fault for each setting that would do nothing: in some runs where it is searched, or in its variant."""
    yield from _inactive_in_variants(document, file)
    for key in searched.keys() & ACTS_UNDER.keys():
        other, useful = ACTS_UNDER[key]
        met = _values_met(file, searched, key, other)
        idle = [value for value in met if not any(same(value, good) for good in useful)]
        if len(idle) == len(met) or (idle and len(useful) == 1):
            message = f"{key} does nothing while {other}={idle[0]!r}"
            remedy = f"search it with when: {{{other}: {str(useful[0]).lower()}}}, or fix {other} at that value"
            yield Fault(document.line("search", key), f"{message}: {remedy}")


def _inactive_in_variants(document: Document, file: SpaceFile) -> Iterator[Fault]:
    for name, entries in file.variants.items():
        settings = RunConfig().dotted() | file.fixed | entries
        for key in entries.keys() & ACTS_UNDER.keys():
            other, useful = ACTS_UNDER[key]
            if not any(same(settings[other], good) for good in useful):
                message = f"{name}: {key} does nothing while {other}={settings[other]!r}: remove one of them"
                yield Fault(document.line("variants", name, key), message)


def _values_met(file: SpaceFile, searched: Mapping[str, Domain], key: str, other: str) -> tuple[object, ...]:
    """The values that ``other`` has in the runs in which ``key`` is searched."""
    needed = requirements(key, searched) or {}
    if other in needed:
        return (needed[other],)
    if other in file.fixed:
        return (file.fixed[other],)
    domain = searched.get(other)
    return domain.values if isinstance(domain, Choice) else (RunConfig().dotted()[other],)

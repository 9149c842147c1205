"""Settings that do nothing unless another one has a certain value. Searching one then compares runs that are alike."""

from collections.abc import Iterator, Mapping

from par.config.run import RunConfig
from par.space.conditions import requirements
from par.space.domains import Choice, Domain, same
from par.space.parse import SpaceFile
from par.space.yaml_lines import Document, Fault

NEEDS: dict[str, tuple[str, tuple[object, ...]]] = {
    "task.position_spacing": ("task.rendering", ("compact",)),
    "schedule.iterations": ("schedule.kind", ("hold", "fixed", "random")),
    "schedule.distribution": ("schedule.kind", ("hold",)),
    "schedule.overrun": ("schedule.kind", ("forced",)),
    "train.teacher_decay": ("objective", ("prefix_distill",)),
    "optim.muon_lr": ("optim.matrices", ("muon",)),
    "optim.decay_share": ("optim.decay", ("cosine", "linear")),
    "stretch.distribution": ("stretch.enabled", (True,)),
    "stretch.s_min": ("stretch.enabled", (True,)),
    "stretch.s_max": ("stretch.enabled", (True,)),
    "stretch.start": ("stretch.enabled", (True,)),
    "stretch.ramp": ("stretch.enabled", (True,)),
    "halting.weight": ("halting.mode", ("learned",)),
    "halting.tau": ("halting.mode", ("learned",)),
    "halting.k": ("halting.mode", ("learned",)),
    "halting.m": ("halting.mode", ("learned",)),
    "halting.trace_sequences": ("halting.mode", ("learned",)),
}
"""Setting: (the other one, its values with which the setting does something)."""


def inactive_faults(document: Document, file: SpaceFile, searched: Mapping[str, Domain]) -> Iterator[Fault]:
    """Yield a fault for each setting that would do nothing: in some runs where it is searched, or in its variant."""
    yield from _inactive_in_variants(document, file)
    for key in searched.keys() & NEEDS.keys():
        other, useful = NEEDS[key]
        met = _values_met(file, searched, key, other)
        idle = [value for value in met if not any(same(value, good) for good in useful)]
        if len(idle) == len(met) or (idle and len(useful) == 1):
            message = f"{key} does nothing while {other}={idle[0]!r}"
            remedy = f"search it with when: {{{other}: {str(useful[0]).lower()}}}, or fix {other} at that value"
            yield Fault(document.line("search", key), f"{message}: {remedy}")


def _inactive_in_variants(document: Document, file: SpaceFile) -> Iterator[Fault]:
    for name, entries in file.variants.items():
        settings = RunConfig().dotted() | file.fixed | entries
        for key in entries.keys() & NEEDS.keys():
            other, useful = NEEDS[key]
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

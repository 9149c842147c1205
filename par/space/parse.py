"""A search space file as far as it can be read: its parts, and what is wrong with each. Loads without torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from par.config.backbones import BACKBONES
from par.metrics import EXTRAPOLATION_AUC, SCORES
from par.space.conditions import sound
from par.space.domains import Choice, Domain, read_domain
from par.space.keys import KEYS, known_settings
from par.space.stages import FRESH, Stages
from par.space.variants import VARIANT, Variant, read_variants
from par.space.yaml_lines import Fault, Located, did_you_mean
from par.statistics.selection import FEWEST_FRESH
from par.tasks.streams import WORD

FIELDS = (
    "question", "cost", "backbones", "fixed", "search", "variants", "configurations", "seeds",
    "first_seed", "confirm", "fresh_seeds", "sampler", "sampler_seed", "score",
)  # fmt: skip
LAST_FIRST_SEED = WORD - 2**16
"""Leaves room for the seeds that follow it."""
SAMPLERS = ("tpe", "random", "grid")
RACE = (2, 4, 6)
"""Seeds at each rung of a search; a grid has those of the first, for all."""
CONFIRMED, CONFIRMATION = 3, 10
"""Configurations of each backbone that a race confirms, and seeds of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """What a space file says. A part that cannot be read is left out, or stands at its default."""

    question: str
    cost: str
    backbones: tuple[str, ...]
    fixed: Mapping[str, Located]
    search: Mapping[str, Located]
    domains: Mapping[str, Domain]
    """The domains under ``search`` that are right in themselves."""
    searched: Mapping[str, Domain]
    """Those of them whose conditions can hold; with variants the choice between their names."""
    variants: tuple[Variant, ...]
    """One that overrides nothing where the file has none."""
    configurations: int | None
    """In total; None if the file does not say."""
    stages: Stages
    sampler: str
    sampler_seed: int
    score: str
    lines: Mapping[str, int]
    """Where each field of the file is, and each key of fixed and search."""


def read_draft(root: Located, faults: list[Fault]) -> Draft:
    """Read every part of the file, and append what is wrong with each to ``faults``."""
    file = _File(root, faults)
    file.refuse_unknown_fields()
    variants = file.variants()
    fixed, search = file.settings("fixed", required=False), file.settings("search", required=variants is None)
    for key in fixed.keys() & search.keys():
        message = f"{key} is both searched and fixed (line {fixed[key].line}): keep one of them"
        faults.append(Fault(search[key].line, message))
    _refuse_mappings(fixed, faults)
    read = {key: read_domain(key, entry, faults) for key, entry in search.items()}
    domains = {key: domain for key, domain in read.items() if domain is not None}
    sampler = file.word("sampler", SAMPLERS, "tpe" if variants is None else "grid")
    searched = sound(domains, fixed, search, faults)
    if variants is not None:
        file.refuse_beside_variants(sampler)
        search, domains, sampler = {}, {}, "grid"
        searched = {VARIANT: Choice(tuple(variant.name for variant in variants))} if variants else {}
    return Draft(
        question=file.text("question", required=True),
        cost=file.text("cost", required=False),
        backbones=file.backbones(),
        fixed=fixed,
        search=search,
        domains=domains,
        searched=searched,
        variants=variants or (Variant.none(),),
        configurations=file.number("configurations", least=1, default=None, required=sampler != "grid"),
        stages=file.stages(RACE if sampler != "grid" else RACE[:1]),
        sampler=sampler,
        sampler_seed=file.number("sampler_seed", least=0, default=0) or 0,
        score=file.word("score", tuple(SCORES), EXTRAPOLATION_AUC.name),
        lines={name: entry.line for part in (search, fixed, root.value) for name, entry in part.items()},
    )


class _File:
    """The top level of the file. Each method reads one field, and appends what is wrong with it to the faults."""

    def __init__(self, root: Located, faults: list[Fault]) -> None:
        self.entries: dict[str, Located] = root.value
        self.line = root.line
        self.faults = faults

    def refuse_unknown_fields(self) -> None:
        for name, entry in self.entries.items():
            if name in KEYS and name not in FIELDS:
                self.faults.append(Fault(entry.line, f"{name} stands at the top: move it under fixed or search"))
            elif name not in FIELDS:
                hint = did_you_mean(name, FIELDS) or f"the fields are {', '.join(FIELDS)}"
                self.faults.append(Fault(entry.line, f"{name} is not a field of a space: {hint}"))

    def entry(self, name: str, hint: str, *, required: bool) -> Located | None:
        """The field, or None if it is absent; append a fault with ``hint`` if it must not be."""
        if name not in self.entries and required:
            self.faults.append(Fault(self.line, f"{name} is missing: {hint}"))
        return self.entries.get(name)

    def text(self, name: str, *, required: bool) -> str:
        hint = "write a sentence"
        entry = self.entry(name, hint, required=required)
        if entry is None:
            return ""
        if not isinstance(entry.value, str) or not entry.value.strip():
            self.faults.append(Fault(entry.line, f"{name}={entry.plain()!r} is not a text: {hint}"))
        return str(entry.plain())

    def number(
        self, name: str, *, least: int, most: int | None = None, default: int | None, required: bool = False
    ) -> int | None:
        hint = f"write a whole number of at least {least}" + (f" and at most {most}" if most else "")
        entry = self.entry(name, hint, required=required)
        if entry is None:
            return default
        value = entry.value
        if not isinstance(value, int) or isinstance(value, bool) or value < least or (most and value > most):
            self.faults.append(Fault(entry.line, f"{name}={entry.plain()!r}: {hint}"))
            return default
        return value

    def stages(self, rungs: tuple[int, ...]) -> Stages:
        """How many seeds there are; ``rungs`` where the file does not say."""
        entry = self.entries.get("seeds")
        if entry is not None:
            rungs = self._rungs(entry) or rungs
        racing = CONFIRMED if len(rungs) > 1 else 0
        return Stages(
            rungs=rungs,
            first_seed=self.number("first_seed", least=0, most=LAST_FIRST_SEED, default=0) or 0,
            confirmed=self.number("confirm", least=0, default=racing) or 0,
            fresh=self.number("fresh_seeds", least=FEWEST_FRESH, default=CONFIRMATION) or CONFIRMATION,
        )

    def _rungs(self, entry: Located) -> tuple[int, ...] | None:
        """A number of seeds, or a rising list of them."""
        given = entry.plain()
        rungs = given if isinstance(given, tuple) else (given,)
        whole = all(isinstance(rung, int) and not isinstance(rung, bool) for rung in rungs)
        if whole and rungs and rungs[0] > 0 and rungs[-1] <= FRESH and list(rungs) == sorted(set(rungs)):
            return rungs
        hint = f"write a whole number of at least 1, or a rising list such as {list(RACE)}, up to {FRESH}"
        self.faults.append(Fault(entry.line, f"seeds={given!r}: {hint}"))
        return None

    def word(self, name: str, options: tuple[str, ...], default: str) -> str:
        entry = self.entries.get(name)
        if entry is None or entry.value in options:
            return default if entry is None else str(entry.value)
        hint = did_you_mean(str(entry.value), options) or f"choose one of {', '.join(options)}"
        self.faults.append(Fault(entry.line, f"{name}={entry.plain()!r} does not exist: {hint}"))
        return default

    def backbones(self) -> tuple[str, ...]:
        """The registered ones of those listed, each once."""
        hint = f"list some of {', '.join(BACKBONES)} in brackets"
        entry = self.entry("backbones", hint, required=True)
        if entry is None:
            return ()
        if not isinstance(entry.value, list) or not entry.value:
            self.faults.append(Fault(entry.line, f"backbones={entry.plain()!r} is not a list of names: {hint}"))
            return ()
        names: list[str] = []
        for item in entry.value:
            name = item.plain()
            if name in names:
                self.faults.append(Fault(item.line, f"backbone {name} is listed twice: remove one"))
            elif name not in tuple(BACKBONES):
                near = did_you_mean(str(name), BACKBONES) or f"choose one of {', '.join(BACKBONES)}"
                self.faults.append(Fault(item.line, f"backbone {name} is not registered: {near}"))
            else:
                names.append(name)
        return tuple(names)

    def settings(self, name: str, *, required: bool) -> dict[str, Located]:
        """The entries of ``fixed`` or ``search`` whose keys are settings of a run."""
        hint = "give at least one key a domain, e.g. optim.lr: {float: [1e-5, 1e-3], log: true}, or name variants"
        entry = self.entry(name, hint, required=required)
        if entry is None or (entry.value is None and not required):
            return {}
        if not isinstance(entry.value, dict):
            message = f"{name}={entry.plain()!r} is not a mapping of dotted keys, e.g. train.steps: ..."
            self.faults.append(Fault(entry.line, message))
            return {}
        if not entry.value and required:
            self.faults.append(Fault(entry.line, f"{name} is empty: {hint}"))
        return known_settings(name, entry.value, self.faults)

    def variants(self) -> tuple[Variant, ...] | None:
        """The variants; None if the file does not have the field."""
        entry = self.entries.get("variants")
        return None if entry is None else read_variants(entry, self.faults)

    def refuse_beside_variants(self, sampler: str) -> None:
        """Every variant runs: there is nothing to search, nor to sample."""
        line = self.entries["variants"].line
        if "search" in self.entries:
            searched = self.entries["search"].line
            message = f"variants stands in the place of search (line {searched}): keep one of them"
            self.faults.append(Fault(line, message))
        elif sampler != "grid":
            message = f"sampler={sampler} chooses, but all variants (line {line}) are run: remove it"
            self.faults.append(Fault(self.entries["sampler"].line, message))


def _refuse_mappings(fixed: dict[str, Located], faults: list[Fault]) -> None:
    for key, entry in fixed.items():
        if isinstance(entry.value, dict):
            faults.append(Fault(entry.line, f"{key}: a fixed setting has one value: move a domain under search"))

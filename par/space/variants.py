"""Variants: named settings that override the fixed ones, for an ablation, which is no product of choices."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from par.config.run import RunConfig
from par.space.keys import known_settings
from par.space.yaml_lines import Fault, Located

VARIANT = "variant"
"""What a proposal calls the variant that it is, in place of a dotted key."""
EXAMPLE = "no anchoring: {recurrence.anchor: none}"
LONGEST_NAME = 40
MARKUP = frozenset("[]$\\")
"""What tables and plots would not show as it is written."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A name for settings that override the fixed ones."""

    name: str
    line: int
    entries: Mapping[str, Located]
    """The settings, by dotted key."""

    @classmethod
    def none(cls) -> Self:
        """What a space without variants runs: it overrides nothing."""
        return cls("", 1, {})

    def settings(self) -> dict[str, object]:
        """The settings without their lines."""
        return {key: entry.plain() for key, entry in self.entries.items()}


def read_variants(entry: Located, faults: list[Fault]) -> tuple[Variant, ...]:
    """The variants that a space file names, in its order; what is wrong with each is appended to ``faults``."""
    if not isinstance(entry.value, dict) or not entry.value:
        faults.append(Fault(entry.line, f"variants={entry.plain()!r} names no variant: write e.g. {EXAMPLE}"))
        return ()
    return tuple(_read(name, held, faults) for name, held in entry.value.items())


def twin_faults(variants: Iterable[Variant], fixed: Mapping[str, object], backbone: str) -> Iterator[Fault]:
    """Yield a fault for each variant whose run is that of an earlier one: a sweep would run it once."""
    first: dict[str, Variant] = {}
    for variant in variants:
        run = RunConfig.from_dotted({**fixed, **variant.settings(), "backbone": backbone})
        twin = first.setdefault(run.fingerprint(), variant)
        if twin is not variant:
            message = f"{variant.name} is the same run as {twin.name} (line {twin.line}): nothing that changes a result"
            yield Fault(variant.line, f"{message} differs, remove one")


def _read(name: str, held: Located, faults: list[Fault]) -> Variant:
    if name != name.strip() or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or MARKUP & set(name):
        hint = f"write at most {LONGEST_NAME} characters on one line, without {' '.join(sorted(MARKUP))}"
        faults.append(Fault(held.line, f"variants: {name!r} is no name: {hint}"))
    if not isinstance(held.value, dict):
        hint = f"write e.g. {EXAMPLE}, or {{}} for the fixed settings alone"
        faults.append(Fault(held.line, f"{name}: {held.plain()!r} is not a mapping: {hint}"))
        return Variant(name, held.line, {})
    entries = known_settings(name, held.value, faults)
    for key, entry in entries.items():
        if isinstance(entry.value, dict):
            faults.append(Fault(entry.line, f"{name}: {key} has one value in a variant: write a variant for each"))
    return Variant(name, held.line, entries)

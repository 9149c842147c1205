"""Variants: named settings that override the fixed ones, for an ablation, which is no product of choices."""

from collections.abc import Iterator, Mapping
from typing import Any

from par.config.run import RunConfig
from par.space.keys import known_settings
from par.space.yaml_lines import Document, Fault, Reading

VARIANT = "variant"
"""What a proposal calls the variant that it is, in place of a dotted key."""
EXAMPLE = "no anchoring: {recurrence.anchor: none}"
LONGEST_NAME = 40
MARKUP = frozenset("[]$\\")
"""What tables and plots would not show as it is written."""


def read_variants(document: Document, variants: Mapping[str, Any]) -> Reading[dict[str, dict[str, Any]]]:
    """The settings of each variant under its name, in the order of the file; of a faulty one those that are right."""
    read: dict[str, dict[str, Any]] = {}
    for name, entries in variants.items():
        line = document.line("variants", name)
        if name != name.strip() or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or MARKUP & set(name):
            hint = f"write at most {LONGEST_NAME} characters on one line, without {' '.join(sorted(MARKUP))}"
            yield Fault(line, f"variants: {name!r} is no name: {hint}")
        if not isinstance(entries, dict):
            hint = f"write e.g. {EXAMPLE}, or {{}} for the fixed settings alone"
            yield Fault(line, f"{name}: {entries!r} is not a mapping: {hint}")
            entries = {}
        read[name] = yield from known_settings(
            document, ("variants", name), entries, no_domain="write a variant for each value"
        )
    return read


def twin_faults(
    document: Document, variants: Mapping[str, Mapping[str, object]], fixed: Mapping[str, object], backbone: str
) -> Iterator[Fault]:
    """Yield a fault for each variant whose run is that of an earlier one: a sweep would run it once."""
    first: dict[str, str] = {}
    for name, entries in variants.items():
        twin = first.setdefault(RunConfig.from_dotted({**fixed, **entries, "backbone": backbone}).fingerprint(), name)
        if twin != name:
            where = f"{twin} (line {document.line('variants', twin)})"
            message = f"{name} is the same run as {where}: nothing that changes a result differs, remove one"
            yield Fault(document.line("variants", name), message)

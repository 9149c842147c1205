"""The dotted keys that a space may fix or search. Loads without torch."""

from collections.abc import Iterator, Mapping
from typing import Any

from par.config.keys import RENAMED, known_keys, new_name
from par.config.run import RunConfig
from par.space.yaml_lines import Document, Fault, Reading, did_you_mean

KEYS = tuple(known_keys(RunConfig))
OWN_PLACE = {
    "backbone": "list it under backbones, and remove it here",
    "seed": "seeds counts them for each configuration; remove it here",
}


def known_settings(
    document: Document, place: tuple[str, ...], entries: Mapping[str, Any], *, no_domain: str | None
) -> Reading[dict[str, Any]]:
    """The entries whose keys are settings of a run; ``no_domain`` says what to do with a domain."""
    for key, value in entries.items():
        messages = list(key_faults(key, value))
        if not messages and no_domain and isinstance(value, dict):
            messages = [f"{key} has one value here: {no_domain}"]
        for message in messages:
            yield Fault(document.line(*place, key), f"{place[-1]}: {message}")
    return {key: value for key, value in entries.items() if key in KEYS and key not in OWN_PLACE}


def key_faults(key: str, value: object) -> Iterator[str]:
    """Yield why ``key`` cannot be fixed, searched or a condition."""
    if key in OWN_PLACE:
        yield f"{key} has its own place: {OWN_PLACE[key]}"
    elif key in RENAMED:
        yield from new_name(key)
    elif any(known.startswith(f"{key}.") for known in KEYS):
        inner = [f"{key}.{name}" for name in value] if isinstance(value, dict) else []
        example = next((name for name in inner if name in KEYS), next(k for k in KEYS if k.startswith(f"{key}.")))
        yield f"{key} is a group of settings: write dotted keys, e.g. {example}: ..."
    elif key not in KEYS:
        group = [known for known in KEYS if known.startswith(f"{key.partition('.')[0]}.")]
        listed = f"that group has {', '.join(group)}" if group else f"settings are dotted keys such as {KEYS[1]}"
        yield f"{key} is not a setting: {did_you_mean(key, KEYS) or listed}"

"""The dotted keys that a space may fix or search. Loads without torch."""

from collections.abc import Iterator, Mapping

from par.config.keys import known_keys
from par.config.run import RunConfig
from par.space.yaml_lines import Fault, Located, did_you_mean

KEYS = tuple(known_keys(RunConfig))
OWN_PLACE = {
    "backbone": "list it under backbones, and remove it here",
    "seed": "seeds counts them for each configuration; remove it here",
}


def known_settings(where: str, entries: Mapping[str, Located], faults: list[Fault]) -> dict[str, Located]:
    """The entries whose keys are settings of a run; what is wrong with the others is appended to ``faults``."""
    for key, held in entries.items():
        faults.extend(Fault(held.line, f"{where}: {message}") for message in key_faults(key, held))
    return {key: held for key, held in entries.items() if key in KEYS and key not in OWN_PLACE}


def key_faults(key: str, held: Located) -> Iterator[str]:
    """Yield why ``key`` cannot be fixed, searched or a condition."""
    if key in OWN_PLACE:
        yield f"{key} has its own place: {OWN_PLACE[key]}"
    elif any(known.startswith(f"{key}.") for known in KEYS):
        inner = [f"{key}.{name}" for name in held.value] if isinstance(held.value, dict) else []
        example = next((name for name in inner if name in KEYS), next(k for k in KEYS if k.startswith(f"{key}.")))
        yield f"{key} is a group of settings: write dotted keys, e.g. {example}: ..."
    elif key not in KEYS:
        group = [known for known in KEYS if known.startswith(f"{key.partition('.')[0]}.")]
        yield f"{key} is not a setting: {did_you_mean(key, KEYS) or _listed(group)}"


def _listed(group: list[str]) -> str:
    return f"that group has {', '.join(group)}" if group else f"settings are dotted keys such as {KEYS[1]}"

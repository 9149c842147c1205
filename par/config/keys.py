"""Settings under dotted keys, and what is wrong with them in a person's words. Loads without torch."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from par.errors import ConfigError

RENAMED = {
    f"train.{name}": f"compute.{name}"
    for name in (
        "workers", "micro_batch", "attention", "activation_checkpointing", "compile", "deterministic",
        "checkpoint_every", "report_every",
    )
}  # fmt: skip
"""Dotted keys of earlier versions, which ledgers of theirs hold, and what they are now."""
_WRITTEN = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, RENAMED))})(?=['\"]?\s*:)")


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was recorded under dotted keys, under those of this version."""
    return {RENAMED.get(key, key): value for key, value in values.items()}


def renamed_run(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """The nested settings of a run that was recorded, under the keys of this version."""
    places = (old.split(".") for old in RENAMED)
    is_old = any(name in run.get(group, ()) for group, name in places)
    return nest(renamed(dict(leaves(run)))) if is_old else run


def renamed_text(space: str) -> str:
    """The text of a space that was recorded, with the keys of this version."""
    return _WRITTEN.sub(lambda old: RENAMED[old[0]], space)


def new_name(key: str) -> Iterator[str]:
    """Yield the message for a key that has another name in this version."""
    if key in RENAMED:
        yield f"{key} is {RENAMED[key]} now"


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into nested dictionaries. Raises ConfigError where a key is both a group and a value."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *groups, leaf = key.split(".")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{key}: {group} is given a value of its own, too")
        if leaf in node:
            raise ConfigError(f"{key}: {leaf} is a group that is given values of its own, too")
        node[leaf] = value
    return tree


def explain(fault: ValidationError) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, message with key, value and limit) for every fault that pydantic found."""
    for error in fault.errors(include_url=False):
        key = ".".join(str(part) for part in error["loc"])
        message = error["msg"].removeprefix("Value error, ")
        if error["type"] != "value_error":
            message = next(new_name(key), f"{key}={error['input']!r}: {message}")
        yield key, message


def fields(part: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield (dotted key, its declaration) for everything in a group of settings that holds a value."""
    for name, field in part.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def known_keys(part: type[BaseModel]) -> Iterator[str]:
    """Yield every dotted key of a group of settings that holds a value."""
    return (key for key, _ in fields(part))


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every value of nested dictionaries."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

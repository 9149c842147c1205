"""Settings under dotted keys, and what is wrong with them in a person's words. Loads without torch."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from par.errors import ConfigError


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
        yield key, message if error["type"] == "value_error" else f"{key}={error['input']!r}: {message}"


def known_keys(part: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of a group of settings that holds a value."""
    for name, field in part.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from known_keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every value of nested dictionaries."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

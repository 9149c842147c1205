"""docs/spaces.md lists every setting as the code declares it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types as limits
import pytest
from pydantic.fields import FieldInfo

from par.config.groups import ActsUnder
from par.config.keys import fields
from par.config.run import RunConfig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spaces.md"
HEAD = "| key | type and range | default | meaning | acts under |\n|---|---|---|---|---|\n"
PLAIN = {bool: "`true`, `false`", int: "whole number", float: "number", str: "name"}


def written(value: object) -> str:
    """A value as a space writes it."""
    if value is None or isinstance(value, bool):
        return f"`{json.dumps(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def bounds(metadata: Any) -> Iterator[str]:
    """The limits of a number, in words."""
    for one in metadata:
        match one:
            case FieldInfo():
                yield from bounds(one.metadata)
            case limits.Ge(ge=low):
                yield f"≥ {low}"
            case limits.Gt(gt=low):
                yield f"> {low}"
            case limits.Le(le=high):
                yield f"≤ {high}"
            case limits.Lt(lt=high):
                yield f"< {high}"


def domain(kind: Any, metadata: Any = ()) -> str:
    """What a setting takes, in words."""
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        return domain(inner[0], inner[1:])
    if get_origin(kind) is Literal:
        return ", ".join(map(written, inner))
    if get_origin(kind) in (Union, UnionType):
        return ", or ".join("`null`" if one is type(None) else domain(one, metadata) for one in inner)
    if get_origin(kind) is tuple:
        return f"list, each a {domain(inner[0])}" + ("" if inner[-1] is Ellipsis else f"; {len(inner)} of them")
    return f"{PLAIN[kind]} {' and '.join(bounds(metadata))}".strip()


def row(key: str, field: FieldInfo) -> str:
    """The line of the page for one setting."""
    under = [one for one in field.metadata if isinstance(one, ActsUnder)]
    acts = "; ".join(f"`{one.setting}`: {', '.join(map(written, one.values))}" for one in under)
    meaning = re.sub(r"\s+", " ", field.description or "").strip().replace("|", r"\|")
    return f"| `{key}` | {domain(field.annotation, field.metadata)} | {written(field.default)} | {meaning} | {acts} |"


def rows() -> list[str]:
    return [row(key, field) for key, field in fields(RunConfig)]


def on_the_page(page: str) -> list[str]:
    """The rows that stand beneath the heading of the table."""
    _, _, below = page.partition(HEAD)
    return re.match(r"(?:\|.*\n)*", below)[0].splitlines()  # pyright: ignore[reportOptionalSubscript]  # matches always


def test_the_page_lists_every_setting_as_it_is_declared():
    """The table of docs/spaces.md has one row for each setting, in order; what is wrong is shown as it should be."""
    shown, right = on_the_page(PAGE.read_text()), rows()
    missing, left_over = [one for one in right if one not in shown], [one for one in shown if one not in right]
    assert shown == right, "docs/spaces.md, add:\n" + "\n".join(missing) + "\nremove:\n" + "\n".join(left_over)


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("task.train_depth", "| whole number ≥ 1 and ≤ 4096 | `16` |"),
        ("compute.micro_batch", "| whole number ≥ 1, or `null` | `null` |"),
        ("recurrence.split", "| list, each a whole number; 3 of them, or `null` |"),
        ("evaluation.depths", "| list, each a whole number ≥ 1, or `null` |"),
        ("stretch.enabled", "| `true`, `false` | `false` |"),
        ("optim.decay_share", "| number ≥ 0 and ≤ 1 | `1` |"),
        ("optim.decay_share", "| `optim.decay`: `cosine`, `linear` |"),
        ("optim.lr", "| number > 0 | `2e-05` | Peak rate of AdamW. |  |"),
    ],
)
def test_a_row_says_what_is_declared(key, part):
    """Type, range, default, meaning and condition of a setting stand in its row."""
    assert part in row(key, dict(fields(RunConfig))[key])


def test_a_row_that_is_not_there_is_seen():
    """The check above can fail: without its row a setting is missing from the page."""
    page = HEAD + "\n".join(rows()[1:]) + "\n\nMore text."
    assert on_the_page(page) == rows()[1:]

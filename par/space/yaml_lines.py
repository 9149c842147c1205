"""A YAML file whose values know their lines, and the faults found in it."""

import difflib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.reader import ReaderError

from par.errors import SpaceError

T = TypeVar("T")
NEAR = 0.6
"""Least likeness, of 1, at which another spelling is suggested."""
CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")}


class Fault(NamedTuple):
    """What is wrong, and the line where it is, counted from 1. Faults sort by line."""

    line: int
    message: str


Reading = Generator[Fault, None, T]
"""Yields what is wrong with a part of a file, and returns what could be read of it."""


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a YAML file, scalars in dictionaries with text keys and in tuples, and the lines where they are."""

    values: dict[str, Any]
    lines: Mapping[tuple[int | str, ...], int]
    """By keys and places, counted from 0, from the top of the file; of an entry of a mapping the line of its key."""

    def line(self, *place: int | str) -> int:
        """The line of a value; of one that is not in the file, that of the mapping or list which lacks it."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]


def refusal(path: Path, faults: Iterable[Fault]) -> SpaceError:
    """The error that lists every fault once, by line, as ``path:LINE: message``."""
    rows = sorted({Fault(fault.line, " ".join(fault.message.split("\n"))) for fault in faults})
    return SpaceError("\n".join(f"{path}:{line}: {message}" for line, message in rows))


def read_text(path: Path) -> str:
    """The text of the file. Raises SpaceError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as fault:
        line = fault.object.count(b"\n", 0, fault.start) + 1
        raise refusal(path, [Fault(line, "not UTF-8 text: save the file as UTF-8")]) from None
    except OSError as fault:
        raise refusal(path, [Fault(1, f"cannot be read ({fault.strerror}): name a YAML file")]) from None


def accepted(path: Path, reading: Reading[T]) -> T:
    """What a reading returns. Raises one SpaceError for all the faults that it yields."""
    faults: list[Fault] = []
    while True:
        try:
            faults.append(next(reading))
        except StopIteration as end:
            if faults:
                raise refusal(path, faults) from None
            return end.value


def parse_yaml(text: str, path: Path) -> MappingNode:
    """Parse YAML 1.2 (so 1e-5 is a number and ``no`` is text). Raises SpaceError for a text that is no mapping."""
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 1
        reasons = [reason for reason in (fault.context, fault.problem) if reason]
        raise refusal(path, [Fault(line, f"not valid YAML: {', '.join(reasons)}")]) from None
    except ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        message = f"not valid YAML: character #x{fault.character:04x} is not allowed: remove it"
        raise refusal(path, [Fault(line, message)]) from None
    if not isinstance(root, MappingNode):
        what = "empty" if root is None else "not a mapping"
        message = f"the file is {what}: open it with question, backbones and search"
        raise refusal(path, [Fault(1 if root is None else _line(root), message)])
    return root


def read_values(root: MappingNode) -> Reading[Document]:
    """The values under a parsed file, with their lines; of a key that is given twice the first value counts."""
    reader = _ValueReader()
    values = yield from reader.value(root, (), _line(root), ())
    return Document(values, reader.lines)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Ask for the nearest known keys, by the whole key or by its last component; empty if none is near."""
    scores = {key: max(_likeness(word, key), _likeness(_leaf(word), _leaf(key))) for key in known}
    best = max(scores.values(), default=0.0)
    if best < NEAR:
        return ""
    return f"did you mean {' or '.join(key for key, score in scores.items() if score == best)}?"


def _likeness(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio()


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _line(node: Node) -> int:
    return node.start_mark.line + 1


class _ValueReader:
    """Constructs the values of composed nodes, and keeps their lines."""

    def __init__(self) -> None:
        self.lines: dict[tuple[int | str, ...], int] = {}
        self.constructor: Any = YAML(typ="safe", pure=True).constructor

    def value(self, node: Node, place: tuple[int | str, ...], line: int, parents: tuple[Node, ...]) -> Reading[Any]:
        self.lines[place] = line
        if isinstance(node, ScalarNode):
            return self.scalar(node)
        if any(parent is node for parent in parents):
            yield Fault(line, f"alias *{node.anchor} holds itself: write the value out")
            return None
        parents = (*parents, node)
        if isinstance(node, MappingNode):
            return (yield from self.mapping(node, place, parents))
        items: list[Any] = []
        for item in node.value:
            items.append((yield from self.value(item, (*place, len(items)), _line(item), parents)))
        return tuple(items)

    def mapping(
        self, node: MappingNode, place: tuple[int | str, ...], parents: tuple[Node, ...]
    ) -> Reading[dict[str, Any]]:
        entries: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line, key = _line(key_node), key_node.value
            is_first = isinstance(key_node, ScalarNode) and key not in entries
            value = yield from self.value(value_node, (*place, key if is_first else line), line, parents)
            if is_first:
                entries[key] = value
            elif isinstance(key_node, ScalarNode):
                yield Fault(line, f"{key} is given a second time (first at line {self.lines[*place, key]})")
            else:
                yield Fault(line, "a key must be a word, not a list or a mapping")
        return entries

    def scalar(self, node: ScalarNode) -> Any:
        """The value of the node; the text as written where it is a date, or is not what its tag says."""
        if node.tag not in CORE_TAGS:
            return node.value
        try:
            return self.constructor.construct_object(node)
        except (ValueError, KeyError):
            return node.value

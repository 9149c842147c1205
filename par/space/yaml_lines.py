"""A YAML file whose values know their lines, and the faults found in it."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.reader import ReaderError

from par.errors import SpaceError

NEAR = 0.6
"""Least likeness, of 1, at which another spelling is suggested."""
CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")}


class Fault(NamedTuple):
    """What is wrong, and the line where it is, counted from 1. Faults sort by line."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Located:
    """A YAML value and its line, counted from 1: for an entry of a mapping the line of its key.

    ``value`` is a scalar, a list of Located, or a dict of Located under text keys.
    """

    value: Any
    line: int

    def plain(self) -> Any:
        """The value without lines, and with tuples for lists."""
        if isinstance(self.value, dict):
            return {key: entry.plain() for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return tuple(entry.plain() for entry in self.value)
        return self.value


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


def locate(text: str, faults: list[Fault]) -> Located | None:
    """Parse YAML 1.2 (so 1e-5 is a number and ``no`` is text); None for an empty text or one that is not YAML.

    Syntax errors and repeated keys, of which the first counts, are appended to ``faults``.
    """
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 1
        reasons = [reason for reason in (fault.context, fault.problem) if reason]
        faults.append(Fault(line, f"not valid YAML: {', '.join(reasons)}"))
        return None
    except ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        faults.append(Fault(line, f"not valid YAML: character #x{fault.character:04x} is not allowed: remove it"))
        return None
    if root is None:
        faults.append(Fault(1, "the file is empty: open it with question, backbones and search"))
        return None
    return _Locator(faults).value(root, _line(root))


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


class _Locator:
    """Turns composed nodes into Located values."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        self.constructor: Any = YAML(typ="safe", pure=True).constructor
        self.parents: list[Node] = []

    def value(self, node: Node, line: int) -> Located:
        if isinstance(node, ScalarNode):
            return Located(self.scalar(node), line)
        if any(parent is node for parent in self.parents):
            self.faults.append(Fault(line, f"alias *{node.anchor} holds itself: write the value out"))
            return Located(None, line)
        self.parents.append(node)
        held = self.mapping(node) if isinstance(node, MappingNode) else [self.value(v, _line(v)) for v in node.value]
        self.parents.pop()
        return Located(held, line)

    def mapping(self, node: MappingNode) -> dict[str, Located]:
        entries: dict[str, Located] = {}
        for key_node, value_node in node.value:
            line = _line(key_node)
            entry = self.value(value_node, line)
            if not isinstance(key_node, ScalarNode):
                self.faults.append(Fault(line, "a key must be a word, not a list or a mapping"))
            elif key_node.value in entries:
                first = entries[key_node.value].line
                self.faults.append(Fault(line, f"{key_node.value} is given a second time (first at line {first})"))
            else:
                entries[key_node.value] = entry
        return entries

    def scalar(self, node: ScalarNode) -> Any:
        """The value of the node; the text as written where it is a date, or is not what its tag says."""
        if node.tag not in CORE_TAGS:
            return node.value
        try:
            return self.constructor.construct_object(node)
        except (ValueError, KeyError):
            return node.value

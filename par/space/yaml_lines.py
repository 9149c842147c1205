"""A YAML file whose values know their lines, and the faults found in it."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.reader import ReaderError

from par.errors import SpaceError

NEAR = 0.6
"""Least likeness, of 1, at which another spelling is suggested."""
CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")}


class Document:
    """The values of a YAML file, scalars in dictionaries with text keys and in tuples, and what is wrong with them."""

    def __init__(self, text: str, path: Path) -> None:
        """Parse YAML 1.2 (so 1e-5 is a number and ``no`` is text). Raises SpaceError for a text that is no mapping.

        Of a key that is given twice the first value counts; it is a fault, as are keys that are no words.
        """
        self.path = path
        self.faults: set[tuple[int, str]] = set()
        """What is wrong, each with its line."""
        self.lines: dict[tuple[int | str, ...], int] = {}
        """By keys and places, counted from 0, from the top of the file; of an entry of a mapping the line of its key.
        Lines are counted from 1."""
        self._constructor: Any = YAML(typ="safe", pure=True).constructor
        root = self._root(text)
        self.values: dict[str, Any] = self._value(root, (), _line(root), ())

    def line(self, *place: int | str) -> int:
        """The line of a value; of one that is not in the file, that of the mapping or list which lacks it."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]

    def fault(self, message: str, *place: int | str) -> None:
        """Take note of what is wrong with the value at a place."""
        self.faults.add((self.line(*place), " ".join(message.split("\n"))))

    def check(self) -> None:
        """Raise one SpaceError that lists every fault so far, by line, as ``path:LINE: message``."""
        if self.faults:
            raise SpaceError("\n".join(f"{self.path}:{line}: {message}" for line, message in sorted(self.faults)))

    def _root(self, text: str) -> MappingNode:
        try:
            root = YAML(typ="safe", pure=True).compose(text)
        except MarkedYAMLError as fault:
            line = fault.problem_mark.line + 1 if fault.problem_mark else 1
            reasons = [reason for reason in (fault.context, fault.problem) if reason]
            raise _refusal(self.path, line, f"not valid YAML: {', '.join(reasons)}") from None
        except ReaderError as fault:
            line = text.count("\n", 0, fault.position) + 1
            message = f"not valid YAML: character #x{fault.character:04x} is not allowed: remove it"
            raise _refusal(self.path, line, message) from None
        except RecursionError:
            raise _refusal(self.path, 1, "lists or mappings are nested too deeply: a space needs five levels") from None
        if isinstance(root, MappingNode):
            return root
        line, what = (1, "empty") if root is None else (_line(root), "not a mapping")
        raise _refusal(self.path, line, f"the file is {what}: open it with question, backbones and search")

    def _value(self, node: Node, place: tuple[int | str, ...], line: int, parents: tuple[Node, ...]) -> Any:
        self.lines[place] = line
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        if any(parent is node for parent in parents):
            self.fault(f"alias *{node.anchor} holds itself: write the value out", *place)
            return None
        parents = (*parents, node)
        if isinstance(node, MappingNode):
            return self._mapping(node, place, parents)
        return tuple(self._value(item, (*place, at), _line(item), parents) for at, item in enumerate(node.value))

    def _mapping(self, node: MappingNode, place: tuple[int | str, ...], parents: tuple[Node, ...]) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line, key = _line(key_node), key_node.value
            is_first = isinstance(key_node, ScalarNode) and key not in entries
            own = (*place, key if is_first else line)
            value = self._value(value_node, own, line, parents)
            if is_first:
                entries[key] = value
            elif isinstance(key_node, ScalarNode):
                self.fault(f"{key} is given a second time (first at line {self.lines[*place, key]})", *own)
            else:
                self.fault("a key must be a word, not a list or a mapping", *own)
        return entries

    def _scalar(self, node: ScalarNode) -> Any:
        """The value of the node; the text as written where it is a date, or is not what its tag says."""
        if node.tag not in CORE_TAGS:
            return node.value
        try:
            return self._constructor.construct_object(node)
        except (ValueError, LookupError):
            return node.value


def read_text(path: Path) -> str:
    """The text of the file. Raises SpaceError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as fault:
        line = fault.object.count(b"\n", 0, fault.start) + 1
        raise _refusal(path, line, "not UTF-8 text: save the file as UTF-8") from None
    except OSError as fault:
        raise _refusal(path, 1, f"cannot be read ({fault.strerror}): name a YAML file") from None


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


def _refusal(path: Path, line: int, message: str) -> SpaceError:
    return SpaceError(f"{path}:{line}: {' '.join(message.splitlines())}")


def _line(node: Node) -> int:
    return node.start_mark.line + 1

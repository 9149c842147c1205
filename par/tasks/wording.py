"""The sentences of a group word problem, and a tokenizer made of their words alone."""

from collections.abc import Callable, Sequence

from par.errors import DataError
from par.tasks.groups import GroupTask

LETTERS = "ABCDEFGHIJ"
"""Names of the boxes."""
NOUNS = (
    "apple", "ball", "bell", "book", "bottle", "brush", "button", "cake", "camera", "card", "chain", "clock", "coin",
    "cup", "flower", "glass", "hat", "key", "knife", "lamp", "leaf", "map", "mirror", "pen", "phone", "ring", "rope",
    "shell", "shoe", "stone", "ticket", "watch",
)  # fmt: skip
"""The objects; a prompt holds as many of them as boxes."""
YES, NO = " Yes", " No"
WORD_PATTERN = r" ?\w+| ?[^\w\s]+"
"""A token is a word or a mark, with its leading space."""

Encode = Callable[[str], list[int]]
"""Text to token ids, without special tokens."""


def contains(box: int, noun: int) -> str:
    """State what a box holds at the start, without leading space."""
    return f"Box {LETTERS[box]} contains the {NOUNS[noun]}."


def query(box: int) -> str:
    """Ask what a box holds; the answer is a noun with its leading space."""
    return f" Box {LETTERS[box]} contains the"


def operation_sentences(task: GroupTask) -> list[str]:
    """Name each of the task's operations in a sentence with its leading space.

    Where no operation moves more than two boxes all are swaps, the identity a box with itself, in equally many words.
    """
    cycles = [_cycles(operation) for operation in task.operations_KN.tolist()]
    if all(sum(map(len, moved)) <= 2 for moved in cycles):
        return [_swap(*moved[0]) if moved else _swap(0, 0) for moved in cycles]
    return [_moves(moved) for moved in cycles]


def _cycles(operation: Sequence[int]) -> list[list[int]]:
    """Split a permutation into cycles of at least two boxes, each box followed by the one that gets what it held."""
    goal = {source: box for box, source in enumerate(operation)}
    cycles, seen = [], set()
    for first in range(len(operation)):
        cycle, box = [], first
        while box not in seen:
            seen.add(box)
            cycle.append(box)
            box = goal[box]
        if len(cycle) > 1:
            cycles.append(cycle)
    return cycles


def _swap(a: int, b: int) -> str:
    return f" Swap the contents of box {LETTERS[a]} and box {LETTERS[b]}."


def _moves(cycles: list[list[int]]) -> str:
    if not cycles:
        return " Leave the contents of every box."
    legs = [
        f"{LETTERS[source]} to {LETTERS[goal]}"
        for cycle in cycles
        for source, goal in zip(cycle, cycle[1:] + cycle[:1], strict=True)
    ]
    return f" Move the contents of box {', '.join(legs[:-1])} and {legs[-1]}."


def task_vocabulary(task: GroupTask) -> tuple[Encode, int]:
    """Build a word-level tokenizer for backbones that start from random weights: its encode and its number of tokens.

    The same task gives the same ids. Encode raises DataError for text with words that the task does not use.
    """
    from tokenizers import Regex, Tokenizer  # config and study load the tasks without it
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split

    splitter = Split(Regex(WORD_PATTERN), behavior="isolated")
    starts = (contains(box, noun) for box in range(task.boxes) for noun in range(len(NOUNS)))
    pieces = [*starts, *operation_sentences(task), *map(query, range(task.boxes)), YES, NO]
    words = sorted({word for piece in pieces for word, _ in splitter.pre_tokenize_str(piece)})
    known = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(known))
    tokenizer.pre_tokenizer = splitter  # pyright: ignore[reportAttributeAccessIssue]  # missing setter in its stubs

    def encode(text: str) -> list[int]:
        unknown = [word for word, _ in splitter.pre_tokenize_str(text) if word not in known]
        if unknown:
            raise DataError(f"{unknown} are not among the {len(known)} words of task {task.name}: keep to its wording")
        return tokenizer.encode(text, add_special_tokens=False).ids

    return encode, len(words)

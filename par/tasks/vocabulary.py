"""A word-level tokenizer made of a task's own words, for backbones that start from random weights."""

from collections.abc import Callable

from par.errors import DataError
from par.tasks.groups import GroupTask
from par.tasks.wording import NO, NOUNS, YES, contains, operation_sentences, query

Encode = Callable[[str], list[int]]
"""Text to token ids, without special tokens."""

WORD_PATTERN = r" ?\w+| ?[^\w\s]+"
"""A token is a word or a mark, with its leading space."""


def task_vocabulary(task: GroupTask) -> tuple[Encode, int]:
    """Build the task's tokenizer: its encode, and how many tokens it has.

    The same task gives the same ids. Encode raises DataError for text with words that the task does not use.
    """
    from tokenizers import Regex, Tokenizer  # config and study load the tasks without it
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split

    splitter = Split(Regex(WORD_PATTERN), behavior="isolated")
    words = sorted({word for piece in _pieces(task) for word, _ in splitter.pre_tokenize_str(piece)})
    known = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(known))
    tokenizer.pre_tokenizer = splitter  # pyright: ignore[reportAttributeAccessIssue]  # missing setter in its stubs

    def encode(text: str) -> list[int]:
        unknown = [word for word, _ in splitter.pre_tokenize_str(text) if word not in known]
        if unknown:
            raise DataError(f"{unknown} are not among the {len(known)} words of task {task.name}: keep to its wording")
        return tokenizer.encode(text, add_special_tokens=False).ids

    return encode, len(words)


def _pieces(task: GroupTask) -> list[str]:
    """Every piece of text that the task can be worded with."""
    starts = [contains(box, noun) for box in range(task.boxes) for noun in range(len(NOUNS))]
    queries = [query(box) for box in range(task.boxes)]
    return [*starts, *operation_sentences(task), *queries, YES, NO]

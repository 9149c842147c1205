"""Examples as token ids: one token per operation, or sentences for a tokenizer.

Dimension letters: B prompts, P prefix tokens, D operations, J = D + 1 prefix lengths j = 0…D, N boxes and candidates,
L query tokens, S sentences of a prefix, X table rows, W tokens of the longest sentence.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from par.errors import ConfigError, DataError
from par.tasks.groups import GroupTask, states
from par.tasks.streams import EVALUATION_SEED, Examples, Split, examples
from par.tasks.wording import NO, NOUNS, YES, Encode, contains, operation_sentences, query, task_vocabulary


@dataclass(frozen=True, slots=True)
class Prompts:
    """A prefix per prompt, and a query branch for every box and every number of operations; all int64."""

    prefix_BP: np.ndarray
    """Token ids, padded on the right."""
    positions_BP: np.ndarray
    length_B: np.ndarray
    """Tokens of each prefix before its padding."""
    ends_BJ: np.ndarray
    """How many prefix tokens a branch of j operations sees."""
    query_BNL: np.ndarray
    """Token ids of the query of every box; the answer is read at the last one."""
    starts_BJ: np.ndarray
    """Position of the first query token of a branch of j operations; the others follow one apart."""
    candidates_BN: np.ndarray
    """Token id of the object that began in each box."""
    answers_BJN: np.ndarray
    """The candidate that each box holds after j operations."""


class Rendering(Protocol):
    """A way to write examples as tokens."""

    vocabulary_size: int
    yes: int
    no: int

    def render(self, examples: Examples) -> Prompts:
        """Write the examples as prompts."""
        ...


class CompactRendering:
    """One token per operation in the task's own vocabulary; object i always begins in box i.

    Operations lie ``position_spacing`` positions apart, as far as sentences would put them.
    """

    pad = 0
    start = 1

    def __init__(self, task: GroupTask, position_spacing: int) -> None:
        if position_spacing < 1:
            raise ConfigError(
                f"task.position_spacing={position_spacing} is below 1: operations need places of their own"
            )
        self.task = task
        self.position_spacing = position_spacing
        self.operations = self.start + 1
        """Token id of operation 0; box queries and objects follow in the same manner."""
        self.queries = self.operations + len(task.operations_KN)
        self.objects = self.queries + task.boxes
        self.yes = self.objects + task.boxes
        self.no = self.yes + 1
        self.vocabulary_size = self.no + 1

    def render(self, examples: Examples) -> Prompts:
        """Write the examples as prompts, all of length D + 1."""
        B, D = examples.operations_BD.shape
        boxes_BN = np.tile(np.arange(self.task.boxes), (B, 1))
        ends_BJ = np.tile(np.arange(1, D + 2), (B, 1))
        return Prompts(
            prefix_BP=np.pad(examples.operations_BD + self.operations, ((0, 0), (1, 0)), constant_values=self.start),
            positions_BP=(ends_BJ - 1) * self.position_spacing,
            length_B=np.full(B, D + 1),
            ends_BJ=ends_BJ,
            query_BNL=boxes_BN[:, :, None] + self.queries,
            starts_BJ=ends_BJ * self.position_spacing,
            candidates_BN=boxes_BN + self.objects,
            answers_BJN=states(self.task, examples.operations_BD),
        )


class TextRendering:
    """Sentences for a tokenizer: what every box contains, one sentence per operation, then the query.

    Raises DataError if an answer is not one token, if box names take unequal numbers of tokens, or if the tokenizer
    encodes a prompt otherwise than sentence by sentence.
    """

    pad = 0
    """Fills the prefix on the right; never attended to."""

    def __init__(self, task: GroupTask, encode: Encode, vocabulary_size: int) -> None:
        ids = check_single_tokens(encode)
        self.task = task
        self.vocabulary_size = vocabulary_size
        self.yes, self.no = ids[YES], ids[NO]
        self._noun_ids = np.array([ids[f" {noun}"] for noun in NOUNS])
        self._query_NL = _encode_queries(task, encode)
        starts = [contains(box, noun) for box in range(task.boxes) for noun in range(len(NOUNS))]
        self._sentences = [*starts, *(f" {start}" for start in starts), *operation_sentences(task)]
        self._tokens_XW, self._lengths_X = _encode_table(self._sentences, encode)
        self._check_joints(encode)

    def render(self, examples: Examples) -> Prompts:
        """Write the examples as prompts, padded to the longest."""
        N = self.task.boxes
        rows_BS = self._rows(examples)
        lengths_BS = self._lengths_X[rows_BS]
        ends_BJ = lengths_BS.cumsum(axis=1)[:, N - 1 :]
        prefix_BP = self._join(rows_BS, lengths_BS)
        B, P = prefix_BP.shape
        return Prompts(
            prefix_BP=prefix_BP,
            positions_BP=np.tile(np.arange(P), (B, 1)),
            length_B=ends_BJ[:, -1],
            ends_BJ=ends_BJ,
            query_BNL=np.tile(self._query_NL, (B, 1, 1)),
            starts_BJ=ends_BJ.copy(),
            candidates_BN=self._noun_ids[examples.nouns_BN],
            answers_BJN=states(self.task, examples.operations_BD),
        )

    def text(self, examples: Examples) -> list[str]:
        """Write the prefixes as text; the query of a box follows without a further space."""
        return ["".join(self._sentences[row] for row in rows) for rows in self._rows(examples).tolist()]

    def _rows(self, examples: Examples) -> np.ndarray:
        """Which sentences make up each prefix, as rows of the table: (B, S)."""
        starts = self.task.boxes * len(NOUNS)
        nouns_BN = np.take_along_axis(examples.nouns_BN, examples.order_BN, axis=1)
        contains_BN = examples.order_BN * len(NOUNS) + nouns_BN
        contains_BN[:, 1:] += starts
        return np.concatenate([contains_BN, examples.operations_BD + 2 * starts], axis=1)

    def _join(self, rows_BS: np.ndarray, lengths_BS: np.ndarray) -> np.ndarray:
        """Lay the tokens of the sentences end to end: (B, P)."""
        length_B = lengths_BS.sum(axis=1)
        P, W = length_B.max(initial=0), self._tokens_XW.shape[1]
        prefix_BP = np.full((len(rows_BS), P), self.pad, dtype=np.int64)
        prefix_BP[np.arange(P) < length_B[:, None]] = self._tokens_XW[rows_BS][np.arange(W) < lengths_BS[..., None]]
        return prefix_BP

    def _check_joints(self, encode: Encode) -> None:
        probe = examples(self.task, seed=EVALUATION_SEED, split=Split.TEST, indices=[0], depth=2)
        prompts = self.render(probe)
        whole = encode(f"{self.text(probe)[0]}{query(0)} {NOUNS[probe.nouns_BN[0, 0]]}")
        pieces = [*prompts.prefix_BP[0], *prompts.query_BNL[0, 0], prompts.candidates_BN[0, 0]]
        if whole != pieces:
            raise DataError(
                f"the tokenizer encodes a prompt of task {self.task.name} into {len(whole)} tokens, its sentences and "
                f"query into {len(pieces)} others: use a tokenizer whose words carry their leading space"
            )


def check_single_tokens(encode: Encode) -> dict[str, int]:
    """Map every possible answer, with its leading space, to its token id.

    Raises DataError that lists all answers of more or less than one token, and all that share an id.
    """
    tokens = {answer: encode(answer) for answer in (*(f" {noun}" for noun in NOUNS), YES, NO)}
    faults = [f"{answer!r} has {len(ids)} tokens" for answer, ids in tokens.items() if len(ids) != 1]
    single = {answer: ids[0] for answer, ids in tokens.items() if len(ids) == 1}
    owners: dict[int, str] = {}
    for answer, number in single.items():
        if owners.setdefault(number, answer) != answer:
            faults.append(f"{answer!r} has 1 token, {number}, the same as {owners[number]!r}")
    if faults:
        raise DataError(
            f"{len(faults)} of {len(tokens)} answers are not one distinct token each: {', '.join(faults)}; "
            "use another tokenizer, or other words in par/tasks/wording.py"
        )
    return single


def _encode_queries(task: GroupTask, encode: Encode) -> np.ndarray:
    queries = {query(box): encode(query(box)) for box in range(task.boxes)}
    if len({len(ids) for ids in queries.values()}) != 1:
        counts = ", ".join(f"{text!r} has {len(ids)} tokens" for text, ids in queries.items())
        raise DataError(
            f"the box queries must have equally many tokens: {counts}; use fewer boxes or another tokenizer"
        )
    return np.array(list(queries.values()), dtype=np.int64)


def _encode_table(sentences: list[str], encode: Encode) -> tuple[np.ndarray, np.ndarray]:
    """Encode each distinct sentence once: ids (X, W), filled up with zeros, and lengths (X,)."""
    ids = [encode(sentence) for sentence in sentences]
    lengths_X = np.array([len(row) for row in ids])
    tokens_XW = np.zeros((len(ids), lengths_X.max()), dtype=np.int64)
    for row, tokens in zip(tokens_XW, ids, strict=True):
        row[: len(tokens)] = tokens
    return tokens_XW, lengths_X


def open_rendering(task: GroupTask, rendering: str, position_spacing: int, tokenizer: Any = None) -> Rendering:
    """Choose the rendering ``compact`` or ``text``; text without a tokenizer uses the task's own words.

    ``tokenizer`` is a transformers tokenizer; ``position_spacing`` concerns the compact rendering only.
    """
    if rendering == "compact":
        return CompactRendering(task, position_spacing)
    if rendering != "text":
        raise ConfigError(f"task.rendering={rendering} is not known: use text or compact")
    if tokenizer is None:
        return TextRendering(task, *task_vocabulary(task))
    return TextRendering(task, lambda text: tokenizer.encode(text, add_special_tokens=False), len(tokenizer))

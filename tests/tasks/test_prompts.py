"""Prompts read back by a plain reader that knows the wording and nothing of the code."""

import re
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from par.errors import ConfigError, DataError
from par.tasks.groups import parse_task, states
from par.tasks.prompts import CompactRendering, Prompts, TextRendering, check_single_tokens, open_rendering
from par.tasks.streams import Examples, Split, examples
from par.tasks.wording import NOUNS, task_vocabulary

NAMES = ["swap-s3", "swap-s5", "s5", "a5", "s4-full", "s5-full", "a10"]


def draw(name: str, indices: Sequence[int] = range(4), depth: int = 5) -> Examples:
    return examples(parse_task(name), seed=1, split=Split.TRAIN, indices=indices, depth=depth)


def train_bpe(text: str, size: int) -> Tokenizer:
    """Train a byte-level BPE that splits words as the pretrained tokenizers do."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    alphabet = ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def full_corpus() -> str:
    words = [f" {noun}" for noun in NOUNS] + [" Yes", " No"]
    sentences = " Swap the contents of box to and Move Leave every Box contains. Box contains the, the"
    return "".join(words) + sentences + "".join(f" {letter} {letter}." for letter in "ABCDEFGHIJ")


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train_bpe(full_corpus() * 50, 600)


class Pretrained:
    """What the model library's tokenizers offer: they add a special token unless told not to."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + self.tokenizer.encode(text).ids


def read_answer(text: str) -> str:
    """Follow the sentences of a prompt by hand; the noun that its query asks for."""
    held: dict[str, str] = {}
    *sentences, asked = text.split(".")
    for number, sentence in enumerate(sentences):
        assert sentence.startswith(" ") == (number > 0)
        if start := re.fullmatch(r" ?Box ([A-J]) contains the (\w+)", sentence):
            held[start[1]] = start[2]
        elif swap := re.fullmatch(r" Swap the contents of box ([A-J]) and box ([A-J])", sentence):
            held[swap[1]], held[swap[2]] = held[swap[2]], held[swap[1]]
        elif sentence.startswith(" Move the contents of box "):
            legs = re.findall(r"([A-J]) to ([A-J])", sentence)
            held |= {goal: held[source] for source, goal in legs}
        else:
            assert sentence == " Leave the contents of every box"
    question = re.fullmatch(r" Box ([A-J]) contains the", asked)
    assert question
    return held[question[1]]


def branches(prompts: Prompts):
    """Yield (prompt, operations j, box, tokens of the separate prompt, token of its answer) for every branch."""
    for b, j in np.ndindex(prompts.ends_BJ.shape):
        prefix = prompts.prefix_BP[b, : prompts.ends_BJ[b, j]].tolist()
        for box, query in enumerate(prompts.query_BNL[b].tolist()):
            yield b, j, box, prefix + query, prompts.candidates_BN[b, prompts.answers_BJN[b, j, box]]


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(NAMES), index=st.integers(0, 10**6), depth=st.integers(0, 6))
def test_a_reader_of_the_text_gives_the_answer_of_every_branch(bpe, name, index, depth):
    """Decoded and followed sentence by sentence, each branch's text leads to the noun that the prompt calls right."""
    rendering = open_rendering(parse_task(name), "text", 3, Pretrained(bpe))
    prompts = rendering.render(draw(name, [index, index + 1], depth))
    for *_, tokens, answer in branches(prompts):
        assert f" {read_answer(bpe.decode(tokens))}" == bpe.decode([int(answer)])


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(NAMES), index=st.integers(0, 10**6), depth=st.integers(0, 6))
def test_a_reader_of_the_compact_tokens_gives_the_answer_of_every_branch(name, index, depth):
    """With ids counted as start, operations, queries, objects, each branch leads to the object called right."""
    task = parse_task(name)
    operations, boxes = task.operations_KN.tolist(), task.boxes
    prompts = CompactRendering(task, 3).render(draw(name, [index, index + 1], depth))
    for *_, (start, *applied, asked), answer in branches(prompts):
        held = list(range(boxes))
        for token in applied:
            held = [held[source] for source in operations[token - 2]]
        assert start == 1
        assert answer == 2 + len(operations) + boxes + held[asked - 2 - len(operations)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("own", [True, False], ids=["own-words", "bpe"])
def test_sentence_by_sentence_equals_the_whole_prompt_at_once(bpe, name, own):
    """Every prefix with its query, encoded as one string, gives the ids that the pieces give."""
    task, batch = parse_task(name), draw(name)
    encode, size = task_vocabulary(task) if own else (lambda text: bpe.encode(text).ids, bpe.get_vocab_size())
    rendering = TextRendering(task, encode, size)
    prompts = rendering.render(batch)
    for b, text in enumerate(rendering.text(batch)):
        prefix = prompts.prefix_BP[b, : prompts.length_B[b]].tolist()
        assert encode(text) == prefix
        for box in range(task.boxes):
            asked = f"{text} Box {'ABCDEFGHIJ'[box]} contains the"
            assert encode(asked) == prefix + prompts.query_BNL[b, box].tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["text", "compact"])
def test_prompts_fit_together(name, kind):
    """Shapes follow the letters, all is int64, ids lie in the vocabulary, answers are the states."""
    task, batch = parse_task(name), draw(name)
    rendering = open_rendering(task, kind, 4)
    prompts = rendering.render(batch)
    B, P = prompts.prefix_BP.shape
    N, J, L = task.boxes, 6, prompts.query_BNL.shape[2]
    shapes = {
        "positions_BP": (B, P), "length_B": (B,), "ends_BJ": (B, J), "query_BNL": (B, N, L), "starts_BJ": (B, J),
        "candidates_BN": (B, N), "answers_BJN": (B, J, N),
    }  # fmt: skip
    assert {field: getattr(prompts, field).shape for field in shapes} == shapes
    assert all(getattr(prompts, field).dtype == np.int64 for field in (*shapes, "prefix_BP"))
    for ids in (prompts.prefix_BP, prompts.query_BNL, prompts.candidates_BN, np.array([rendering.yes, rendering.no])):
        assert 0 <= ids.min() <= ids.max() < rendering.vocabulary_size
    answers = {rendering.yes, rendering.no, *prompts.candidates_BN[0].tolist()}
    assert len(answers) == N + 2
    assert np.array_equal(prompts.answers_BJN, states(task, batch.operations_BD))
    assert np.array_equal(prompts.ends_BJ[:, -1], prompts.length_B)
    assert prompts.length_B.max() == P


@pytest.mark.parametrize("spacing", [1, 3])
def test_compact_positions_lie_a_spacing_apart(spacing):
    """Operation j sits at s·j, and the query after j operations where the next operation would."""
    prompts = CompactRendering(parse_task("swap-s3"), spacing).render(draw("swap-s3", [0, 1], 3))
    assert prompts.positions_BP.tolist() == [[0, spacing, 2 * spacing, 3 * spacing]] * 2
    assert prompts.starts_BJ.tolist() == [[spacing, 2 * spacing, 3 * spacing, 4 * spacing]] * 2


@pytest.mark.parametrize("name", NAMES)
def test_text_positions_are_those_of_a_prompt_of_its_own(name):
    """Prefix tokens count up from 0; the query of j operations starts right after what it sees."""
    prompts = open_rendering(parse_task(name), "text", 3).render(draw(name))
    assert (prompts.positions_BP == np.arange(prompts.prefix_BP.shape[1])).all()
    assert np.array_equal(prompts.starts_BJ, prompts.ends_BJ)


@pytest.mark.parametrize("name", ["swap-s3", "swap-s10", "s5", "a5", "a10"])
def test_equal_depths_need_no_padding(name):
    """Sentences of one task, the identity's too, have equally many tokens; swaps have ten."""
    prompts = open_rendering(parse_task(name), "text", 3).render(draw(name, range(30)))
    assert len(set(prompts.length_B.tolist())) == 1
    steps = set(np.diff(prompts.ends_BJ, axis=1).ravel().tolist())
    assert len(steps) == 1
    assert steps == {10} or name.startswith("a")


def test_unequal_sentences_are_padded_on_the_right():
    """sN-full: a short prompt in a batch is what it is alone, then padding; its branches do not move."""
    batch = draw("s5-full", range(12))
    rendering = open_rendering(batch.task, "text", 3)
    prompts = rendering.render(batch)
    assert len(set(prompts.length_B.tolist())) > 1
    for b in range(12):
        alone = rendering.render(draw("s5-full", [b]))
        length = prompts.length_B[b]
        assert prompts.prefix_BP[b, :length].tolist() == alone.prefix_BP[0].tolist()
        assert not prompts.prefix_BP[b, length:].any()
        assert np.array_equal(prompts.ends_BJ[b], alone.ends_BJ[0])


def test_the_tokenizer_check_lists_every_offender():
    """Nouns that a small BPE splits are all listed with their token counts, and no other answer is."""
    kept = [f" {noun}" for noun in NOUNS[3:]] + [" No"]
    tokenizer = train_bpe("".join(kept) * 50, 256 + 400)
    with pytest.raises(DataError) as fault:
        check_single_tokens(lambda text: tokenizer.encode(text).ids)
    for answer in (*(f" {noun}" for noun in NOUNS), " Yes", " No"):
        tokens = len(tokenizer.encode(answer).ids)
        assert (tokens == 1) == (answer in kept)
        assert (f"{answer!r} has {tokens} tokens" in str(fault.value)) == (answer not in kept)
    assert "4 of 34 answers" in str(fault.value)
    with pytest.raises(DataError, match="4 of 34"):
        open_rendering(parse_task("swap-s5"), "text", 3, Pretrained(tokenizer))


def test_answers_of_one_id_are_offenders(bpe):
    """Yes and No, or two nouns, that a tokenizer cannot tell apart are listed together."""

    def blur(text: str) -> list[int]:
        return bpe.encode(text.replace("Yes", "No").replace("ball", "apple")).ids

    with pytest.raises(DataError, match=r"2 of 34 .*' ball' has 1 token.*' apple'.*' No' has 1 token.*' Yes'"):
        check_single_tokens(blur)


def test_a_tokenizer_that_reads_across_sentences_is_refused(bpe):
    """If sentences encode otherwise apart than together, nothing is rendered."""
    with pytest.raises(DataError, match="leading space"):
        TextRendering(parse_task("s3"), lambda text: bpe.encode(text.replace(". Box", ".Box")).ids, 600)


def test_box_names_of_unequal_length_are_refused(bpe):
    """A tokenizer that needs more tokens for one box name is refused with all counts."""
    with pytest.raises(DataError, match=r"' Box A contains the' has 4 tokens, ' Box B contains the' has 5 tokens"):
        TextRendering(parse_task("s3"), lambda text: bpe.encode(text.replace(" B ", " B B ")).ids, 600)


def test_own_words_are_few_stable_and_strict():
    """The task's tokenizer has the same ids in every process, all below its size, and names a word it lacks."""
    task = parse_task("swap-s3")
    encode, size = task_vocabulary(task)
    text = "Box A contains the apple. Swap the contents of box A and box C. Box C contains the"
    assert encode(" Box A contains the") == [2, 0, 22, 42]
    assert max(encode(text)) < size < 60
    assert len(encode(text)) == 6 + 10 + 4
    for unknown in (" Box D contains the", " Swop", "apple", "Box A  contains"):
        with pytest.raises(DataError, match="not among the"):
            encode(unknown)


def test_an_unknown_rendering_or_spacing_is_refused():
    """The message names the setting and its value."""
    with pytest.raises(ConfigError, match="rendering=verse"):
        open_rendering(parse_task("s3"), "verse", 3)
    with pytest.raises(ConfigError, match="position_spacing=0"):
        open_rendering(parse_task("s3"), "compact", 0)


def test_rendering_is_no_burden():
    """64 prompts of 16 operations are written in a few milliseconds."""
    batch = draw("s5-full", range(64), 16)
    rendering = open_rendering(batch.task, "text", 3)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        rendering.render(batch)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 5e-3

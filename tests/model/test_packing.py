"""A packed branch is the problem that it would be in a prompt of its own."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel

from par.model.attention import PrefixAndBranches
from par.model.context import Context
from par.model.looped import LoopedModel
from par.model.packing import Branches, Layout, Packed, pack
from par.model.recurrence import Iterations
from par.tasks.groups import GroupTask, parse_task
from par.tasks.prompts import Prompts, Rendering, open_rendering
from par.tasks.streams import Split, examples
from tests.model.visible import visible_BTT

NAMES = ("swap-s3", "a4", "s4-full")
"""In text, operations of s4-full differ in length, so that its prompts are padded."""


@cache
def wording(name: str, rendering: str) -> Rendering:
    return open_rendering(parse_task(name), rendering, 3)


@pytest.fixture(scope="module")
def model(parent: Callable[..., PreTrainedModel]) -> Callable[..., LoopedModel]:
    """Build the looped model for a rendering, once."""

    @cache
    def build(rendering: Rendering, family: str = "qwen2", anchor: bool = True) -> LoopedModel:
        return LoopedModel(parent(family, rendering.vocabulary_size), anchor=anchor).requires_grad_(False)

    return build


def prompts_of(task: GroupTask, rendering: Rendering, indices: list[int], depth: int) -> Prompts:
    return rendering.render(examples(task, seed=3, split=Split.TRAIN, indices=indices, depth=depth))


def single(ids_1T: Tensor, positions_1T: Tensor, candidates_1C: Tensor) -> Packed:
    """A prompt by itself: causal attention throughout, the answer at its last token."""
    T = ids_1T.shape[1]
    return Packed(
        ids_BT=ids_1T,
        positions_BT=positions_1T.float(),
        real_BT=torch.ones(1, T, dtype=torch.bool),
        candidates_BC=candidates_1C,
        layout=Layout(T - 1, 1, torch.tensor([[T - 1]])),
    )


@st.composite
def questions(draw) -> tuple[str, str, int, list[int], list[int], list[int]]:
    """A task, a rendering, a depth, examples, and for each branch its number of operations and its box."""
    name, depth = draw(st.sampled_from(NAMES)), draw(st.integers(1, 6))
    indices = draw(st.lists(st.integers(0, 99), min_size=1, max_size=3))
    branches = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(0, depth), min_size=branches, max_size=branches))
    boxes = draw(st.lists(st.integers(0, parse_task(name).boxes - 1), min_size=branches, max_size=branches))
    return name, draw(st.sampled_from(["text", "compact"])), depth, indices, lengths, boxes


@settings(max_examples=60, deadline=None)
@given(asked=questions(), count=st.integers(1, 5), anchor=st.booleans(), family=st.sampled_from(["qwen2", "qwen3"]))
def test_packed_questions_are_separate_prompts(model, question, asked, count, anchor, family):
    """Every branch has, after each iteration, the logits of its question alone on a prompt of its own operations.

    Whatever the task, wording, padding, prefix length, box, number of iterations, and with or without anchoring.
    """
    name, rendering, depth, indices, lengths, boxes = asked
    task, words = parse_task(name), wording(name, rendering)
    looped = model(words, family, anchor)
    plan = Iterations(count=count, keep=tuple(range(1, count + 1)))
    branches = Branches(np.tile(lengths, (len(indices), 1)), np.tile(boxes, (len(indices), 1)))
    together_KBNC, _ = looped(pack(prompts_of(task, words, indices, depth), branches), plan)
    for b, index in enumerate(indices):
        for n, (length, box) in enumerate(zip(lengths, boxes, strict=True)):
            alone_KBNC, _ = looped(single(*question(task, words, index, length, box)), plan)
            torch.testing.assert_close(together_KBNC[:, b, n], alone_KBNC[:, 0, 0], atol=1e-5, rtol=1e-5)


def test_padding_changes_nothing(model):
    """Prompts of unequal length have, in one padded batch, the logits and the drift that each has alone."""
    task, words = parse_task("s4-full"), wording("s4-full", "text")
    indices = list(range(6))
    plan = Iterations(count=4, keep=(1, 4))

    def ask(rows: list[int]) -> tuple[Tensor, Tensor, Prompts]:
        prompts = prompts_of(task, words, rows, 5)
        branches = Branches.all_boxes(np.tile([2, 5], (len(rows), 1)), task.boxes)
        return *model(words)(pack(prompts, branches), plan), prompts

    together_KBNC, drift, prompts = ask(indices)
    assert len(set(prompts.length_B)) > 1, "this batch needs no padding"
    for b, index in enumerate(indices):
        alone_KBNC, _, _ = ask([index])
        torch.testing.assert_close(together_KBNC[:, b : b + 1], alone_KBNC, atol=1e-5, rtol=1e-5)
    tokens_B = prompts.length_B + 2 * task.boxes * prompts.query_BNL.shape[-1]
    drifts_B = np.array([ask([index])[1].item() for index in indices])
    assert drift.item() == pytest.approx((drifts_B * tokens_B).sum() / tokens_B.sum(), rel=1e-5)


def states(looped: LoopedModel, batch: Packed, hidden_BTH: Tensor, count: int = 3) -> Tensor:
    """The states (B, T, H) after the last iteration, from the embeddings."""
    context = Context(*looped.rotary(hidden_BTH, batch.positions_BT), batch.layout, "split")
    plan = Iterations(count=count, keep=(count,), window=count)
    return looped.recurrence(context.apply(looped.prelude, hidden_BTH), context, batch.real_BT, plan)[0][0]


@pytest.mark.parametrize("rendering", ["text", "compact"])
def test_a_state_depends_on_nothing_later_and_on_no_other_branch(model, rendering):
    """Its gradient is exactly zero for every embedding but those before it in the prefix and in its own branch."""
    task, words = parse_task("swap-s3"), wording("swap-s3", rendering)
    prompts = prompts_of(task, words, [0], 3)
    lengths, boxes = [3, 1, 0, 1], [0, 1, 1, 2]
    batch, looped = pack(prompts, Branches(np.array([lengths]), np.array([boxes]))), model(words)
    P, L = int(prompts.length_B[0]), prompts.query_BNL.shape[-1]
    T = P + len(lengths) * L
    hidden_BTH = looped.embed(batch.ids_BT).requires_grad_()
    states_TH = states(looped, batch, hidden_BTH)[0]
    for t in range(T):
        (grad_BTH,) = torch.autograd.grad(states_TH[t].sum(), hidden_BTH, retain_graph=True)
        branch, place = divmod(t - P, L)
        seen = range(t + 1) if t < P else [*range(prompts.ends_BJ[0, lengths[branch]]), *range(t - place, t + 1)]
        assert grad_BTH[0].abs().sum(-1).nonzero().flatten().tolist() == list(seen)


@pytest.mark.parametrize("rendering", ["text", "compact"])
def test_a_later_operation_changes_no_bit_before_it(model, rendering):
    """With another last operation, all states before it and all branches of shorter prefixes are the same bits."""
    task, words = parse_task("swap-s3"), wording("swap-s3", rendering)
    prompts = prompts_of(task, words, [0], 4)
    batch, looped = pack(prompts, Branches.all_boxes(np.array([[4, 3, 1]]), task.boxes)), model(words)
    start, end = prompts.ends_BJ[0, 3], prompts.ends_BJ[0, 4]
    before_TH = states(looped, batch, looped.embed(batch.ids_BT))[0]
    hidden_BTH = looped.embed(batch.ids_BT)
    hidden_BTH[0, start:end] += 1
    after_TH = states(looped, batch, hidden_BTH)[0]
    branch = 3 * prompts.query_BNL.shape[-1]
    changed = (before_TH != after_TH).any(-1).nonzero().flatten().tolist()
    assert changed == [*range(start, end), *range(end, end + branch)]


def stretched_prompt() -> Packed:
    """One question of five operations at positions 0, 9, 18 ..."""
    prompts = prompts_of(parse_task("swap-s3"), wording("swap-s3", "compact"), [0], 5)
    return pack(prompts, Branches(np.array([[5]]), np.array([[1]]))).stretched(3)


def with_mask(original: PreTrainedModel, batch: Packed, visible_TT: Tensor | None) -> Tensor:
    """The parent's logits (C) of the candidates at the last token; None passes no mask at all."""
    mask = None if visible_TT is None else torch.where(visible_TT, 0.0, torch.finfo(torch.float32).min)[None, None]
    ids, positions = batch.ids_BT, batch.positions_BT
    logits = original(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False).logits
    return logits[0, -1, batch.candidates_BC[0]]


@torch.no_grad()
def test_stretched_positions_keep_their_attention(parent):
    """At positions x 3 the model attends as the parent with an explicit causal mask does, not each token to itself."""
    batch = stretched_prompt()
    T = batch.ids_BT.shape[1]
    assert torch.equal(batch.positions_BT, 9 * torch.arange(T)[None].float())
    original = parent("qwen2", wording("swap-s3", "compact").vocabulary_size)
    causal_C = with_mask(original, batch, torch.ones(T, T, dtype=torch.bool).tril())
    self_only_C = with_mask(original, batch, torch.eye(T, dtype=torch.bool))
    logits_KBNC, _ = LoopedModel(original)(batch, Iterations(count=1, keep=(1,)))
    torch.testing.assert_close(logits_KBNC[0, 0, 0], causal_C, atol=1e-5, rtol=0)
    assert not torch.allclose(causal_C, self_only_C, atol=1e-2)


@torch.no_grad()
def test_the_library_takes_stretched_positions_for_packed_sequences(parent):
    """The trap that the explicit mask avoids: without one, positions that step by 3 leave each token with itself.

    Should this fail after an update of the model library, the trap is gone and the mask may become optional.
    """
    batch = stretched_prompt()
    original = parent("qwen2", wording("swap-s3", "compact").vocabulary_size)
    self_only_C = with_mask(original, batch, torch.eye(batch.ids_BT.shape[1], dtype=torch.bool))
    torch.testing.assert_close(with_mask(original, batch, None), self_only_C, atol=1e-5, rtol=0)


def test_the_mask_is_explicit_and_leaves_no_row_empty():
    """The branches' additive mask is 0 where visible and the least number elsewhere, and each row sees itself."""
    prompts = prompts_of(parse_task("s4-full"), wording("s4-full", "text"), [0, 1, 2], 5)
    batch = pack(prompts, Branches.all_boxes(np.full((3, 1), 5), 4))
    visible_BQT = visible_BTT(batch.layout)[:, batch.layout.prefix_tokens :]
    assert torch.equal(batch.layout.visible_BQT(), visible_BQT)
    assert visible_BQT.diagonal(batch.layout.prefix_tokens, dim1=1, dim2=2).all()
    for dtype in (torch.float32, torch.bfloat16):
        mask_BQT = PrefixAndBranches.of(batch.layout, dtype).mask_B1QT[:, 0]
        assert mask_BQT.dtype == dtype
        assert torch.equal(mask_BQT == 0, visible_BQT)
        assert (mask_BQT[~visible_BQT] == torch.finfo(dtype).min).all()


def test_real_tokens_are_all_but_the_padding():
    """Padding lies between a prompt's prefix and its branches, and only there."""
    prompts = prompts_of(parse_task("s4-full"), wording("s4-full", "text"), list(range(4)), 5)
    batch = pack(prompts, Branches.all_boxes(np.full((4, 1), 5), 4))
    P = batch.layout.prefix_tokens
    assert batch.real_BT[:, :P].sum(1).tolist() == prompts.length_B.tolist()
    assert all(batch.real_BT[b, : prompts.length_B[b]].all() for b in range(4))
    assert batch.real_BT[:, P:].all()


@settings(max_examples=30, deadline=None)
@given(depth=st.integers(1, 8), completed=st.integers(0, 12), data=st.data())
def test_targets_stop_at_the_branchs_own_end(depth, completed, data):
    """A branch's target is what its box holds after ``completed`` operations, at most its own, composed plainly."""
    task = parse_task("s4")
    drawn = examples(task, seed=3, split=Split.TRAIN, indices=[0, 1], depth=depth)
    prompts = wording("s4", "compact").render(drawn)
    lengths_BN = np.array(data.draw(st.lists(st.integers(0, depth), min_size=6, max_size=6))).reshape(2, 3)
    boxes_BN = np.array([[0, 3, 1], [2, 2, 0]])
    targets_BN = Branches(lengths_BN, boxes_BN).targets(prompts, completed)
    for b, n in np.ndindex(2, 3):
        held = list(range(task.boxes))
        for operation in drawn.operations_BD[b][: min(completed, lengths_BN[b, n])]:
            held = [held[source] for source in task.operations_KN[operation]]
        assert targets_BN[b, n] == held[boxes_BN[b, n]]


def test_all_boxes_of_a_length_are_neighbours():
    """Every prefix length is asked for every box, length by length."""
    branches = Branches.all_boxes(np.array([[4, 1], [2, 2]]), 3)
    assert branches.operations_BN.tolist() == [[4, 4, 4, 1, 1, 1], [2, 2, 2, 2, 2, 2]]
    assert branches.boxes_BN.tolist() == [[0, 1, 2, 0, 1, 2]] * 2


def test_extra_candidates_follow_the_prompts_own():
    """Yes and No are the last candidates of every prompt."""
    prompts = prompts_of(parse_task("swap-s3"), wording("swap-s3", "text"), [0, 1], 2)
    asked = Branches.all_boxes(np.full((2, 1), 2), 3)
    assert pack(prompts, asked, (5, 6)).candidates_BC.tolist() == [[*row, 5, 6] for row in prompts.candidates_BN]


@pytest.mark.parametrize("rendering", ["text", "compact"])
def test_a_chosen_branch_is_all_its_tokens(rendering):
    """A boolean per branch becomes one per token of the branch, and False on the whole prefix."""
    prompts = prompts_of(parse_task("swap-s3"), wording("swap-s3", rendering), [0, 1], 2)
    batch = pack(prompts, Branches.all_boxes(np.full((2, 1), 2), 3))
    chosen_BN = torch.tensor([[True, False, True], [False, False, True]])
    L = prompts.query_BNL.shape[-1]
    wanted = [[False] * batch.layout.prefix_tokens + [c for c in row for _ in range(L)] for row in chosen_BN.tolist()]
    assert batch.layout.spread(chosen_BN).tolist() == wanted
    assert torch.equal(batch.layout.spread(chosen_BN.expand(4, 2, 3))[3], torch.tensor(wanted))

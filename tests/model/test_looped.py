"""The looped model against its unmodified parent, and against the recurrence written out plainly."""

from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear
from transformers import PreTrainedModel

from par.config.backbones import BACKBONES
from par.model.build import random_parent
from par.model.context import Context
from par.model.looped import LoopedModel
from par.model.packing import Branches, Packed, pack
from par.model.reading import AtIterations, OwnIteration
from par.model.recurrence import Iterations
from par.tasks.groups import parse_task
from par.tasks.prompts import open_rendering
from par.tasks.streams import Split, examples
from tests.model.visible import answer_rows, visible_BTT

TASK = parse_task("swap-s3")
COMPACT = open_rendering(TASK, "compact", 3)
DEPTH = 4


def packed(rendering=COMPACT, *, indices=(0, 1), operations=(DEPTH,)) -> Packed:
    """Prompts of DEPTH operations that are asked for every box after each of ``operations``."""
    drawn = examples(TASK, seed=3, split=Split.TRAIN, indices=list(indices), depth=DEPTH)
    lengths_BP = torch.tensor(operations).expand(len(indices), -1).numpy()
    return pack(rendering.render(drawn), Branches.all_boxes(lengths_BP, TASK.boxes))


def every(count: int, window: int = 0, reset: Tensor | None = None) -> Iterations:
    return Iterations(count=count, keep=tuple(range(1, count + 1)), window=window, reset=reset)


@dataclass
class PlainLoop:
    """The recurrence written out on the parent's modules, cut 1/1/1, with autograd over the last iterations."""

    parent: PreTrainedModel
    adapter: Tensor
    anchor: bool

    def __call__(self, batch: Packed, *, count: int, window: int, reset_RBT: Tensor | None = None) -> list[Tensor]:
        """Logits (B, N, C) after each iteration; rows that are reset start theirs from e."""
        decoder = self.parent.model
        prelude, core, coda = decoder.layers
        h_BTH = decoder.embed_tokens(batch.ids_BT)
        context = {
            "attention_mask": torch.where(visible_BTT(batch.layout), 0.0, -torch.inf).unsqueeze(1),
            "position_embeddings": decoder.rotary_emb(h_BTH, batch.positions_BT),
        }
        e_BTH = prelude(h_BTH, **context)
        state_BTH, logits = e_BTH, []
        for k in range(1, count + 1):
            if k > 1 and k == count - window + 1:
                state_BTH = state_BTH.detach()
            if reset_RBT is not None:
                state_BTH = torch.where(reset_RBT[k - 1].unsqueeze(-1), e_BTH, state_BTH)
            state_BTH = core(linear(torch.cat([e_BTH, state_BTH], dim=-1), self.adapter), **context)
            rms_BT1 = state_BTH.square().mean(-1, keepdim=True).sqrt()
            if k == 1:
                anchor_BT1 = rms_BT1.detach()
            elif self.anchor:
                state_BTH = state_BTH * anchor_BT1 / rms_BT1
            full_BTV = self.parent.lm_head(decoder.norm(coda(state_BTH, **context)))
            asked_BNV = full_BTV[:, answer_rows(batch.layout)]
            candidates_BNC = batch.candidates_BC.unsqueeze(1).expand(-1, batch.layout.branches, -1)
            logits.append(asked_BNV.gather(2, candidates_BNC))
        return logits


@pytest.mark.parametrize("rendering", ["text", "compact"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_one_iteration_is_the_parent(parent, question, family, tied, rendering):
    """At R = 1, anchored, every answer has the logits that the unmodified parent gives it in a prompt of its own."""
    wording = open_rendering(TASK, rendering, 3)
    model = LoopedModel(parent(family, wording.vocabulary_size, tied=tied), anchor=True)
    original = parent(family, wording.vocabulary_size, tied=tied)
    with torch.no_grad():
        logits_KBNC, drift = model(packed(wording), Iterations(count=1, keep=(1,)))
        for index in (0, 1):
            for box in range(TASK.boxes):
                ids, positions, candidates = question(TASK, wording, index, DEPTH, box)
                mask = torch.ones_like(ids)
                wanted_V = original(input_ids=ids, position_ids=positions, attention_mask=mask).logits[0, -1]
                torch.testing.assert_close(logits_KBNC[0, index, box], wanted_V[candidates[0]], atol=1e-5, rtol=0)
    assert drift.item() == 1


@pytest.mark.parametrize("anchor", [True, False], ids=["anchored", "free"])
@pytest.mark.parametrize(("count", "window"), [(5, 1), (5, 2), (5, 4), (3, 3), (3, 8), (1, 1)])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_gradient_reaches_the_window_and_the_prelude(parent, count, window, tied, anchor):
    """Logits and the gradients of all parameters are those of the plain loop cut off before its last w iterations."""
    batch = packed(operations=(DEPTH, 2))
    keep = tuple(range(max(1, count - window + 1), count + 1))
    model = LoopedModel(parent("qwen3", COMPACT.vocabulary_size, tied=tied), anchor=anchor, adapter_init="sum")
    logits_KBNC, _ = model(batch, Iterations(count=count, keep=keep, window=window))
    original = parent("qwen3", COMPACT.vocabulary_size, tied=tied)
    adapter = torch.cat([torch.eye(32), torch.eye(32)], dim=1).requires_grad_()
    loop = PlainLoop(original, adapter, anchor)
    plain_KBNC = torch.stack(loop(batch, count=count, window=window)[-len(keep) :])
    torch.testing.assert_close(logits_KBNC, plain_KBNC, atol=1e-5, rtol=1e-5)

    probe_KBNC = torch.randn(plain_KBNC.shape, generator=torch.Generator().manual_seed(0))
    (logits_KBNC * probe_KBNC).sum().backward()
    (plain_KBNC * probe_KBNC).sum().backward()
    core = original.model.layers[1]
    pairs = [
        (model.recurrence.adapter.weight, adapter),
        (model.embed.weight, original.model.embed_tokens.weight),
        (model.head.weight, original.lm_head.weight),
        (model.norm.weight, original.model.norm.weight),
        *zip(model.prelude.parameters(), original.model.layers[0].parameters(), strict=True),
        *zip(model.recurrence.layers.parameters(), core.parameters(), strict=True),
        *zip(model.coda.parameters(), original.model.layers[2].parameters(), strict=True),
    ]
    for found, wanted in pairs:
        assert found.grad.abs().max() > 0
        torch.testing.assert_close(found.grad, wanted.grad, atol=1e-4, rtol=1e-4)


def test_an_earlier_read_out_trains_the_coda_alone(parent):
    """A state from before the window is a constant: its logits have gradient in coda, norm and head only."""
    model = LoopedModel(parent("qwen2", COMPACT.vocabulary_size, tied=False))
    logits_KBNC, _ = model(packed(), Iterations(count=4, keep=(1, 4), window=2))
    logits_KBNC[0].square().sum().backward()
    trained = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert trained == {"coda", "norm", "head"}


def test_gradient_mode_changes_no_logit(parent):
    """The coda reads all kept states as one batch with gradient, one by one without, to the same logits."""
    model, batch = LoopedModel(parent("qwen2", COMPACT.vocabulary_size)), packed(operations=(2, DEPTH))
    with_gradient, _ = model(batch, every(4, window=2))
    with torch.no_grad():
        without = model.read(batch, AtIterations(range(1, 5)))
    torch.testing.assert_close(with_gradient, without, atol=1e-5, rtol=0)


def states(model: LoopedModel, plan: Iterations) -> Tensor:
    """The kept states (K, B, T, H) before the coda."""
    batch = packed()
    hidden_BTH = model.embed(batch.ids_BT)
    context = Context(*model.rotary(hidden_BTH, batch.positions_BT), batch.layout, "split")
    return torch.stack(model.recurrence(context.apply(model.prelude, hidden_BTH), context, batch.real_BT, plan)[0])


@torch.no_grad()
def test_what_the_adapter_passes_at_the_start(parent):
    """``state`` begins as the plain composition of the core, ``input`` forgets the state, ``sum`` adds both."""
    found = {}
    for init in ("state", "input", "sum"):
        model = LoopedModel(parent("qwen2", COMPACT.vocabulary_size), anchor=False, adapter_init=init)
        found[init] = states(model, every(3))
    once, twice, thrice = found["state"]
    assert torch.equal(found["input"], once.expand(3, -1, -1, -1))
    assert not torch.allclose(twice, once)
    assert not torch.allclose(thrice, twice)
    eye_HH, none_HH = torch.eye(32), torch.zeros(32, 32)
    assert torch.equal(model.recurrence.adapter.weight, torch.cat([eye_HH, eye_HH], dim=1))
    model = LoopedModel(parent("qwen2", COMPACT.vocabulary_size))
    assert torch.equal(model.recurrence.adapter.weight, torch.cat([none_HH, eye_HH], dim=1))


@torch.no_grad()
@pytest.mark.parametrize("rendering", ["text", "compact"])
def test_a_reset_branch_starts_again(parent, rendering):
    """A branch that is reset has, in all its tokens, the state e before the iteration, and no other token has."""
    wording = open_rendering(TASK, rendering, 3)
    batch = packed(wording, operations=(DEPTH, 2))
    P, L, N = batch.layout.prefix_tokens, batch.layout.query_tokens, batch.layout.branches
    reset_RBN = torch.rand(4, 2, N, generator=torch.Generator().manual_seed(0)) < 0.5
    reset_RBT = torch.zeros(4, *batch.ids_BT.shape, dtype=torch.bool)
    for n in range(N):
        reset_RBT[:, :, P + n * L : P + (n + 1) * L] = reset_RBN[:, :, n : n + 1]
    model = LoopedModel(parent("qwen2", wording.vocabulary_size), adapter_init="sum")
    loop = PlainLoop(parent("qwen2", wording.vocabulary_size), model.recurrence.adapter.weight, anchor=True)
    wanted_KBNC = torch.stack(loop(batch, count=4, window=4, reset_RBT=reset_RBT))
    logits_KBNC, _ = model(batch, every(4, reset=reset_RBN))
    torch.testing.assert_close(logits_KBNC, wanted_KBNC, atol=1e-5, rtol=0)
    assert not torch.allclose(logits_KBNC[1], model(batch, every(4))[0][1], atol=1e-3)


@torch.no_grad()
def test_every_iteration_of_a_model_is_anchored(parent):
    """In a whole model, too, every token keeps the RMS of iteration 1; without anchor it does not."""
    for anchor in (True, False):
        model = LoopedModel(parent("llama", COMPACT.vocabulary_size), anchor=anchor)
        rms_KBT = states(model, every(6)).square().mean(-1).sqrt()
        assert torch.allclose(rms_KBT, rms_KBT[:1].expand_as(rms_KBT), rtol=1e-5, atol=0) == anchor


@pytest.mark.parametrize("keep", [(), (0,), (3, 2), (2, 2), (1, 5), (-1, 2)])
def test_kept_iterations_must_exist(keep):
    """Kept iterations that are none, repeated, out of order or out of range are a ValueError with the range."""
    with pytest.raises(ValueError, match=r"must ascend within 1\.\.4"):
        Iterations(count=4, keep=keep)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_the_rotary_base_is_the_backbones(family):
    """The rotary tables are cos and sin of position / theta^(2i / head width) for the theta of the backbone."""
    model = LoopedModel(random_parent(replace(BACKBONES[f"tiny-{family}"], rope_theta=1e6), 8, seed=0))
    positions = torch.tensor([[0.0, 1.0, 7.5, 4000.0]])
    cos_BTD, sin_BTD = model.rotary(torch.zeros(1), positions)
    angles = positions[..., None].double() / 1e6 ** (torch.arange(0, 16, 2).double() / 16)
    torch.testing.assert_close(cos_BTD[..., :8].double(), angles.cos(), atol=1e-3, rtol=0)
    torch.testing.assert_close(sin_BTD[..., 8:].double(), angles.sin(), atol=1e-3, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("rendering", ["text", "compact"])
@pytest.mark.parametrize("own", [(4, 4, 4, 2, 2, 2), (5, 5, 3, 3, 1, 1), (3, 3, 3, 3, 3, 3)])
def test_a_branch_that_leaves_when_read_changes_no_other(parent, own, rendering):
    """Each branch read at its own iteration, after which it leaves, has the logits of a pass in which all stay."""
    wording = open_rendering(TASK, rendering, 3)
    model, batch = LoopedModel(parent("qwen3", wording.vocabulary_size)), packed(wording, operations=(DEPTH, 2))
    all_KBNC, _ = model(batch, every(max(own)))
    own_1BNC = model.read(batch, OwnIteration(own))
    for n, k in enumerate(own):
        torch.testing.assert_close(own_1BNC[0, :, n], all_KBNC[k - 1, :, n], atol=1e-5, rtol=1e-5)


def test_the_branches_that_stay_longest_come_first():
    """Own iterations that ascend are a ValueError: branches leave from the end."""
    with pytest.raises(ValueError, match="must not ascend"):
        OwnIteration((2, 3))


def gradients(model: LoopedModel, batch: Packed, plan: Iterations) -> dict[str, Tensor]:
    model.zero_grad()
    model(batch, plan)[0].square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_activation_checkpointing_changes_no_bit(parent):
    """Computing the window's iterations again in the backward pass gives the same gradients and keeps less."""
    model, batch = LoopedModel(parent("qwen3", COMPACT.vocabulary_size)), packed()
    plan, kept = Iterations(count=5, keep=(3, 4, 5), window=3), {}
    found = {}
    for model.recurrence.recompute in (False, True):
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t):
            found[model.recurrence.recompute] = gradients(model, batch, plan)
        kept[model.recurrence.recompute] = sum(sizes)
    for name, gradient in found[False].items():
        assert torch.equal(found[True][name], gradient), name
    assert kept[True] < 0.7 * kept[False]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # read by the compiler itself
def test_one_compiled_iteration_serves_all_lengths(parent, monkeypatch):
    """Compiled or not the gradients agree, and batches of other lengths and sizes compile nothing new."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    model, plain = (LoopedModel(parent("qwen2", COMPACT.vocabulary_size)) for _ in range(2))
    model.recurrence.compile_iteration()
    plan = Iterations(count=5, keep=(3, 4, 5), window=3)
    gradients(model, packed(indices=(0, 1, 2, 3, 4)), plan)
    with torch.no_grad():
        model.read(packed(indices=(0, 1, 2, 3, 4), operations=(4, 2)), OwnIteration([4] * 3 + [2] * 3))
    with torch.compiler.set_stance("fail_on_recompile"):
        for indices, operations in [((0, 1), (4, 2)), ((0, 1, 2, 3), (3,)), ((5, 6), (1, 2, 3))]:
            batch = packed(indices=indices, operations=operations)
            found, wanted = gradients(model, batch, plan), gradients(plain, batch, plan)
            for name, gradient in wanted.items():
                torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4, msg=name)
            with torch.no_grad():  # branches leave
                own = [4] * 3 + [2] * (batch.layout.branches - 3)
                found_1BNC, wanted_1BNC = (each.read(batch, OwnIteration(own)) for each in (model, plain))
                torch.testing.assert_close(found_1BNC, wanted_1BNC, atol=1e-5, rtol=1e-4)

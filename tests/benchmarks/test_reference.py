"""The reference of the benchmarks gives what the product gives; only then does their ratio mean anything."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import core_iteration, evaluation, train_step
from benchmarks.reference import PlainTrainer, Questions, candidate_log_probabilities, loop, plain_curve, progress_loss
from benchmarks.wide import WIDE, registered
from par.config.backbones import BACKBONES
from par.evaluation.accuracy import depth_curve
from par.evaluation.exam import Exam
from par.model.build import random_parent
from par.model.looped import LoopedModel
from par.model.reading import AtIterations
from par.tasks.groups import parse_task
from par.tasks.prompts import open_rendering
from par.tasks.streams import EVALUATION_SEED, Split, examples
from par.testing import tiny_run
from par.training.batches import Batches
from par.training.draws import draw_depth
from par.training.loop import Trainer
from par.training.objectives import weighted_loss

TASK = parse_task("swap-s3")
RENDERINGS = {name: open_rendering(TASK, name, 3) for name in ("compact", "text")}
DEPTHS = (1, 3, 4, 7)


def model(family: str, rendering: str, *, tied: bool = True, anchor: bool = True) -> LoopedModel:
    """A model whose weights are large enough for its answers to differ from question to question."""
    backbone = replace(BACKBONES[f"tiny-{family}"], tied=tied, initializer_range=0.2)
    parent = random_parent(backbone, RENDERINGS[rendering].vocabulary_size, seed=7)
    return LoopedModel(parent, anchor=anchor, adapter_init="sum")


MODELS = {
    (family, rendering, tied): model(family, rendering, tied=tied)
    for family, rendering, tied in (("qwen2", "text", True), ("qwen3", "compact", False), ("llama", "compact", True))
}


def gradients(of: LoopedModel) -> dict[str, torch.Tensor]:
    """The gradient of every parameter, and a clean slate for the next backward pass."""
    found = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in of.named_parameters()}
    of.zero_grad(set_to_none=True)
    return found


@settings(max_examples=12)
@given(
    key=st.sampled_from(sorted(MODELS)),
    step=st.integers(0, 99),
    step_size=st.integers(1, 2),
    window=st.integers(1, 5),
    overrun=st.integers(0, 2),
)
def test_loss_and_gradients_are_the_products(key, step, step_size, window, overrun):
    """Loss and the gradient of every parameter are those of the packed batch, for any step and gradient window."""
    _, rendering, _ = key
    run = tiny_run(
        task__rendering=rendering, recurrence__step_size=step_size, recurrence__gradient_window=window,
        schedule__overrun=overrun, train__batch_size=3, optim__warmup_steps=0,
    )  # fmt: skip
    batches = Batches(run, TASK, RENDERINGS[rendering])
    [micro] = batches.micro_batches(step)
    logits_KBNC, _ = MODELS[key](micro.packed, micro.plan)
    wanted = weighted_loss(logits_KBNC, micro.targets, halting_weight=0.0)
    wanted.backward()
    wanted_gradients = gradients(MODELS[key])

    depth = draw_depth(batches.run, step)
    drawn = examples(TASK, seed=run.seed, split=Split.TRAIN, indices=step * 3 + np.arange(3), depth=depth.operations)
    questions = Questions.about(RENDERINGS[rendering].render(drawn), range(TASK.boxes))
    found = progress_loss(MODELS[key], questions, iterations=depth.iterations, window=window, step_size=step_size)
    found.backward()
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients(MODELS[key]), wanted_gradients, atol=1e-5, rtol=1e-4)


def test_losses_stay_the_products_while_both_train():
    """Step for step the plain trainer has the loss and the gradient norm of the product that began with its weights.

    In double precision: AdamW divides by the size of the gradient, and would make a full step of the rounding error
    that is the plain gradient of a word that no prompt asks for.
    """
    run = tiny_run(backbone="tiny-qwen3", train__steps=6, optim__lr=1e-3, optim__adapter_lr=2e-3)
    trainer, twin = Trainer(run), Trainer(run)
    trainer.model.double()
    twin.model.double()
    plain = PlainTrainer(run, twin.model, twin.rendering)
    wanted = [(report.loss, report.grad_norm) for report in trainer.steps()]
    found = [plain.step(number) for number in range(6)]
    assert np.ravel(found) == pytest.approx(np.ravel(wanted), abs=1e-4)


@pytest.mark.parametrize("step_size", [1, 2])
@pytest.mark.parametrize("anchor", [True, False], ids=["anchored", "free"])
@pytest.mark.parametrize("rendering", ["compact", "text"])
def test_accuracies_are_the_products(rendering, anchor, step_size):
    """One packed pass and a pass for each depth and box count the same questions right, the last batch cut short."""
    asked = {"depths": DEPTHS, "step_size": step_size, "sequences": 10, "batch_size": 4}
    subject = model("qwen3", rendering, anchor=anchor)
    wanted = depth_curve(Exam(model=subject, task=TASK, rendering=RENDERINGS[rendering], **asked))
    found = plain_curve(subject, TASK, RENDERINGS[rendering], **asked)
    assert found.depths == wanted.depths
    assert found.single_query == pytest.approx(wanted.single_query, abs=1e-6)
    assert found.full_state == pytest.approx(wanted.full_state, abs=1e-6)
    assert len(set(found.single_query)) > 1


@torch.no_grad()
def test_every_answer_is_the_products():
    """Log-probabilities of the candidates agree for every prompt, depth and box, not only what is right on average."""
    subject, rendering, indices = MODELS["qwen3", "compact", False], RENDERINGS["compact"], np.arange(4)
    exam = Exam(model=subject, task=TASK, rendering=rendering, depths=DEPTHS, sequences=4, batch_size=4)
    logits_KBNC, _ = exam.read(indices, AtIterations(DEPTHS))
    for number, depth in enumerate(DEPTHS):
        drawn = examples(TASK, seed=EVALUATION_SEED, split=Split.TEST, indices=indices, depth=depth)
        questions = Questions.about(rendering.render(drawn), range(TASK.boxes))
        [logits_QTV] = loop(subject, questions, iterations=depth, read_last=1)
        found_XBC = candidate_log_probabilities(logits_QTV, questions).unflatten(0, (TASK.boxes, len(indices)))
        wanted_BDXC = logits_KBNC[number].unflatten(1, (len(DEPTHS), TASK.boxes)).flip(1).log_softmax(-1)
        torch.testing.assert_close(found_XBC.transpose(0, 1), wanted_BDXC[:, number], atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_reference_reads_every_token_over_the_vocabulary():
    """The plain work is done in full: logits of all tokens and all words at each iteration that is read."""
    drawn = examples(TASK, seed=0, split=Split.TRAIN, indices=[0, 1], depth=4)
    questions = Questions.about(RENDERINGS["compact"].render(drawn), range(TASK.boxes))
    logits = loop(MODELS["llama", "compact", True], questions, iterations=4, read_last=3)
    assert [tuple(each.shape) for each in logits] == [(2 * TASK.boxes, 6, RENDERINGS["compact"].vocabulary_size)] * 3


def test_padded_prompts_are_refused():
    """Prompts of unequal length are an error that shows the lengths, never a wrong answer."""
    drawn = examples(TASK, seed=0, split=Split.TRAIN, indices=[0, 1], depth=4)
    prompts = RENDERINGS["compact"].render(drawn)
    with pytest.raises(ValueError, match=r"lengths \[4, 5\]"):
        Questions.about(replace(prompts, length_B=np.array([4, 5])), [0])


@pytest.mark.parametrize(
    ("case", "amount"),
    [(train_step.case, 64 * 5 * 8), (train_step.wide_case, 8 * 5 * 8), (evaluation.case, 4 * 5 * 8)],
)
def test_cases_count_their_answers(case, amount):
    """A case's answers are its supervised or tested questions: prompts times boxes times iterations or depths."""
    assert case().amount == amount


def test_bare_products_are_those_of_the_core():
    """Every multiplication by a weight that the core's iterations do, the bare products do, and no other."""
    core = core_iteration.case()
    counts = [FlopCounterMode(display=False), FlopCounterMode(display=False)]
    for count, work in zip(counts, (core.product, core.reference), strict=True):
        with count:
            work()
    product, bare = (count.get_flop_counts()["Global"] for count in counts)
    assert bare[torch.ops.aten.mm] == product[torch.ops.aten.mm] + product[torch.ops.aten.addmm]


def test_a_backbone_of_the_benchmarks_is_not_shipped():
    """The wide backbone can be named while a case is built, and not after, whether or not building failed."""
    train_step.wide_case()
    assert WIDE.name not in BACKBONES
    with suppress(ZeroDivisionError), registered(WIDE):
        assert BACKBONES[WIDE.name] is WIDE
        raise ZeroDivisionError
    assert WIDE.name not in BACKBONES

"""What each iteration must answer, and what a wrong answer costs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from torch import Tensor

from par.config.run import RunConfig
from par.tasks.groups import parse_task
from par.tasks.prompts import open_rendering
from par.tasks.streams import Split, examples
from par.testing import tiny_run
from par.training.batches import Batches, MicroBatch
from par.training.draws import draw_depth
from par.training.objectives import Targets, weighted_loss

TASK = parse_task("a4")
K, B, N, C = 3, 2, 4, 5


def first_batch(run: RunConfig, step: int) -> MicroBatch:
    (whole,) = Batches(run, TASK, open_rendering(TASK, "compact", 3)).micro_batches(step)
    return whole


def held_after(run: RunConfig, step: int, operations: int) -> list[list[list[int]]]:
    """What box x of prompt b holds after j operations, composed one operation at a time: [b][j][x]."""
    indices = range(step * run.train.batch_size, (step + 1) * run.train.batch_size)
    drawn = examples(TASK, seed=run.seed, split=Split.TRAIN, indices=indices, depth=operations)
    held = []
    for row in drawn.operations_BD.tolist():
        states = [list(range(TASK.boxes))]
        for operation in row:
            states.append([states[-1][source] for source in TASK.operations_KN[operation].tolist()])
        held.append(states)
    return held


@settings(max_examples=40, deadline=None)
@given(
    objective=st.sampled_from(["progress", "final_every", "final_only"]),
    kind=st.sampled_from(["forced", "hold", "fixed"]),
    step_size=st.integers(1, 3),
    window=st.integers(1, 5),
    prefixes=st.integers(1, 3),
    overrun=st.integers(0, 2),
    step=st.integers(0, 19),
)
def test_every_iteration_has_the_target_of_its_objective(objective, kind, step_size, window, prefixes, overrun, step):
    """``progress`` asks iteration k for the state after min(c k, j) of a branch's j operations, the others for its end.

    The iterations asked are the last w, or the very last for ``final_only``; each answer weighs the same.
    """
    run = tiny_run(
        task__name=TASK.name, task__train_depth=6, objective=objective, schedule__kind=kind, schedule__iterations=5,
        schedule__overrun=overrun, recurrence__step_size=step_size, recurrence__gradient_window=window,
        train__branches__prefixes=prefixes,
    )  # fmt: skip
    batch = first_batch(run, step)
    depth = draw_depth(run, step)
    held = held_after(run, step, depth.operations)
    R = depth.iterations
    kept = [R] if objective == "final_only" else [k for k in range(1, R + 1) if k > R - window]
    assert list(batch.plan.keep) == kept
    assert batch.plan.count == R
    lengths_BN = branch_lengths(batch)
    for place, k in enumerate(kept):
        completed = step_size * k if objective == "progress" else depth.operations
        for b, n in np.ndindex(lengths_BN.shape):
            wanted = held[b][min(completed, lengths_BN[b, n])][n % TASK.boxes]
            assert batch.targets.answers_KBN[place, b, n] == wanted
    count = len(kept) * lengths_BN.size
    torch.testing.assert_close(batch.targets.weights_KBN, torch.full((len(kept), *lengths_BN.shape), 1 / count))


def branch_lengths(batch: MicroBatch) -> np.ndarray:
    """How many operations each branch sees: visible prefix tokens after the start token."""
    return batch.packed.layout.ends_BN.numpy() - 1


def targets(*, halting: bool) -> Targets:
    rng = np.random.default_rng(0)
    return Targets(
        torch.from_numpy(rng.integers(C, size=(K, B, N))),
        torch.from_numpy(rng.random((K, B, N))).float(),
        torch.zeros(K, B, N),
        torch.from_numpy(rng.integers(2, size=(K, B, N))),
        torch.from_numpy(rng.random((K, B, N)) * halting).float(),
    )


def cross_entropy(logits: np.ndarray, chosen: Tensor, weights: Tensor) -> float:
    log_shares = np.take_along_axis(log_softmax(logits, axis=-1), chosen.numpy()[..., None], axis=-1)[..., 0]
    return float(-(weights.double().numpy() * log_shares).sum())


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("halting_weight", [0.0, 0.5])
def test_the_loss_is_a_weighted_cross_entropy(scale, dtype, halting_weight):
    """It is the value that float64 gives, in nats, over answers and, apart from them, over (Yes, No), even at +-60."""
    halting = halting_weight > 0
    rng = np.random.default_rng(1)
    logits = (scale * torch.from_numpy(rng.uniform(-1, 1, (K, B, N, C + 2 * halting)))).to(dtype)
    wanted_by, exact = targets(halting=halting), logits.double().numpy()
    wanted = cross_entropy(exact[..., :C], wanted_by.answers_KBN, wanted_by.weights_KBN)
    if halting:
        no_yes = exact[..., [C + 1, C]]
        wanted += halting_weight * cross_entropy(no_yes, wanted_by.halt_KBN, wanted_by.halt_weights_KBN)
    loss = weighted_loss(logits, wanted_by, halting_weight=halting_weight)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_loss_and_gradient_are_finite_at_extreme_logits(dtype):
    """Logits of +60 and -60, for the target and against it, give a finite loss and gradient."""
    rng = np.random.default_rng(2)
    logits = torch.from_numpy(rng.choice([-60.0, 60.0], (K, B, N, C + 2))).to(dtype).requires_grad_()
    loss = weighted_loss(logits, targets(halting=True), halting_weight=0.5)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_a_confident_answer_costs_nothing():
    """Right answers with a margin of 60 cost 0 nats, wrong ones 60 each, as the weights add up to 1."""
    answers_KBN = torch.zeros(K, B, N, dtype=torch.long)
    even = torch.full((K, B, N), 1 / (K * B * N))
    asked = Targets(answers_KBN, even, 0 * even, answers_KBN, 0 * even)
    logits = torch.zeros(K, B, N, C)
    logits[..., 0] = 60
    assert weighted_loss(logits, asked, halting_weight=0).item() == pytest.approx(0, abs=1e-6)
    assert weighted_loss(-logits, asked, halting_weight=0).item() == pytest.approx(60 + np.log(C - 1), rel=1e-5)


def test_halting_and_answers_share_no_softmax():
    """The answer's loss does not move with the Yes and No logits, nor the halting loss with the candidates'."""
    asked = targets(halting=True)
    logits = torch.randn(K, B, N, C + 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    only_answers = replace(asked, halt_weights_KBN=0 * asked.halt_weights_KBN)
    (grad,) = torch.autograd.grad(weighted_loss(logits, only_answers, halting_weight=0.5), logits)
    assert not grad[..., C:].any()
    only_halting = replace(asked, weights_KBN=0 * asked.weights_KBN)
    (grad,) = torch.autograd.grad(weighted_loss(logits, only_halting, halting_weight=0.5), logits)
    assert not grad[..., :C].any()


def test_yes_is_the_candidate_before_no():
    """Where the target is Yes, the loss falls with the logit of the last candidate but one and rises with the last."""
    complete = Targets(*(torch.tensor([[[value]]]) for value in (0, 0.0, 0.0, 1, 1.0)))
    logits = torch.zeros(1, 1, 1, 4).requires_grad_()
    weighted_loss(logits, complete, halting_weight=1.0).backward()
    assert logits.grad.flatten().tolist() == [0, 0, -0.5, 0.5]

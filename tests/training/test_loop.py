"""The loop: the same bits from the same seed, the same gradient from any cut, and no step on numbers that are not."""

import pickle
import re
from math import log
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor

from par.config.run import RunConfig
from par.errors import DivergedError, FailureKind
from par.testing import run_processes, tiny_run
from par.training.draws import draw_depth
from par.training.loop import Trainer
from par.training.parallel import data_mesh

VARIANTS = {
    "text, prefixes": {"task__rendering": "text", "task__name": "s4-full", "train__branches__prefixes": 2},
    "muon, reset, stretch": {
        "optim__matrices": "muon",
        "train__query_reset": 0.5,
        "stretch": {"enabled": True, "start": 0.0, "ramp": 0.5},
    },
    "halting, hold": {"halting__mode": "learned", "schedule__kind": "hold", "schedule__iterations": 5},
}


def parameters(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def gradients(run: RunConfig, step: int) -> tuple[tuple[float, float], dict[str, torch.Tensor]]:
    trainer = Trainer(run)
    trainer.step = step
    loss, drift, _ = trainer._forward_backward(trainer.batch())
    return (loss.item(), drift.item()), {name: p.grad for name, p in trainer.model.named_parameters()}


@pytest.mark.parametrize("micro_batch", [4, 3, 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_micro_batches_add_up_to_the_whole(variant, micro_batch):
    """Any micro-batch, the last one smaller or not, has the loss and the gradients of the whole batch.

    The prompts of the text variant differ in length, so that each micro-batch is padded in its own way.
    """
    for step in (0, 7):
        (loss, _), whole = gradients(tiny_run(**VARIANTS[variant]), step)
        (cut_loss, _), cut = gradients(tiny_run(**VARIANTS[variant], compute__micro_batch=micro_batch), step)
        assert cut_loss == pytest.approx(loss, abs=1e-6)
        torch.testing.assert_close(cut, whole, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("micro_batch", [8, 4, 3])
def test_the_reported_drift_is_that_of_the_whole_batch(micro_batch):
    """A mean over the tokens of the batch, whatever the micro-batches, equal in size or not."""
    whole = Trainer(tiny_run(recurrence__anchor="none"))
    (batch,) = whole.batches.micro_batches(7)
    _, drift = whole.model(batch.packed, batch.plan)
    (_, reported), _ = gradients(tiny_run(recurrence__anchor="none", compute__micro_batch=micro_batch), 7)
    assert reported == pytest.approx(drift.item(), rel=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_the_same_bits(variant):
    """Two runs of one seed have equal reports and, to the bit, equal parameters."""
    first, again = (Trainer(tiny_run(**VARIANTS[variant], train__steps=5)) for _ in range(2))
    reports, repeated = ([report.row() | {"seconds": 0} for report in t.steps()] for t in (first, again))
    assert reports == repeated
    torch.testing.assert_close(parameters(first), parameters(again), rtol=0, atol=0)


def test_seeds_differ():
    """Another seed begins with other weights and sees other prompts."""
    runs = [tiny_run(seed=seed) for seed in (0, 1)]
    weights = [Trainer(run).model.embed.weight for run in runs]
    assert not torch.equal(*weights)
    batches = [next(Trainer(run).batches.micro_batches(0)).packed.ids_BT for run in runs]
    assert not torch.equal(*[ids_BT[:, :2] for ids_BT in batches])


def test_one_report_a_step():
    """Steps count from 1 to the end of the run, and each report has what its step drew."""
    run = tiny_run(train__steps=6)
    trainer = Trainer(run)
    reports = list(trainer.steps())
    assert [report.step for report in reports] == [1, 2, 3, 4, 5, 6]
    assert trainer.step == 6
    assert list(trainer.steps()) == []
    assert [report.depth for report in reports] == [draw_depth(trainer.run, step) for step in range(6)]
    assert [report.rate_factor for report in reports] == [0.5, 1, 1, 1, 1, 1]
    assert all(report.loss > 0 and report.grad_norm > 0 and report.seconds > 0 for report in reports)


def test_training_learns():
    """Depth 1 on three boxes is learnt from scratch: the loss falls far below that of a guess."""
    run = tiny_run(task__train_depth=1, train__steps=60, train__batch_size=16, optim__lr=3e-3, optim__adapter_lr=3e-3)
    losses = [report.loss for report in Trainer(run).steps()]
    assert losses[0] == pytest.approx(log(3), rel=0.1)
    assert max(losses[-5:]) < 0.1


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_a_diverged_step_leaves_the_parameters_alone(value, matrices):
    """A weight that is not finite raises DivergedError before any parameter or optimizer state has moved."""
    trainer = Trainer(tiny_run(optim__matrices=matrices))
    with torch.no_grad():
        trainer.model.coda.answer.layer.mlp.down_proj.weight[0, 0] = value
    before = parameters(trainer)
    with pytest.raises(DivergedError, match=r"at step 1, \d iterations: lower optim\.lr or set recurrence\.anchor"):
        next(trainer.steps())
    torch.testing.assert_close(parameters(trainer), before, rtol=0, atol=0, equal_nan=True)
    assert not any(optimizer.state for optimizer in trainer.optimizers)
    assert trainer.step == 0


def diverging(trainer: Trainer, *, poisoned: bool = True) -> tuple[str, bool]:
    """Let one gradient of this worker be NaN at step 3. The message of the error; if the parameters are those before.

    The loss is not touched, and of several workers each may leave its own part of the gradient alone.
    """

    def spoil(p: torch.Tensor) -> None:
        own = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        own[0, 0] = torch.nan

    steps = trainer.steps()
    assert [next(steps).step, next(steps).step] == [1, 2]
    before = parameters(trainer)
    if poisoned:
        trainer.model.coda.answer.layer.mlp.down_proj.weight.register_post_accumulate_grad_hook(spoil)
    with pytest.raises(DivergedError) as caught:
        next(steps)
    return str(caught.value), all(torch.equal(p, before[name]) for name, p in parameters(trainer).items())


@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_a_gradient_that_is_not_finite_is_enough(matrices):
    """With a finite loss, one NaN in one gradient ends the seed before its step moves a parameter."""
    message, untouched = diverging(Trainer(tiny_run(optim__matrices=matrices)))
    assert re.match(r"loss=\d\S* grad_norm=nan at step 3", message)
    assert untouched


def one_of_two_diverges(rank: int, out: Path) -> None:
    found = diverging(Trainer(tiny_run(compute__workers=2), data_mesh()), poisoned=rank == 1)
    torch.save(found, out / f"{rank}.pt")


@pytest.mark.dist
def test_workers_diverge_together(tmp_path):
    """A NaN in the gradient shard of one worker ends all of them at the same step, with the parameters as they were."""
    run_processes(2, one_of_two_diverges, tmp_path)
    (message, untouched), other = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert other == (message, untouched)
    assert re.match(r"loss=\d\S* grad_norm=nan at step 3", message)
    assert untouched


def test_an_absurd_rate_diverges_with_finite_parameters():
    """A rate of 1e30 ends in DivergedError, and what is left holds no inf or nan."""
    trainer = Trainer(tiny_run(optim__lr=1e30, optim__adapter_lr=1e30, optim__warmup_steps=0))
    with pytest.raises(DivergedError) as caught:
        list(trainer.steps())
    assert all(p.isfinite().all() for p in parameters(trainer).values())
    assert caught.value.kind is FailureKind.NUMERIC


def test_a_divergence_survives_a_pickle():
    """The error arrives with its message and kind on the other side of a process."""
    error = pickle.loads(pickle.dumps(DivergedError.at(7, float("nan"), 2.5, 16)))
    assert type(error) is DivergedError
    assert error.kind is FailureKind.NUMERIC
    assert str(error).startswith("loss=nan grad_norm=2.5 at step 7, 16 iterations")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_deterministic_mode_trains_alike(variant):
    """Every operation of training has an algorithm that repeats its bits, and on a CPU it is the usual one."""
    usual = [report.loss for report in Trainer(tiny_run(**VARIANTS[variant], train__steps=5)).steps()]
    fixed = Trainer(tiny_run(**VARIANTS[variant], train__steps=5, compute__deterministic=True))
    assert torch.are_deterministic_algorithms_enabled()
    assert [report.loss for report in fixed.steps()] == usual
    Trainer(tiny_run())
    assert not torch.are_deterministic_algorithms_enabled()

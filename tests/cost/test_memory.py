"""The memory model against the bytes that autograd keeps, the allocator gives out and the optimizers hold."""

import weakref
from dataclasses import replace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.autograd.profiler import profile

from par.config.backbones import BACKBONES
from par.config.run import RunConfig
from par.cost.flops import seed_cost
from par.cost.memory import evaluation_prompt, evaluation_prompts, memory, training_prompt
from par.cost.sizes import recorded_iterations
from par.evaluation.accuracy import depth_curve
from par.evaluation.exam import Exam
from par.evaluation.halting import halting_curve
from par.evaluation.tracing import record_traces
from par.model.build import build_model, build_rendering
from par.testing import tiny_run
from par.training import checkpoint
from par.training.batches import MicroBatch
from par.training.draws import draw_depth
from par.training.loop import Trainer
from par.training.parallel import DTYPES

DEPTH = 8
SETTINGS = {
    "one iteration": {"schedule__iterations": 1},
    "window": {},
    "wide window": {"recurrence__gradient_window": 8, "schedule__iterations": 8},
    "many branches": {"train__branches__prefixes": 6},
    "small batch": {"train__batch_size": 2},
    "last only": {"objective": "final_only"},
    "label-free": {"objective": "prefix_distill"},
    "label-free, wide window": {
        "objective": "prefix_distill",
        "recurrence__gradient_window": 6,
        "backbone": "nine-layers",
    },
    "label-free, forced": {"objective": "prefix_distill", "schedule__kind": "forced", "schedule__overrun": 2},
    "learned halting": {"halting__mode": "learned", "recurrence__anchor": "none", "train__query_reset": 0.5},
    "text": {"task__rendering": "text"},
    "queries share keys": {"backbone": "nine-layers"},
    "own keys": {"backbone": "mini-qwen3"},
    "llama": {"backbone": "tiny-llama"},
    "bf16": {"train__precision": "bf16", "backbone": "nine-layers"},
}


@pytest.fixture(autouse=True)
def nine_layers(monkeypatch):
    """A backbone of other proportions."""
    shape = {"layers": 9, "hidden": 64, "heads": 4, "ffn": 256}
    monkeypatch.setitem(BACKBONES, "nine-layers", replace(BACKBONES["tiny-qwen3"], name="nine-layers", **shape))


def fixed_run(**changes) -> RunConfig:
    """Every step has six iterations, of which three carry gradient."""
    fixed = {"task__train_depth": DEPTH, "train__steps": 400, "schedule__kind": "fixed", "schedule__iterations": 6}
    return tiny_run(**fixed | changes)


def deepest(trainer: Trainer) -> MicroBatch:
    """The batch of a step whose prompts are as deep as any, and of these one of fewest iterations: most is taught."""
    depths = {step: draw_depth(trainer.run, step) for step in range(100)}
    as_deep = [step for step in depths if depths[step].operations == DEPTH]
    return next(trainer.batches.micro_batches(min(as_deep, key=lambda step: depths[step].iterations)))


class Saved:
    """A tensor that autograd keeps; the reference dies with the graph that needs it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()


def kept_bytes(run: RunConfig) -> int:
    """What the forward pass of the deepest prompts keeps for its backward pass, parameters apart."""
    trainer, references = Trainer(run), []
    trainer.model.to(DTYPES[run.train.precision])
    batch = deepest(trainer)

    def pack(tensor: torch.Tensor) -> Saved:
        saved = Saved(tensor)
        references.append(weakref.ref(saved))
        return saved

    with saved_tensors_hooks(pack, lambda saved: saved.tensor):
        logits, _ = trainer.model(batch.packed, batch.plan)
    alive = [saved.tensor.untyped_storage() for reference in references if (saved := reference())]
    assert logits.requires_grad
    sizes = {storage.data_ptr(): storage.nbytes() for storage in alive}
    for parameter in trainer.model.parameters():
        sizes.pop(parameter.untyped_storage().data_ptr(), None)
    return sum(sizes.values())


def lesson_bytes(run: RunConfig) -> int:
    """The most that the teacher's pass over the deepest prompts holds; 0 without a teacher."""
    trainer = Trainer(run)
    batch = deepest(trainer)
    return peak_bytes(lambda: trainer._teach(batch)) if trainer.teacher else 0


def peak_bytes(work) -> int:
    """The most that ``work`` had allocated at once."""
    with profile(profile_memory=True) as recorded:
        work()
    changes = [event for event in recorded.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


@pytest.mark.parametrize("settings", SETTINGS)
def test_activations_are_those_kept(settings):
    """The estimate is within 25 % of what the forward pass keeps, whatever R, window, branches, batch and backbone.

    Beside it lies what the teacher's pass holds.
    """
    run = fixed_run(**SETTINGS[settings])
    assert memory(run).activations == pytest.approx(kept_bytes(run) + lesson_bytes(run), rel=0.25)


@pytest.mark.parametrize("settings", [name for name in SETTINGS if name.startswith("label-free")])
def test_the_teachers_pass_is_in_the_estimate(settings):
    """A teacher adds within 25 % of what its pass holds, and nothing where nothing is left to teach."""
    run = fixed_run(**SETTINGS[settings])
    assert memory(run).activations - memory(without_teacher(run)).activations == pytest.approx(
        lesson_bytes(run), rel=0.25
    )
    late = fixed_run(**SETTINGS[settings] | {"schedule__kind": "fixed", "schedule__iterations": 40})
    assert memory(late).activations == memory(without_teacher(late)).activations
    assert memory(late).teacher > 0 == lesson_bytes(late)


def without_teacher(run: RunConfig) -> RunConfig:
    return run.model_copy(update={"objective": "final_every"})


@pytest.mark.parametrize("settings", SETTINGS)
def test_checkpointing_peaks_as_estimated(settings):
    """With checkpointing the estimate is within 25 % of the peak of both passes, and no more than without."""
    run = fixed_run(compute__activation_checkpointing=True, **SETTINGS[settings])
    trainer = Trainer(run)
    trainer.model.to(DTYPES[run.train.precision])
    batch = deepest(trainer)
    for parameter in trainer.model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def both_passes() -> None:
        logits, _ = trainer.model(batch.packed, batch.plan)
        trainer._teach(batch)
        logits.sum().backward()

    peak = peak_bytes(both_passes)
    assert memory(run).activations == pytest.approx(peak, rel=0.25)
    assert memory(run).activations <= memory(fixed_run(**SETTINGS[settings])).activations


def test_activations_do_not_grow_beyond_the_window():
    """Iterations before the gradient window keep nothing: neither in the estimate nor in fact."""
    few, many = fixed_run(schedule__iterations=4), fixed_run(schedule__iterations=40)
    assert memory(few).activations == memory(many).activations
    assert kept_bytes(few) == kept_bytes(many)


def test_activations_grow_with_the_depth_and_within_the_window():
    """One more operation, or one more iteration of the window, is more to keep."""
    run = fixed_run()
    assert training_prompt(run, DEPTH - 1, 6) < training_prompt(run, DEPTH, 6)
    assert training_prompt(run, DEPTH, 1) < training_prompt(run, DEPTH, 2) < training_prompt(run, DEPTH, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"halting__mode": "learned"},
        {"evaluation__depths": (DEPTH, 64)},
        {"task__rendering": "text"},
        {"backbone": "nine-layers"},
        {"backbone": "nine-layers", "halting__mode": "learned", "evaluation__depths": (DEPTH, 64)},
        {"halting__mode": "learned", "halting__m": 1, "halting__k": 1, "evaluation__depths": tuple(range(DEPTH, 65))},
    ],
)
def test_evaluation_peaks_as_estimated(changes):
    """The estimate is within 25 % of the peak of one pass of the widest curve that is read."""
    run = tiny_run(**{"task__train_depth": DEPTH, "evaluation__depths": (DEPTH, 16)} | changes)
    rendering = build_rendering(run)
    exam = replace(Exam.of(run, build_model(run, rendering, seed=0), rendering), sequences=8, batch_size=8)
    if run.halting.mode == "learned":
        traced = replace(exam, sequences=4)
        peak = max(
            peak_bytes(lambda: halting_curve(exam, run.halting)),
            peak_bytes(lambda: record_traces(traced, recorded_iterations(run))),
        )
    else:
        peak = peak_bytes(lambda: depth_curve(exam))
    assert 8 * evaluation_prompt(run) == pytest.approx(peak, rel=0.25)


@pytest.mark.parametrize(("fits", "prompts"), [(0.5, 1), (1.5, 1), (3.9, 2), (4.1, 4), (8.5, 8), (47, 32), (49, 48)])
def test_evaluation_reads_what_fits(fits, prompts):
    """A pass reads the power of two of prompts that fits, at least one; or all that were asked for if they fit."""
    memory_gib = fits * evaluation_prompt(tiny_run(evaluation__batch_size=48)) / 2**30
    assert evaluation_prompts(tiny_run(evaluation__batch_size=48, evaluation__memory_gib=memory_gib)) == prompts


@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_optimizer_state_is_what_the_optimizers_hold(matrices):
    """Its bytes, gradients and parameters are those of all matrices after a step."""
    run = tiny_run(optim__matrices=matrices)
    trainer = Trainer(run)
    next(trainer.steps())
    states = [state for optimizer in trainer.optimizers for p, state in optimizer.state.items() if p.dim() == 2]
    held = sum(value.nbytes for state in states for value in state.values() if value.dim() == 2)
    weights = sum(p.nbytes for p in trainer.model.parameters() if p.dim() == 2)
    found = memory(run)
    assert found.optimizer == held
    assert found.parameters == found.gradients == weights


@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_the_teacher_is_counted(matrices):
    """Its bytes are those of all its matrices, in the state of a worker and in the tensors of a checkpoint."""
    run = tiny_run(optim__matrices=matrices, objective="prefix_distill")
    trainer, found = Trainer(run), memory(run)
    next(trainer.steps())
    assert found.teacher == sum(p.nbytes for p in trainer.teacher.model.parameters() if p.dim() == 2)
    assert found.state - memory(without_teacher(run)).state == found.teacher
    saved = checkpoint._weights(trainer.model) | checkpoint._state(trainer)
    matrices_bytes = sum(tensor.nbytes for tensor in saved.values() if tensor.dim() == 2)
    assert seed_cost(run).checkpoint_bytes == matrices_bytes


def test_workers_share_the_state():
    """Four workers hold a quarter of the state each, but all gradients if several passes add up; and gather weights."""
    alone, shared = memory(RunConfig()), memory(RunConfig.from_dotted({"compute.workers": 4}))
    assert shared.state == pytest.approx(alone.state / 4)
    assert alone.gathered == 0 < shared.gathered < alone.parameters
    assert shared.activations == alone.activations / 4
    passes = memory(RunConfig.from_dotted({"compute.workers": 4, "compute.micro_batch": 8}))
    assert passes.gradients == alone.gradients
    assert passes.activations == alone.activations / 8


def test_bf16_halves_what_is_gathered_and_less_of_what_is_kept():
    """Weights are gathered in the type of the computation; the state, and some of what is kept, stays in fp32."""
    workers = {"compute.workers": 4}
    full, half = (memory(RunConfig.from_dotted(workers | {"train.precision": p})) for p in ("fp32", "bf16"))
    assert half.gathered == full.gathered / 2
    assert full.activations / 2 < half.activations < full.activations
    assert half.state == full.state

"""The halting rule, and what it achieves, against plain Python."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from par.config.groups import HaltingConfig
from par.evaluation.exam import Exam
from par.evaluation.halting import halting_curve
from par.evaluation.lazily import LazyReading
from par.model.reading import AtIterations
from par.testing import run_processes, tiny_run
from par.training.loop import Trainer
from par.training.parallel import data_mesh
from tests.evaluation.firing import first_firing


def plain(p_yes: list[float], tau: float, k: int, m: int) -> int:
    """The rule as it is said: the first R whose window of m lies within the trace."""
    for r in range(1, len(p_yes) - m + 2):
        window = p_yes[r - 1 : r - 1 + m]
        if window[0] > tau and sum(p > tau for p in window) >= k:
            return r
    return 0


@given(st.data(), st.lists(st.sampled_from([0.1, 0.4, 0.5, 0.6, 0.9]), min_size=1, max_size=24))
def test_e9_rule(data, trace):
    """The first firing iteration is that of the plain rule for any trace and thresholds; 0 where none fires (E9)."""
    m = data.draw(st.integers(1, 9))
    k = data.draw(st.integers(1, m))
    tau = data.draw(st.sampled_from([0.3, 0.5, 0.75]))
    found = first_firing(torch.tensor([trace]).T, HaltingConfig(tau=tau, k=k, m=m))
    assert found.tolist() == [plain(trace, tau, k, m)]


@pytest.mark.parametrize(
    ("yes", "expected"),
    [
        ([0, 1, 1, 1, 0, 1, 0, 1, 1, 1], 2),  # exactly 6 of 8, the first of them at R itself
        ([0, 1, 1, 1, 0, 0, 0, 1, 1, 1], 0),  # 5 of 8 at best where the window fits
        ([0, 0, 0, 1, 1, 1, 1, 1, 1, 1], 0),  # 7 yes, and no window of 8 that begins with yes fits
        ([0, 0, 1, 1, 1, 1, 1, 1, 1, 1], 3),
    ],
)
def test_e9_edges(yes, expected):
    """Six of eight fire at the first iteration of their window, which must fit into the trace (E9)."""
    assert first_firing(torch.tensor(yes).float().unsqueeze(1), HaltingConfig()).tolist() == [expected]


@pytest.fixture(scope="module")
def trainer():
    torch.manual_seed(0)
    return Trainer(tiny_run(halting__mode="learned"))


def exam(trainer: Trainer, depths: tuple[int, ...], **changes) -> Exam:
    whole = Exam.of(trainer.run, trainer.model, trainer.rendering)
    return replace(whole, depths=depths, **{"sequences": 10, "batch_size": 4} | changes)


def curve(trainer: Trainer, **changes):
    rule = changes.pop("rule", HaltingConfig(mode="learned", tau=0.5, k=1, m=1))
    return halting_curve(exam(trainer, (2, 4, 8), **changes), rule)


def test_not_halted_is_apart_from_wrong(trainer, monkeypatch):
    """A model that never says Yes has halted nowhere, whatever its answers; one that always does halts at once."""
    silent, eager = trainer.rendering.no, trainer.rendering.yes
    monkeypatch.setattr(trainer.rendering, "yes", silent)
    never = curve(trainer)  # p_yes is 1/2 exactly, which is not above tau
    assert never.not_halted == (1, 1, 1)
    assert never.single_query == never.full_state == (0, 0, 0)
    assert never.mean_iterations == (None, None, None)
    monkeypatch.setattr(trainer.rendering, "yes", eager)
    with torch.no_grad():
        trainer.model.head.weight[eager] = 0
        trainer.model.head.weight[silent] = 0
    always = curve(trainer, rule=HaltingConfig(mode="learned", tau=0.4, k=1, m=1))
    assert always.not_halted == (0, 0, 0)
    assert always.mean_iterations == (1, 1, 1)
    assert all(full <= single for full, single in zip(always.full_state, always.single_query, strict=True))


def test_batch_size_changes_nothing(trainer):
    """The curve is the same for any batch size, a last partial batch included; what the coda is called for is not."""
    few, many = (replace(curve(trainer, batch_size=size), mean_computed=(), coda_calls=0) for size in (3, 10))
    assert few == many


def exhaustive(trainer: Trainer, rule: HaltingConfig, indices: np.ndarray, depths: tuple[int, ...], last: int):
    """Where each question halts and what it answers there, from the read-out of every iteration."""
    logits_KBNC, _ = exam(trainer, depths).read(indices, AtIterations(range(1, last + 1)), with_halting=True)
    p_yes_KBN = logits_KBNC[..., -2:].softmax(-1)[..., 0]
    halted_BN = first_firing(p_yes_KBN.flatten(1), rule).view(p_yes_KBN.shape[1:])
    answers_KBN = logits_KBNC[..., :-2].argmax(-1)
    return halted_BN, answers_KBN.gather(0, (halted_BN - 1).clamp_min(0).unsqueeze(0)).squeeze(0), p_yes_KBN


@settings(max_examples=40, deadline=None)
@given(data=st.data(), prompts=st.integers(1, 5))
@torch.no_grad()
def test_lazy_equals_exhaustive_on_a_model(trainer, data, prompts):
    """Whatever the rule, few states read and questions leaving change neither where one halts nor its answer."""
    m = data.draw(st.integers(1, 8))
    depths, last = (2, 4, 8), 8 + m
    indices = np.arange(prompts) + data.draw(st.integers(0, 50))
    open_rule = HaltingConfig(mode="learned", tau=0.5, k=data.draw(st.integers(1, m)), m=m)
    _, _, p_yes_KBN = exhaustive(trainer, open_rule, indices, depths, last)
    tau = float(p_yes_KBN.flatten().quantile(data.draw(st.floats(0.05, 0.95)))) + 1e-6  # where some say yes, some no
    rule = HaltingConfig(mode="learned", tau=tau, k=open_rule.k, m=m)
    halted_BN, answers_BN, _ = exhaustive(trainer, rule, indices, depths, last)
    reading = LazyReading(rule, last=last, prompts=prompts, branches=9)
    (found_BN, said_BN), _ = exam(trainer, depths).read(indices, reading, with_halting=True)
    assert torch.equal(found_BN, halted_BN)
    assert torch.equal(said_BN[halted_BN > 0], answers_BN[halted_BN > 0])
    assert reading.read_S.max() <= last
    assert reading.coda_calls <= 2 * last


def test_who_has_halted_leaves(trainer):
    """Once all have halted no iteration runs; with a rule that fires at once a single state is read."""
    reading = LazyReading(HaltingConfig(mode="learned", tau=1e-6, k=1, m=1), last=9, prompts=3, branches=6)
    with torch.no_grad():
        exam(trainer, (2, 4)).read(np.arange(3), reading, with_halting=True)
    assert reading.halting.iteration == 1
    assert reading.coda_calls == 1
    assert reading.read_S.tolist() == [1] * 18


class Scripted(LazyReading):
    """Yes as a script has it, everything else as the model has it; what iterates and what is read is written down."""

    def __init__(self, p_yes_KBN: np.ndarray, rule: HaltingConfig) -> None:
        last, prompts, branches = p_yes_KBN.shape
        super().__init__(rule, last=last, prompts=prompts, branches=branches)
        self.p_yes_KS = p_yes_KBN.reshape(last, -1)
        self.shapes: list[tuple[int, int]] = []
        self.reads: list[tuple[int, torch.Tensor, int, torch.Tensor]] = []

    def after(self, shown, answer):
        self.shapes.append((shown.state_BTH.shape[0], shown.context.layout.branches))
        assert shown.state_BTH.shape[1] == shown.context.layout.tokens

        def spied(state_BTH, context, rows_B):
            self.logits_BNC, self.rows_B = answer(state_BTH, context, rows_B), rows_B
            return self.logits_BNC

        return super().after(shown, spied)

    def _read_state(self, k, questions_A):
        super()._read_state(k, questions_A)
        self.reads.append((k, self.rows_B, int((questions_A % self.branches).min()), self.logits_BNC))
        return self.p_yes_KS[k - 1, questions_A]


def yes_from(begins_BN: np.ndarray, last: int) -> np.ndarray:
    return (np.arange(1, last + 1)[:, None, None] >= begins_BN).astype(float)


@torch.no_grad()
def test_who_is_done_leaves_and_the_others_go_on(trainer):
    """Prompts and the last branches leave when they are done; those that stay are answered as if nobody had left."""
    begins_BN = np.array([
        [2, 2, 2, 2, 2, 2],
        [4, 4, 5, 2, 2, 1],
        [7, 8, 9, 1, 1, 2],
        [1, 1, 1, 1, 1, 1],
    ])  # fmt: skip
    rule, last = HaltingConfig(mode="learned", k=3, m=3), 12
    reading = Scripted(yes_from(begins_BN, last), rule)
    (halted_BN, said_BN), _ = exam(trainer, (2, 4)).read(np.arange(4), reading, with_halting=True)
    assert reading.shapes == [(4, 6)] * 3 + [(3, 6)] + [(2, 3)] * 3 + [(1, 3)] * 4
    assert halted_BN.tolist() == begins_BN.tolist()
    every = AtIterations(range(1, last + 1))
    logits_KBNC, _ = exam(trainer, (2, 4)).read(np.arange(4), every, with_halting=True)
    answers_KBN = logits_KBNC[..., :-2].argmax(-1)
    assert torch.equal(said_BN, answers_KBN.gather(0, halted_BN.unsqueeze(0) - 1).squeeze(0))
    for k, rows_B, first, found_BNC in reading.reads:
        branches = slice(first, first + found_BNC.shape[1])
        torch.testing.assert_close(found_BNC, logits_KBNC[k - 1, rows_B, branches])


@torch.no_grad()
def test_what_a_call_computes_is_counted(trainer):
    """A call computes all branches of the prompts that ask from the first to the last that asks, and it counts them."""
    begins_BN = np.array([[9, 1, 9], [9, 9, 9], [9, 9, 1]])
    reading = Scripted(yes_from(begins_BN, 3), HaltingConfig(mode="learned", k=2, m=2))
    exam(trainer, (2,)).read(np.arange(3), reading, with_halting=True)
    assert reading.coda_calls == 2  # all at iteration 2; then at 1 who said yes there
    assert reading.read_S.reshape(3, 3).tolist() == [[1, 2, 1], [1, 1, 1], [1, 1, 2]]
    assert reading.computed_BN.tolist() == [[1, 2, 2], [1, 1, 1], [1, 2, 2]]


@torch.no_grad()
def test_certainty_is_a_probability(trainer):
    """Logits that lie far apart give p_yes of 0 or 1, and no warning."""
    rule = HaltingConfig(mode="learned", k=1, m=1)

    class Certain(LazyReading):
        def after(self, shown, answer):
            far_C = torch.tensor([0.0, 0, 0, -500, 500])
            return super().after(shown, lambda *asked: answer(*asked) + far_C)

    reading = Certain(rule, last=2, prompts=2, branches=3)
    (halted_BN, _), _ = exam(trainer, (2,)).read(np.arange(2), reading, with_halting=True)
    assert not halted_BN.any()


def curve_of_two(rank: int, out: Path) -> None:
    """Two workers, each of which reads as its own questions need."""
    torch.manual_seed(0)
    sharded = Trainer(tiny_run(halting__mode="learned", compute__workers=2), data_mesh())
    found = curve(sharded, rule=HaltingConfig(mode="learned", tau=0.5, k=2, m=3), mesh=sharded.mesh)
    again = curve(sharded, rule=HaltingConfig(mode="learned", tau=0.5, k=2, m=3), mesh=sharded.mesh)
    torch.save((found, again), out / f"{rank}.pt")


@pytest.mark.dist
def test_two_workers_halt_as_one(tmp_path):
    """Workers that call the coda at different times have the curve of one, again and again."""
    run_processes(2, curve_of_two, tmp_path)
    alone = Trainer(tiny_run(halting__mode="learned"))
    wanted = curve(alone, rule=HaltingConfig(mode="learned", tau=0.5, k=2, m=3))
    for rank in (0, 1):
        assert torch.load(tmp_path / f"{rank}.pt", weights_only=False) == (wanted, wanted)

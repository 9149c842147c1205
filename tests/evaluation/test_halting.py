"""The halting rule, and what it achieves, against plain Python."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from par.config import HaltingConfig
from par.evaluation.halting import first_firing, halting_curve
from par.tasks.groups import parse_task
from par.testing import tiny_run
from par.training.loop import Trainer


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


def curve(trainer: Trainer, **changes):
    settings = {"depths": (2, 4, 8), "step_size": 1, "sequences": 10, "batch_size": 4}
    rule = HaltingConfig(mode="learned", tau=0.5, k=1, m=1)
    return halting_curve(trainer.model, parse_task("swap-s3"), trainer.rendering, rule, **settings | changes)


def test_not_halted_is_apart_from_wrong(trainer, monkeypatch):
    """A model that never says Yes has halted nowhere, whatever its answers; one that always does halts at once."""
    silent, eager = trainer.rendering.no, trainer.rendering.yes
    monkeypatch.setattr(trainer.rendering, "yes", silent)
    never = curve(trainer)  # p_yes is 1/2 exactly, which is not above tau
    assert never.not_halted == (1, 1, 1)
    assert never.single_query == never.full_state == never.mean_iterations == (0, 0, 0)
    monkeypatch.setattr(trainer.rendering, "yes", eager)
    with torch.no_grad():
        trainer.model.head.weight[eager] = 0
        trainer.model.head.weight[silent] = 0
    always = halting_curve(
        trainer.model, parse_task("swap-s3"), trainer.rendering, HaltingConfig(mode="learned", tau=0.4, k=1, m=1),
        depths=(2, 4, 8), step_size=1, sequences=10, batch_size=4,
    )  # fmt: skip
    assert always.not_halted == (0, 0, 0)
    assert always.mean_iterations == (1, 1, 1)
    assert all(full <= single for full, single in zip(always.full_state, always.single_query, strict=True))


def test_batch_size_changes_nothing(trainer):
    """The curve is the same for any batch size, a last partial batch included."""
    assert curve(trainer, batch_size=10) == curve(trainer, batch_size=3)

"""The scale of every token stays that of iteration 1, and the reference carries no gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from par.model.anchor import anchor_rms, mean_drift, rms
from par.model.context import Context
from par.model.packing import Layout
from par.model.recurrence import Iterations, Recurrence

B, T, H = 2, 3, 16
PRECISION = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
DTYPES = pytest.mark.parametrize("dtype", PRECISION, ids=str)


class Linear(nn.Module):
    """Stands where a decoder layer does: a rotation of the state times a gain."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        rotation_HH = torch.linalg.qr(torch.randn(H, H, generator=torch.Generator().manual_seed(0))).Q
        self.weight = nn.Parameter(gain * rotation_HH)

    def forward(self, state_BTH: Tensor, **context: object) -> Tensor:
        return state_BTH @ self.weight


def iterate(
    e_BTH: Tensor, count: int, *, gain: float = 2.0, anchor: bool = True, real_BT: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Every state (R, B, T, H) of a recurrence whose core multiplies the RMS by ``gain``, and the drift."""
    recurrence = Recurrence(nn.ModuleList([Linear(gain)]), H, anchor=anchor, adapter_init="state").to(e_BTH.dtype)
    context = Context(torch.zeros(B, T, 2), torch.zeros(B, T, 2), Layout(T - 1, 1, torch.full((B, 1), T - 1)), "split")
    real_BT = torch.ones(B, T, dtype=torch.bool) if real_BT is None else real_BT
    plan = Iterations(count=count, keep=tuple(range(1, count + 1)), window=count)
    states, drift = recurrence(e_BTH, context, real_BT, plan)
    return torch.stack(states), drift


def tokens(scale: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return (scale * torch.randn(B, T, H, generator=torch.Generator().manual_seed(1))).to(dtype)


def exact_rms(state: Tensor) -> Tensor:
    return state.double().square().mean(dim=-1, keepdim=True).sqrt()


@DTYPES
@settings(max_examples=25, deadline=None)
@given(scale=st.floats(-1, 4), gain=st.floats(-1, 2), count=st.integers(1, 6))
def test_every_iteration_keeps_the_rms_of_the_first(dtype, scale, gain, count):
    """After every iteration each token has the RMS it had after iteration 1, whatever its scale and the gain."""
    states, _ = iterate(tokens(10**scale, dtype), count, gain=10**gain)
    wanted = exact_rms(states[0]).expand(count, B, T, 1)
    torch.testing.assert_close(exact_rms(states), wanted, rtol=PRECISION[dtype], atol=0)


@DTYPES
def test_anchoring_keeps_the_direction(dtype):
    """An anchored state is the state times one positive number per token."""
    state_BTH, anchor_BT1 = tokens(1e4, dtype), torch.rand(B, T, 1) + 0.1
    anchored_BTH = anchor_rms(state_BTH, rms(state_BTH), anchor_BT1)
    assert anchored_BTH.dtype == dtype
    similarity_BT = torch.cosine_similarity(anchored_BTH.double(), state_BTH.double(), dim=-1)
    torch.testing.assert_close(similarity_BT, torch.ones_like(similarity_BT), rtol=PRECISION[dtype], atol=0)


@DTYPES
def test_zero_and_huge_states_stay_finite(dtype):
    """A zero token stays zero, a token of scale 1e4 stays finite, and so do their gradients."""
    e_BTH = tokens(1e4, dtype)
    e_BTH[:, 0] = 0
    e_BTH.requires_grad_()
    states, drift = iterate(e_BTH, 4)
    states.float().sum().backward()
    assert torch.count_nonzero(states[:, :, 0]) == 0
    assert states.isfinite().all()
    assert drift.isfinite()
    assert e_BTH.grad.isfinite().all()


def test_rms_is_computed_in_fp32():
    """The RMS of a bfloat16 state is that of its values in fp32, not one rounded to three digits."""
    state_BTH = tokens(1.0, torch.bfloat16)
    assert rms(state_BTH).dtype == torch.float32
    torch.testing.assert_close(rms(state_BTH).double(), exact_rms(state_BTH), rtol=1e-6, atol=0)


@pytest.mark.parametrize("anchor", [True, False])
def test_the_reference_carries_no_gradient(anchor):
    """The squared norm of an anchored state has a zero gradient: rms(s_1) is a constant. Unanchored it has one."""
    e_BTH = tokens(1.0).requires_grad_()
    states, _ = iterate(e_BTH, 3, anchor=anchor)
    states[-1].square().sum().backward()
    assert (e_BTH.grad.abs().max() < 1e-4) == anchor


def test_iteration_one_is_untouched():
    """Anchoring is the identity at k = 1."""
    anchored, _ = iterate(tokens(3.0), 3)
    free, _ = iterate(tokens(3.0), 3, anchor=False)
    assert torch.equal(anchored[0], free[0])
    assert not torch.allclose(anchored[1], free[1])


@pytest.mark.parametrize(("anchor", "drift"), [(True, 2.0), (False, 8.0)])
def test_drift_is_the_growth_before_rescaling(anchor, drift):
    """With a core of gain 2 the drift after 4 iterations is 2 where each begins at the anchor, else 2 cubed."""
    assert iterate(tokens(1.0), 4, gain=2.0, anchor=anchor)[1].item() == pytest.approx(drift, rel=1e-5)


def test_drift_leaves_padding_out():
    """The drift is a mean over real tokens, and has no gradient."""
    real_BT = torch.tensor([[True, True, False], [True, False, False]])
    rms_BT1 = torch.where(real_BT, 3.0, 300.0).unsqueeze(-1).requires_grad_()
    drift = mean_drift(rms_BT1, torch.full((B, T, 1), 2.0), real_BT)
    assert drift.item() == 1.5
    assert not drift.requires_grad


def test_an_anchor_of_full_width_is_refused():
    """A state passed where its RMS belongs is a ValueError that shows the shape."""
    state_BTH = tokens(1.0)
    with pytest.raises(ValueError, match=r"anchor is \(2, 3, 16\), must end in 1: pass rms\(state\)"):
        anchor_rms(state_BTH, rms(state_BTH), state_BTH)

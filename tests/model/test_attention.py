"""Both kernels attend alike, and neither holds a (T, T) mask of numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from par.model.attention import Blocks, PrefixAndBranches, additive
from par.model.packing import Layout
from tests.model.visible import visible_BTT

HEADS, GROUPS, D = 4, 2, 8


class Grouped(torch.nn.Module):
    """What a kernel reads of an attention layer: how many query heads share a key head."""

    num_key_value_groups = HEADS // GROUPS


@st.composite
def layouts(draw) -> Layout:
    prefix, branches, query = draw(st.integers(1, 9)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    ends = st.lists(st.integers(0, prefix), min_size=branches, max_size=branches)
    return Layout(prefix, query, torch.tensor(draw(st.lists(ends, min_size=1, max_size=3))))


@pytest.mark.filterwarnings("ignore:.*flex_attention called without torch.compile")
@pytest.mark.parametrize("kernel", [PrefixAndBranches, Blocks])
@settings(max_examples=40, deadline=None)
@given(layout=layouts(), seed=st.integers(0, 99))
@torch.no_grad()
def test_a_kernel_is_softmax_over_what_is_visible(kernel, layout, seed):
    """Every token gathers the softmax-weighted values of the tokens that it sees, whatever the layout."""
    rng = torch.Generator().manual_seed(seed)
    B, T = len(layout.ends_BN), layout.tokens
    q_BATD = torch.randn(B, HEADS, T, D, generator=rng)
    k_BGTD, v_BGTD = torch.randn(2, B, GROUPS, T, D, generator=rng)
    found_BTAD = kernel.of(layout, torch.float32).attend(Grouped(), q_BATD, k_BGTD, v_BGTD, 0.3)
    k_BATD, v_BATD = (t.repeat_interleave(HEADS // GROUPS, dim=1) for t in (k_BGTD, v_BGTD))
    scores_BATT = 0.3 * q_BATD @ k_BATD.transpose(2, 3)
    hidden_B1TT = ~visible_BTT(layout).unsqueeze(1)
    wanted_BATD = scores_BATT.masked_fill(hidden_B1TT, -torch.inf).softmax(-1) @ v_BATD
    torch.testing.assert_close(found_BTAD, wanted_BATD.transpose(1, 2), atol=1e-5, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(layout=layouts())
def test_the_rule_for_pairs_is_the_rule_for_rows(layout):
    """What FlexAttention is told of two tokens is what the mask of the branches says, and causal on the prefix."""
    T, P = layout.tokens, layout.prefix_tokens
    b, q, k = np.ix_(range(len(layout.ends_BN)), range(T), range(T))
    pairs_BTT = layout.sees(*(torch.from_numpy(axis) for axis in (b, q, k)))
    assert torch.equal(pairs_BTT, visible_BTT(layout))
    assert torch.equal(pairs_BTT[:, P:], layout.visible_BQT())


def test_the_mask_grows_with_the_branches_alone():
    """For a prefix of 5 000 tokens and 10 branches the mask has 10 rows."""
    layout = Layout(5000, 1, torch.full((1, 10), 5000))
    assert PrefixAndBranches.of(layout, torch.float32).mask_B1QT.shape == (1, 1, 10, 5010)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_hidden_is_the_least_finite_number(dtype):
    """A mask holds no infinity: a row of nothing but infinities would be NaN."""
    mask_B1QT = additive(torch.tensor([[[True, False]]]), dtype)
    assert mask_B1QT.tolist() == [[[[0.0, torch.finfo(dtype).min]]]]
    assert mask_B1QT.dtype == dtype

"""The read-out is the parent's own head, restricted to candidates."""

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from par.config.backbones import BACKBONES
from par.model.build import random_parent
from par.model.looped import LoopedModel
from par.model.readout import CandidateHead, candidate_logits

K, B, N, H, C, V = 2, 3, 4, 8, 3, 11


@pytest.fixture
def states_KBNH():
    return torch.randn(K, B, N, H, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def candidates_BC():
    """Every prompt has candidates of its own."""
    return torch.tensor([[0, 5, 10], [3, 2, 1], [7, 7, 9]])


def head(dtype: torch.dtype = torch.float32) -> CandidateHead:
    weight_VH = torch.randn(V, H, generator=torch.Generator().manual_seed(1))
    return CandidateHead(nn.Parameter(weight_VH)).to(dtype)


def test_candidate_logits_are_rows_of_the_full_head(states_KBNH, candidates_BC):
    """Each prompt gets the logits that the whole output matrix would give to its own candidates."""
    readout = head()
    full_KBNV = linear(states_KBNH, readout.weight)
    wanted_KBNC = full_KBNV.gather(-1, candidates_BC[None, :, None].expand(K, B, N, C))
    torch.testing.assert_close(candidate_logits(states_KBNH, readout(candidates_BC)), wanted_KBNC, atol=1e-6, rtol=0)


def test_logits_are_fp32_whatever_the_weights(states_KBNH, candidates_BC):
    """bfloat16 states and weights are multiplied in fp32: no logit is rounded to bfloat16."""
    readout, states = head(torch.bfloat16), states_KBNH.bfloat16()
    logits_KBNC = candidate_logits(states, readout(candidates_BC))
    rows_BCH = readout.weight.double()[candidates_BC]
    wanted_KBNC = torch.einsum("kbnh,bch->kbnc", states.double(), rows_BCH)
    assert logits_KBNC.dtype == torch.float32
    torch.testing.assert_close(logits_KBNC.double(), wanted_KBNC, atol=1e-6, rtol=0)


def test_only_candidates_are_trained(states_KBNH, candidates_BC):
    """The output matrix has a gradient in the rows of candidates, and exactly zero in all others."""
    readout = head()
    candidate_logits(states_KBNH, readout(candidates_BC)).square().sum().backward()
    trained_V = readout.weight.grad.abs().sum(dim=1) > 0
    assert set(trained_V.nonzero().flatten().tolist()) == set(candidates_BC.flatten().tolist())


@pytest.mark.parametrize(("backbone", "tied"), [("tiny-qwen2", True), ("tiny-qwen2-untied", False)])
def test_a_tied_matrix_stays_tied(backbone, tied):
    """The head's matrix is the embedding itself where the parent ties them, and another one where it does not."""
    model = LoopedModel(random_parent(BACKBONES[backbone], V, 0))
    assert (model.head.weight is model.embed.weight) == tied

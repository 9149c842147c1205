"""What the tests of the model share: parents whose every parameter counts, and prompts of one question."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from par.config.backbones import BACKBONES
from par.model.build import random_parent
from par.tasks.groups import GroupTask
from par.tasks.prompts import Rendering
from par.tasks.streams import Split, examples


def _parent(family: str, vocabulary: int, *, tied: bool = True) -> PreTrainedModel:
    backbone = replace(BACKBONES[f"tiny-{family}"], tied=tied, initializer_range=0.2)
    parent = random_parent(backbone, vocabulary, seed=7)
    rng = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in parent.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn(p.shape, generator=rng))
    return parent


def _question(task: GroupTask, rendering: Rendering, index: int, operations: int, box: int) -> tuple[Tensor, ...]:
    drawn = examples(task, seed=3, split=Split.TRAIN, indices=[index], depth=operations)
    prompts = rendering.render(drawn)
    query_L = prompts.query_BNL[0, box]
    ids = np.concatenate([prompts.prefix_BP[0], query_L])
    positions = np.concatenate([prompts.positions_BP[0], prompts.starts_BJ[0, -1] + np.arange(len(query_L))])
    return torch.from_numpy(ids[None]), torch.from_numpy(positions[None]), torch.from_numpy(prompts.candidates_BN)


@pytest.fixture(scope="session")
def parent() -> Callable[..., PreTrainedModel]:
    """Build a random parent: the same at every call, as a looped model uses its parent up.

    Weights, norms and biases are large enough for a wrong use of any to show.
    """
    return _parent


@pytest.fixture(scope="session")
def question() -> Callable[..., tuple[Tensor, ...]]:
    """Write one box's question on the first operations of example ``index`` of seed 3 as a prompt of its own.

    Gives token ids and positions, both (1, T), and the candidates (1, C).
    """
    return _question

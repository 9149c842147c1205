"""What a read-out says. One whose logits are not all finite says nothing, so that it counts as wrong and halts nobody.

Dimension letters: C candidates.
"""

import torch
from torch import Tensor

NO_ANSWER = -1
"""In the place of a candidate's number; never the right one."""


def answers(logits_C: Tensor) -> Tensor:
    """The candidate with the largest logit, of logits (…, C); NO_ANSWER where one of them is not finite."""
    return logits_C.argmax(-1).where(_sound(logits_C), NO_ANSWER)


def answers_and_p_yes(logits_C: Tensor) -> tuple[Tensor, Tensor]:
    """The answers, and the probability of Yes, of logits (…, C) whose last two candidates are Yes and No.

    Where a logit is not finite, that of Yes and No included, they are NO_ANSWER and 0.
    """
    sound, p_yes = _sound(logits_C), logits_C[..., -2:].softmax(-1)[..., 0]
    return logits_C[..., :-2].argmax(-1).where(sound, NO_ANSWER), p_yes.where(sound, 0.0)


def _sound(logits_C: Tensor) -> Tensor:
    return torch.isfinite(logits_C).all(-1)

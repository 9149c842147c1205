"""The read-out: logits of the tokens that can be an answer, and of no other, and what they say.

One whose logits are not all finite says nothing, so that it counts as wrong and halts nobody.

Dimension letters: B prompts, N branches, H width, C candidates.
"""

import torch
from torch import Tensor, nn

NO_ANSWER = -1
"""In the place of a candidate's number; never the right one."""


class CandidateHead(nn.Module):
    """The parent's output matrix, of which a pass takes the rows of its candidates, once.

    The matrix is the parent's own parameter: tied to the embedding where the parent ties it.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, candidates_BC: Tensor) -> Tensor:
        """The rows (B, C, H) of the candidate token ids."""
        return nn.functional.embedding(candidates_BC, self.weight)


def candidate_logits(normed_BNH: Tensor, candidates_BCH: Tensor) -> Tensor:
    """Logits in fp32, (…, B, N, C), of normed states (…, B, N, H)."""
    logits_BNC = torch.einsum("...bnh,bch->...bnc", normed_BNH.float(), candidates_BCH.float())
    return logits_BNC.clone()  # FSDP2 warns of an output that is a view


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

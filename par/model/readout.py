"""The read-out: logits of the tokens that can be an answer, and of no other.

Dimension letters: B prompts, N branches, H width, C candidates.
"""

import torch
from torch import Tensor, nn


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

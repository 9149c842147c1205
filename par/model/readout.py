"""The read-out: logits of the tokens that can be an answer, and of no other.

Dimension letters: K kept iterations, B prompts, N branches, H width, C candidates.
"""

import torch
from torch import Tensor, nn


class CandidateHead(nn.Module):
    """The parent's final norm and output matrix, applied to candidate tokens only.

    The output matrix is the parent's own parameter: tied to the embedding where the parent ties it.
    """

    def __init__(self, norm: nn.Module, weight: nn.Parameter) -> None:
        super().__init__()
        self.norm = norm
        self.weight = weight

    def forward(self, states_KBNH: Tensor, candidates_BC: Tensor) -> Tensor:
        """Logits in fp32 (K, B, N, C) of the candidate token ids (B, C) at every answer row."""
        candidates_BCH = nn.functional.embedding(candidates_BC, self.weight)
        logits_KBNC = torch.einsum("kbnh,bch->kbnc", self.norm(states_KBNH).float(), candidates_BCH.float())
        return logits_KBNC.clone()  # FSDP2 warns of an output that is a view

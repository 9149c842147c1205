"""What each kept iteration must answer, and how much each answer counts.

Dimension letters: K kept iterations, B prompts, N branches, C candidates.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from par.model.packing import Movable


@dataclass(frozen=True, slots=True)
class Targets(Movable):
    """Targets and weights (K, B, N). The weights of the global batch add up to 1, however it is cut."""

    answers_KBN: Tensor
    """Index among the prompt's own candidates."""
    weights_KBN: Tensor
    taught_KBN: Tensor
    """Weights of what a teacher answers instead; the answer there is not looked at."""
    halt_KBN: Tensor
    """1 where the computation is complete (Yes), else 0 (No)."""
    halt_weights_KBN: Tensor
    """Those of Yes and those of No add up to 1/2 each. Nobody looks at them where halting is not learned."""


def weighted_loss(
    logits_KBNC: Tensor, targets: Targets, *, halting_weight: float, teacher_KBNC: Tensor | None = None
) -> Tensor:
    """Cross-entropy in fp32 over the candidates, plus that over (Yes, No) where halting is learned; a scalar in nats.

    The last two candidates are Yes and No if any halting weight is set. Where a teacher answers, the divergence
    KL(teacher ‖ student) from its probabilities over the prompt's own candidates takes the place of the cross-entropy.
    """
    logits_KBNC = logits_KBNC.float()
    own_KBNC = logits_KBNC[..., :-2] if halting_weight else logits_KBNC
    loss = _weighted_cross_entropy(own_KBNC, targets.answers_KBN, targets.weights_KBN)
    if teacher_KBNC is not None:
        loss = loss + _weighted_divergence(own_KBNC, teacher_KBNC, targets.taught_KBN)
    if halting_weight:
        no_yes = logits_KBNC[..., [-1, -2]]
        loss = loss + halting_weight * _weighted_cross_entropy(no_yes, targets.halt_KBN, targets.halt_weights_KBN)
    return loss


def _weighted_cross_entropy(logits_KBNC: Tensor, targets_KBN: Tensor, weights_KBN: Tensor) -> Tensor:
    losses = cross_entropy(logits_KBNC.flatten(0, -2), targets_KBN.flatten(), reduction="none")
    return (losses * weights_KBN.flatten()).sum()


def _weighted_divergence(logits_KBNC: Tensor, teacher_KBNC: Tensor, weights_KBN: Tensor) -> Tensor:
    divergences_KBNC = kl_div(logits_KBNC.log_softmax(-1), teacher_KBNC, reduction="none")
    return (divergences_KBNC.sum(-1) * weights_KBN).sum()

"""The method as the paper's pseudo-code has it: a prompt for every question, everything computed for every token.

It runs on the product's own modules, so that both have the same layers and weights and only the method differs.
Dimension letters: B prompts, X boxes, Q questions, T tokens, L query tokens, H width, A heads, D head width,
V vocabulary, C candidates, J operations done.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, log_softmax
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from par.config.run import RunConfig
from par.evaluation.accuracy import DepthCurve
from par.model.looped import LoopedModel
from par.tasks.groups import GroupTask, parse_task
from par.tasks.prompts import Prompts, Rendering
from par.tasks.streams import EVALUATION_SEED, Split, examples
from par.training.draws import draw_depth
from par.training.optim import build_optimizers, clip_gradients, rate_factor, set_rate


@dataclass(frozen=True, slots=True)
class Questions:
    """One prompt for each question, its query last."""

    ids_QT: Tensor
    positions_QT: Tensor
    candidates_QC: Tensor
    """Token ids of the possible answers."""
    answers_QJ: Tensor
    """The candidate that the asked box holds after j = 0 … D operations."""

    @classmethod
    def about(cls, prompts: Prompts, boxes: Sequence[int]) -> Self:
        """Ask every prompt for every box after all of its operations; the questions of one box are neighbours.

        Raises ValueError if the prompts differ in length: the reference knows no padding.
        """
        if (prompts.length_B != prompts.prefix_BP.shape[1]).any():
            raise ValueError(f"prompts have lengths {sorted(set(prompts.length_B.tolist()))}: use a task of one length")
        per_box = [cls._about_box(prompts, box) for box in boxes]
        return cls(*(torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*per_box, strict=True)))

    @staticmethod
    def _about_box(prompts: Prompts, box: int) -> tuple[np.ndarray, ...]:
        query_BL = prompts.query_BNL[:, box]
        positions_BL = prompts.starts_BJ[:, -1:] + np.arange(query_BL.shape[1])
        return (
            np.concatenate([prompts.prefix_BP, query_BL], axis=1),
            np.concatenate([prompts.positions_BP, positions_BL], axis=1),
            prompts.candidates_BN,
            prompts.answers_BJN[:, :, box],
        )

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        return self.ids_QT, self.positions_QT, self.candidates_QC, self.answers_QJ

    def to(self, device: torch.device) -> "Questions":
        """The same questions on a device."""
        return Questions(*(tensor.to(device) for tensor in self._tensors))

    def parts(self, size: int) -> Iterator["Questions"]:
        """Yield the questions in their order, ``size`` at a time, the last part with what is left."""
        for tensors in zip(*(tensor.split(size) for tensor in self._tensors), strict=True):
            yield Questions(*tensors)


class Causal:
    """Every token sees those to its left and itself: the library's fused kernel, which skips what is hidden."""

    def attend(self, layer: nn.Module, q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, scaling: float) -> Tensor:
        """What every token gathers: (B, T, A, D)."""
        return sdpa_attention_forward(layer, q_BATD, k_BATD, v_BATD, None, scaling=scaling)[0]


def loop(model: LoopedModel, questions: Questions, *, iterations: int, read_last: int) -> list[Tensor]:
    """Logits (Q, T, V) of every token over the vocabulary, after each of the ``read_last`` last iterations.

    These are also the iterations that carry gradient.
    """
    h_QTH = model.embed(questions.ids_QT)
    rotary = model.rotary(h_QTH, questions.positions_QT)

    def run(layers: Iterable[nn.Module], state_QTH: Tensor) -> Tensor:
        for layer in layers:
            state_QTH = layer(state_QTH, attention_mask=Causal(), position_embeddings=rotary)
        return state_QTH

    coda = (*model.coda.layers, model.coda.answer.layer)

    e_QTH = run(model.prelude, h_QTH)
    state_QTH, anchor_QT1, logits = e_QTH, None, []
    for k in range(1, iterations + 1):
        read = k > iterations - read_last
        with torch.set_grad_enabled(torch.is_grad_enabled() and read):
            adapted_QTH = model.recurrence.adapter(torch.cat([e_QTH, state_QTH], dim=-1))
            state_QTH = run(model.recurrence.layers, adapted_QTH)
            rms_QT1 = state_QTH.square().mean(dim=-1, keepdim=True).sqrt()
            anchor_QT1 = rms_QT1.detach() if anchor_QT1 is None else anchor_QT1
            if model.recurrence.anchor and k > 1:
                state_QTH = state_QTH * (anchor_QT1 / rms_QT1)
        if read:
            logits.append(linear(model.norm(run(coda, state_QTH)), model.head.weight))
    return logits


def candidate_log_probabilities(logits_QTV: Tensor, questions: Questions) -> Tensor:
    """Log-probabilities (Q, C) of the next token, which is one of the candidates."""
    candidates_QC = log_softmax(logits_QTV, dim=-1)[:, -1].gather(-1, questions.candidates_QC)
    return candidates_QC - candidates_QC.logsumexp(dim=-1, keepdim=True)


def progress_loss(model: LoopedModel, questions: Questions, *, iterations: int, window: int, step_size: int) -> Tensor:
    """Mean cross-entropy, in nats, of the answers after c·k operations at the last ``window`` iterations k."""
    depth, losses = questions.answers_QJ.shape[1] - 1, []
    logits = loop(model, questions, iterations=iterations, read_last=window)
    for k, logits_QTV in enumerate(logits, start=iterations - len(logits) + 1):
        answers_Q1 = questions.answers_QJ[:, min(step_size * k, depth)].unsqueeze(1)
        losses.append(-candidate_log_probabilities(logits_QTV, questions).gather(1, answers_Q1).mean())
    return torch.stack(losses).mean()


class PlainTrainer:
    """Trains ``model`` on the batches of ``run`` (forced depth, objective progress) with the product's optimizer."""

    def __init__(self, run: RunConfig, model: LoopedModel, rendering: Rendering) -> None:
        self.run, self.model, self.rendering = run, model, rendering
        self.task, self.device = parse_task(run.task.name), next(model.parameters()).device
        self.optimizers = build_optimizers(model, run.optim)

    def questions(self, number: int) -> Questions:
        """All boxes of all prompts of the step of this number (0-based)."""
        depth, size = draw_depth(self.run, number).operations, self.run.train.batch_size
        indices = number * size + np.arange(size)
        drawn = examples(self.task, seed=self.run.seed, split=Split.TRAIN, indices=indices, depth=depth)
        return Questions.about(self.rendering.render(drawn), range(self.task.boxes)).to(self.device)

    def step(self, number: int) -> tuple[float, float]:
        """Do the step of this number (0-based); return its loss and the norm of its gradient before clipping."""
        recurrence = self.run.recurrence
        loss = progress_loss(
            self.model, self.questions(number), iterations=draw_depth(self.run, number).iterations,
            window=recurrence.gradient_window, step_size=recurrence.step_size,
        )  # fmt: skip
        loss.backward()
        grad_norm = clip_gradients(self.model, self.run.optim.clip)
        set_rate(self.optimizers, rate_factor(self.run.optim, self.run.train, number))
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return float(loss.detach()), float(grad_norm)


@torch.no_grad()
def plain_curve(
    model: LoopedModel,
    task: GroupTask,
    rendering: Rendering,
    *,
    depths: Sequence[int],
    step_size: int,
    sequences: int,
    batch_size: int,
) -> DepthCurve:
    """Accuracy on the first ``sequences`` frozen test prompts: for each depth passes of ``batch_size`` questions."""
    single_query, full_state = [], []
    for depth in depths:
        drawn = examples(task, seed=EVALUATION_SEED, split=Split.TEST, indices=range(sequences), depth=depth)
        asked = Questions.about(rendering.render(drawn), range(task.boxes)).to(next(model.parameters()).device)
        right = [_answered(model, part, ceil(depth / step_size)) for part in asked.parts(batch_size)]
        right_XB = torch.cat(right).unflatten(0, (task.boxes, sequences))
        single_query.append(float(right_XB.float().mean()))
        full_state.append(float(right_XB.all(dim=0).float().mean()))
    return DepthCurve(tuple(depths), tuple(single_query), tuple(full_state), sequences)


def _answered(model: LoopedModel, questions: Questions, iterations: int) -> Tensor:
    """Which questions are answered right after the last iteration, booleans (Q,)."""
    [logits_QTV] = loop(model, questions, iterations=iterations, read_last=1)
    return candidate_log_probabilities(logits_QTV, questions).argmax(dim=-1) == questions.answers_QJ[:, -1]

"""What a read-out says, and that one which is not finite says nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from par.config.groups import HaltingConfig
from par.evaluation.accuracy import depth_curve
from par.evaluation.exam import Exam
from par.evaluation.halting import halting_curve
from par.evaluation.tracing import record_traces
from par.model.readout import NO_ANSWER, answers, answers_and_p_yes
from par.testing import tiny_run
from par.training.loop import Trainer

BROKEN = [torch.nan, torch.inf, -torch.inf]


def test_the_largest_logit_answers():
    """The answer is a candidate that is neither Yes nor No, and p_yes the softmax of these two alone."""
    logits_2C = torch.tensor([[1.0, 3.0, 2.0, 9.0, 8.0], [5.0, 3.0, 2.0, 0.0, 100.0]])
    assert answers(logits_2C).tolist() == [3, 4]
    said_2, p_yes_2 = answers_and_p_yes(logits_2C)
    assert said_2.tolist() == [1, 0]
    assert p_yes_2.tolist() == pytest.approx([1 / (1 + np.exp(-1)), 0])


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("place", range(5))
def test_a_read_out_that_is_not_finite_says_nothing(value, place):
    """One such logit, that of Yes or No included, leaves no answer and no Yes; other read-outs are as they were."""
    logits_2C = torch.tensor([[1.0, 3.0, 2.0, 9.0, 8.0]] * 2)
    logits_2C[0, place] = value
    assert answers(logits_2C).tolist() == [NO_ANSWER, 3]
    said_2, p_yes_2 = answers_and_p_yes(logits_2C)
    assert said_2.tolist() == [NO_ANSWER, 1]
    assert p_yes_2.tolist() == pytest.approx([0, 1 / (1 + np.exp(-1))])


@pytest.mark.parametrize("value", BROKEN)
def test_a_model_that_says_nothing_is_never_right(value):
    """Accuracy, halting and trace alike: nothing right, nobody halts, every p_yes 0 and no answer."""
    trainer = Trainer(tiny_run(halting__mode="learned"))
    with torch.no_grad():
        trainer.model.coda.answer.layer.mlp.down_proj.weight[0, 0] = value
    whole = Exam.of(trainer.run, trainer.model, trainer.rendering)
    exam = replace(whole, depths=(2, 4), sequences=6, batch_size=4)
    assert depth_curve(exam).single_query == (0, 0)
    halting = halting_curve(exam, HaltingConfig(mode="learned", tau=0.01, k=1, m=1))
    assert (halting.single_query, halting.not_halted) == ((0, 0), (1, 1))
    traces = record_traces(exam, last=5)
    assert (traces.answer_SK == NO_ANSWER).all()
    assert (traces.p_yes_SK == 0).all()

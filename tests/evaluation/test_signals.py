"""Signals of instability: drift at fixed iterations, spikes of the gradient."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from par.evaluation.exam import Exam
from par.evaluation.signals import PROMPTS, drift_profile
from par.model.packing import Branches, pack
from par.model.recurrence import Iterations
from par.statistics.trends import spikes
from par.tasks.streams import EVALUATION_SEED, Split, examples
from par.testing import tiny_run
from par.training.loop import Trainer


@pytest.mark.parametrize(("step_size", "wanted"), [(1, (2, 4, 8)), (2, (1, 2, 4)), (5, (1, 1, 2))])
@torch.no_grad()
def test_drift_is_that_of_passes_which_end_there(step_size, wanted):
    """At R/2, R and 2R it is the drift that a pass of so many iterations reports, on prompts of d_train operations."""
    run = tiny_run(recurrence__step_size=step_size, backbone="tiny-qwen3", task__name="s4-full", task__rendering="text")
    trainer = Trainer(run)
    found = drift_profile(replace(Exam.of(run, trainer.model, trainer.rendering), depths=(4,)))
    drawn = examples(
        trainer.batches.task, seed=EVALUATION_SEED, split=Split.VALIDATION, indices=np.arange(PROMPTS), depth=4
    )
    batch = pack(trainer.rendering.render(drawn), Branches.all_boxes(np.full((PROMPTS, 1), 4), 4))
    drifts = [trainer.model(batch, Iterations(count=k, keep=(k,)))[1].item() for k in wanted]
    assert found == pytest.approx(drifts, rel=1e-5)
    assert len({round(drift, 6) for drift in drifts}) > 1 or step_size == 5


@pytest.mark.parametrize(
    ("norms", "count"), [([], 0), ([1.0] * 9, 0), ([1.0] * 9 + [10.0], 0), ([1.0] * 9 + [10.1, 99.0], 2)]
)
def test_a_spike_is_far_above_the_median(norms, count):
    """Only norms above ten times the run's median count."""
    assert spikes(norms) == count

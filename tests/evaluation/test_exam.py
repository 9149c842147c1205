"""What an exam refuses to ask."""

from dataclasses import replace

import pytest

from par.errors import ConfigError
from par.evaluation.exam import Exam
from par.testing import tiny_run
from par.training.loop import Trainer


@pytest.fixture(scope="module")
def exam() -> Exam:
    trainer = Trainer(tiny_run())
    return Exam.of(trainer.run, trainer.model, trainer.rendering)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depths": ()}, r"depths=\[\] must ascend within 1 to 65536"),
        ({"depths": (0, 2)}, r"depths=\[0, 2\] must ascend"),
        ({"depths": (4, 2)}, r"depths=\[4, 2\] must ascend"),
        ({"depths": (2**17,)}, "must ascend within 1 to 65536"),
        ({"step_size": 0}, "step_size=0 is below 1"),
        ({"sequences": 0}, "sequences=0 is below 1"),
        ({"batch_size": 0}, "batch_size=0 is below 1"),
        ({"stretch": 0.0}, "stretch=0 is not above 0"),
        ({"stretch": float("nan")}, "stretch=nan is not above 0"),
        ({"stretch": 1e300}, "at most 1000"),
    ],
)
def test_what_cannot_be_asked_is_refused(exam, changes, message):
    """With the value and the limit, before any pass."""
    with pytest.raises(ConfigError, match=message):
        replace(exam, **changes)

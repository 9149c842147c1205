"""What an attempt died of, and how the next one is made smaller."""

from pathlib import Path
from typing import Any

import pytest
import torch
from ray import tune
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

from par.errors import CheckpointError, ConfigError, DivergedError, FailureKind, PassTooLargeError
from par.study.ledger import ConfigRecord, Ledger
from par.study.records import Attempt
from par.testing import tiny_run
from ray_jobs import trial
from ray_jobs.cluster import DRIVER, connected
from ray_jobs.recovery import kind_of, learnt_pass, smaller_pass
from ray_jobs.ticket import Ticket
from ray_jobs.worker import run_seed

OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
TOO_LARGE = PassTooLargeError("8 prompts do not fit")
WRAPPED = UserExceptionWithTraceback(OOM, "as Ray Train brings it home")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (OOM, FailureKind.OOM_GPU),
        (ConfigError("x"), FailureKind.CONFIG),
        (CheckpointError("x"), FailureKind.DATA),
        (DivergedError("x"), FailureKind.NUMERIC),
        (RuntimeError("x"), FailureKind.WORKER_DIED),
        (
            WorkerGroupError("x", {0: RuntimeError("peer"), 1: UserExceptionWithTraceback(OOM, "…")}),
            FailureKind.OOM_GPU,
        ),
        (WorkerGroupError("x", {0: RuntimeError("peer")}), FailureKind.WORKER_DIED),
    ],
    ids=lambda value: value.value if isinstance(value, FailureKind) else type(value).__name__,
)
def test_a_failure_has_the_kind_of_what_caused_it(fault, kind):
    """Of several workers the one that knows why counts, not its peers; what nobody knows is WORKER_DIED."""
    assert kind_of(fault) is kind


def test_what_an_error_was_raised_for_counts():
    """An error around another has the other's kind, unless it has one of its own."""
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("around") from OOM
    assert kind_of(caught.value) is FailureKind.OOM_GPU


@pytest.mark.parametrize(("changes", "smaller"), [({}, 4), ({"micro_batch": 3}, 1), ({"workers": 2}, 2)])
def test_a_smaller_pass_has_half_the_prompts(changes, smaller):
    """Half of what a worker takes at once, whether that is its share of the batch or set already."""
    run = tiny_run(**{f"train__{key}": value for key, value in changes.items()})
    assert smaller_pass(run, WorkerGroupError("x", {0: RuntimeError("peer"), 1: TOO_LARGE})) == smaller


def test_one_prompt_cannot_be_halved():
    """A pass of one prompt is the least: memory is lacking for another reason, and the error is shown."""
    assert smaller_pass(tiny_run(train__micro_batch=1), TOO_LARGE) is None


@pytest.mark.parametrize("fault", [OOM, RuntimeError("x"), ConfigError("x")])
def test_only_a_training_pass_is_made_smaller(fault):
    """Memory that is lacking in the evaluation, or for the model itself, is not had by smaller training passes."""
    assert smaller_pass(tiny_run(), fault) is None


def test_what_was_learnt_is_kept():
    """A later attempt begins with the prompts per pass that others came down to, and as configured if none had to."""
    lives = [Attempt(1, {"micro_batch": 8, "next_micro_batch": 4}), Attempt(2, {"micro_batch": 4}), Attempt(3, {})]
    assert learnt_pass(lives) == 4
    assert learnt_pass(lives[1:]) is None


def ticket(storage: Path, name: str, workers: int) -> Ticket:
    run = tiny_run(train__steps=6, train__checkpoint_every=2, train__workers=workers)
    ledger = Ledger.create(storage, name, {"space": ""})
    record = ConfigRecord.of(run, number=0, suggested={})
    ledger.add_config(record)
    return Ticket.of(ledger, record, 0, gpus=0, cpus=1)


def poor(limit: int, rank: int) -> Any:
    """A trial in which one rank runs out of memory, from step 3 on, with more than ``limit`` prompts per pass."""

    def run(config: dict[str, Any]) -> None:
        from par.training.loop import Trainer
        from par.training.parallel import workers

        real = Trainer._forward_backward

        def forward_backward(self: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
            if self.step >= 3 and workers(self.mesh)[0] == rank and self.run.train.prompts_per_pass > limit:
                raise torch.OutOfMemoryError(f"injected: {self.run.train.prompts_per_pass} prompts")
            return real(self)

        Trainer._forward_backward = forward_backward

    def start(config: dict[str, Any]) -> None:
        real = trial._worker

        def worker(settings: dict[str, Any]) -> None:
            run(settings)
            real(settings)

        trial._worker = worker
        run(config)
        trial.run_trial(config)

    return start


@pytest.mark.ray
@pytest.mark.parametrize("workers", [1, 2])
def test_out_of_memory_on_one_rank_halves_the_pass_of_all(tmp_path, workers):
    """The seed ends with the result of a process with enough memory, from its checkpoint on and with smaller passes.

    The failed attempt keeps its kind, and the prompts per pass that worked are recorded.
    """
    tickets = {"poor": ticket(tmp_path, "poor", workers), "rich": ticket(tmp_path, "rich", 1)}
    run_seed(tickets["rich"], lambda record: None)
    with connected(None):
        run = poor(2, rank=workers - 1)
        placed = tune.with_resources(run, {"CPU": 1} if workers == 1 else {DRIVER: 1})
        [found] = tune.Tuner(placed, param_space={"ticket": tickets["poor"].to_dict()}).fit()
        assert found.error is None
    states = {name: asked.ledger().read_config(asked.config).seeds[0] for name, asked in tickets.items()}
    lives = [life.record for life in states["poor"].attempts]
    first = 8 // workers
    assert [life["micro_batch"] for life in lives] == ([8, 4, 2] if workers == 1 else [4, 2])
    assert [life.get("failure") for life in lives] == [FailureKind.OOM_GPU] * (len(lives) - 1) + [None]
    assert [life["resumed_at"] for life in lives] == [0] + [2] * (len(lives) - 1)
    assert f"injected: {first} prompts" in lives[0]["message"]
    poor_result, rich_result = (states[name].result for name in ("poor", "rich"))
    assert poor_result.metrics.keys() == rich_result.metrics.keys()
    assert poor_result.metrics["G"] == rich_result.metrics["G"]
    losses = {name: asked.ledger().read_bytes(asked.config, 0, "history.parquet") for name, asked in tickets.items()}
    assert final_loss(losses["poor"]) == pytest.approx(final_loss(losses["rich"]), rel=1e-4)


def final_loss(history: bytes) -> float:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(history)).to_pylist()[-1]["train/loss"]

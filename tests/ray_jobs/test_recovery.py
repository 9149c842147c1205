"""What follows a failure: budgets by kind, and passes that are made smaller."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ray import tune

from par.errors import FROM_OUTSIDE, FailureKind
from par.ledger.ledger import Ledger
from par.ledger.records import Attempt, ConfigRecord, SweepRecord
from par.race.retry import BUDGETS, GiveUp, StartAgain, decide, learnt_pass, smaller_pass
from par.testing import tiny_run
from ray_jobs.trial import trial
from ray_jobs.trial.cluster import DRIVER, connected
from ray_jobs.trial.spec import TrialSpec
from ray_jobs.trial.trial import supervised

WITHOUT_BUDGET = [kind for kind in FailureKind if kind not in FROM_OUTSIDE and kind not in BUDGETS]


def life(number: int, failure: str | None = None, *, at: int = 0, saved: int | None = None, **more: Any) -> Attempt:
    saved = at if saved is None else saved
    return Attempt(number=number, resumed_at=at, saved_step=saved, end="…", failure=failure, **more)


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_budget_is_used_up_where_nothing_comes_further(kind):
    """A failure that may pass is followed by as many new starts as its kind allows, then by none, with the reason."""
    lives = [life(number, kind) for number in range(1, BUDGETS[kind] + 2)]
    assert all(isinstance(decide(lives[:count]), StartAgain) for count in range(1, BUDGETS[kind] + 1))
    end = decide(lives)
    assert isinstance(end, GiveUp)
    assert (end.kind, end.whole_configuration) == (kind, False)
    assert f"after {len(lives)} attempts from step 0" in end.reason


@pytest.mark.parametrize("kind", FROM_OUTSIDE)
def test_what_the_run_did_not_do_uses_up_no_budget(kind):
    """However often a node goes or a person stops the sweep, the seed starts again, and its other budgets stay (C7)."""
    lives = [life(1, FailureKind.WORKER_DIED), *(life(number, kind) for number in range(2, 30))]
    assert isinstance(decide(lives), StartAgain)
    assert isinstance(decide([*lives, life(30, FailureKind.WORKER_DIED)]), StartAgain)


@pytest.mark.parametrize("kind", WITHOUT_BUDGET)
def test_what_would_happen_again_is_not_tried_again(kind):
    """Other kinds are given up at once, with advice; only a fault of settings or data stops the configuration (T14).

    However far the attempt has come: that budgets begin anew with a saved step is for failures that may pass.
    """
    assert isinstance(decide([life(1, kind, at=0, saved=40)]), GiveUp)
    end = decide([life(1, kind)])
    assert isinstance(end, GiveUp)
    assert end.whole_configuration == (kind in (FailureKind.CONFIG, FailureKind.DATA))
    assert end.reason.startswith(f"{kind}: ")


@given(st.lists(st.sampled_from(list(BUDGETS)), min_size=1, max_size=30))
def test_an_attempt_that_comes_further_renews_the_budgets(kinds):
    """A seed that saves steps between its failures is never given up."""
    lives = [life(n + 1, kind, at=10 * n, saved=10 * (n + 1)) for n, kind in enumerate(kinds)]
    assert isinstance(decide(lives), StartAgain)


def test_a_person_renews_the_budgets():
    """What was given up and asked for again has its whole budget, and is given up again when that is used up (R1)."""
    before = [life(number, FailureKind.HANG) for number in (1, 2)]
    assert isinstance(decide(before), GiveUp)
    asked = life(3, FailureKind.HANG, asked_for=True)
    assert isinstance(decide([*before, asked]), StartAgain)
    assert isinstance(decide([*before, asked, life(4, FailureKind.HANG)]), GiveUp)


@pytest.mark.parametrize("lives", [[], [life(1)], [life(1, FailureKind.OOM_GPU, next_micro_batch=2)]])
def test_what_did_not_fail_goes_on(lives):
    """A seed that never began, one that ended without a fault, and one whose pass gets smaller are started."""
    assert isinstance(decide(lives), StartAgain)


@pytest.mark.parametrize(("changes", "smaller"), [({}, 4), ({"micro_batch": 3}, 1), ({"workers": 2}, 2)])
def test_a_smaller_pass_has_half_the_prompts(changes, smaller):
    """Half of what a worker takes at once, whether that is its share of the batch or set already."""
    assert smaller_pass(tiny_run(**{f"compute__{key}": value for key, value in changes.items()})) == smaller


def test_one_prompt_cannot_be_halved():
    """A pass of one prompt is the least: memory is lacking for another reason, and the error is shown."""
    assert smaller_pass(tiny_run(compute__micro_batch=1)) is None


def test_what_was_learnt_is_kept():
    """A later attempt begins with the prompts per pass that others came down to, and as configured if none had to."""
    lives = [Attempt(micro_batch=8, next_micro_batch=4), Attempt(micro_batch=4), Attempt()]
    assert learnt_pass(lives) == 4
    assert learnt_pass(lives[1:]) is None


def spec(storage: Path, name: str, workers: int) -> TrialSpec:
    run = tiny_run(train__steps=6, compute__checkpoint_every=2, compute__workers=workers)
    ledger = Ledger.create(storage, name, SweepRecord(space=""))
    record = ConfigRecord.of(run, number=0, suggested={})
    ledger.add_config(record)
    return TrialSpec.of(ledger, record, 0, gpus=0, cpus=1)


def poor(limit: int, rank: int) -> Any:
    """A trial in which one rank runs out of memory, from step 3 on, with more than ``limit`` prompts per pass."""

    def run(config: dict[str, Any]) -> None:
        from par.training.loop import Trainer
        from par.training.parallel import workers

        real = Trainer._forward_backward

        def forward_backward(self: Trainer, batch: list[Any]) -> tuple[torch.Tensor, ...]:
            if self.step >= 3 and workers(self.mesh)[0] == rank and self.run.prompts_per_pass > limit:
                raise torch.OutOfMemoryError(f"injected: {self.run.prompts_per_pass} prompts")
            return real(self, batch)

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
    specs = {"poor": spec(tmp_path, "poor", workers), "rich": spec(tmp_path, "rich", 1)}
    supervised(specs["rich"], lambda record: None)
    with connected(None):
        run = poor(2, rank=workers - 1)
        placed = tune.with_resources(run, {"CPU": 1} if workers == 1 else {DRIVER: 1})
        [found] = tune.Tuner(placed, param_space={"spec": specs["poor"].to_dict()}).fit()
        assert found.error is None
    states = {name: asked.ledger().read_config(asked.config).seeds[0] for name, asked in specs.items()}
    lives = states["poor"].attempts
    first = 8 // workers
    assert [life.micro_batch for life in lives] == ([8, 4, 2] if workers == 1 else [4, 2])
    assert [life.failure for life in lives] == [FailureKind.OOM_GPU] * (len(lives) - 1) + [None]
    assert [life.resumed_at for life in lives] == [0] + [2] * (len(lives) - 1)
    assert f"injected: {first} prompts" in lives[0].message
    poor_result, rich_result = (states[name].result for name in ("poor", "rich"))
    assert poor_result.metrics.keys() == rich_result.metrics.keys()
    assert poor_result.metrics["G"] == rich_result.metrics["G"]
    losses = {name: asked.ledger().read_bytes(asked.config, 0, "history.parquet") for name, asked in specs.items()}
    assert final_loss(losses["poor"]) == pytest.approx(final_loss(losses["rich"]), rel=1e-4)


def final_loss(history: bytes) -> float:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(history)).to_pylist()[-1]["train/loss"]

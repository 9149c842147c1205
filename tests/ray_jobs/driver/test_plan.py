"""The plan of a sweep, without a cluster."""

from dataclasses import replace
from statistics import fmean

import pytest
from rich.console import Console

from par.cost.flops import seed_cost
from par.errors import ConfigError
from par.space.space import Space, load_space
from par.space.stages import Stages
from par.testing import tiny_run
from ray_jobs.console import bytes_text
from ray_jobs.driver.drive import Options, plans
from ray_jobs.driver.plan import BackbonePlan, blind_searches, mean_cost, plan_table
from ray_jobs.trial.cluster import Demand
from tests.ray_jobs.sweeps import write_space

COSTLY = ("tiny-qwen2", "qwen2.5-0.5b", "qwen2.5-7b")


@pytest.fixture
def space(tmp_path) -> Space:
    return load_space(write_space(tmp_path / "tiny.yaml"))


def planned(backbone: str, workers: int = 1) -> BackbonePlan:
    """Four seeds of a backbone, of which one is done."""
    cost = mean_cost([tiny_run(backbone=backbone, task__rendering="text", compute__workers=workers)])
    demand = Demand(workers, 1, 0, {} if workers == 1 else {"CPU": 1.0})
    return BackbonePlan(
        backbone=backbone, configurations=2, fewest=4, most=4, done=1, demand=demand, concurrency=2, cost=cost
    )  # fmt: skip


def printed(space: Space, plans: list[BackbonePlan], width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(plan_table(space, plans))
    return captured.get()


def row_after(text: str, title: str, backbone: str) -> list[str]:
    """The cells of a backbone in the table below ``title``."""
    rows = [line for line in text.partition(title)[2].splitlines() if line.startswith(f"│ {backbone} ")]
    return [cell.strip() for cell in rows[0].strip("│").split("│")]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_plan_is_whole_at_100_columns(space, workers):
    """No heading, name or number is cut short on a screen of 100 columns, and no line is longer."""
    text = printed(space, [planned(backbone, workers) for backbone in COSTLY], 100)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_plan_shows_what_a_seed_needs(space):
    """Per backbone: parameters, FLOPs, checkpoint bytes, and a worker's memory for state, training and evaluation."""
    plan = planned("qwen2.5-0.5b")
    memory = replace(
        plan.cost.memory,
        parameters=int(1e9), gradients=int(1e9), optimizer=int(2e9),
        gathered=int(1e8), activations=int(5e8), evaluation=int(2e8),
    )  # fmt: skip
    cost = replace(
        plan.cost, parameters=123, train_flops=3e15, evaluation_flops=1e15, checkpoint_bytes=int(5e12), memory=memory
    )
    cells = row_after(printed(space, [replace(plan, cost=cost)], 150), "One seed", "qwen2.5-0.5b")
    assert cells == ["qwen2.5-0.5b", "8/8/8", "1.2e+02", "4e+15", "5 TB", "4 GB", "600 MB", "300 MB"]


def test_storage_is_that_of_weights_and_of_seeds_in_flight(space):
    """Planned are the last and best weights of each seed, and two whole checkpoints of each that can run (T11)."""
    plan = planned("qwen2.5-7b")
    whole, weights = plan.cost.checkpoint_bytes, 4 * plan.cost.parameters
    assert whole == pytest.approx(3 * weights, rel=1e-3)
    assert plan.storage == 2 * 2 * weights + 2 * (2 * whole + weights)
    assert replace(plan, done=3).storage == 3 * 2 * weights + 2 * whole + weights
    assert replace(plan, done=4).storage == 4 * 2 * weights
    assert row_after(printed(space, [plan], 150), "Plan of", "qwen2.5-7b")[7] == bytes_text(plan.storage)


def test_the_largest_run_has_to_fit():
    """FLOPs are the mean of the runs; memory, checkpoint and parameters those of the largest, wherever it stands."""
    runs = [tiny_run(train__batch_size=8), tiny_run(train__batch_size=64), tiny_run(optim__matrices="muon")]
    found, costs = mean_cost(runs), [seed_cost(run) for run in runs]
    assert found.train_flops == pytest.approx(fmean(cost.train_flops for cost in costs))
    assert found.memory == costs[1].memory
    assert found.checkpoint_bytes == max(cost.checkpoint_bytes for cost in costs) > costs[2].checkpoint_bytes


def test_a_kernel_for_gpus_is_refused_where_workers_get_none(tmp_path):
    """A space that asks for FlexAttention is refused with the way out before anything starts; on GPUs it is planned."""
    path = write_space(tmp_path / "tiny.yaml")
    path.write_text(path.read_text().replace("fixed:\n", "fixed:\n  compute.attention: flex\n"))
    space, options = load_space(path), {"storage": "x", "address": None, "tracking_uri": None, "max_concurrent": None}
    on_cpu = Options(**options, cpus_per_worker=1, gpus_per_worker=None)
    with pytest.raises(ConfigError, match=r"compute\.attention=flex needs a GPU.*split"):
        plans(space, (), on_cpu, {"CPU": 2.0})
    [plan] = plans(space, (), on_cpu, {"CPU": 2.0, "GPU": 1.0})
    assert plan.demand.gpus_per_worker == 1


def test_the_plan_shows_how_many_seeds_a_race_takes(space):
    """A race says the fewest and the most seeds, confirmation included; without one there is a single number."""
    stages = Stages(rungs=(2, 4, 6), first_seed=0, confirmed=1, fresh=10)
    racing = replace(space, stages=stages, configurations=8)
    plan = replace(planned("tiny-qwen2"), fewest=stages.fewest(8), most=stages.most(8))
    assert (plan.fewest, plan.most) == (8 * 2 + 4 * 2 + 2 * 2 + 10, 8 * 6 + 10)
    text = printed(racing, [plan], 150)
    assert row_after(text, "Plan of", "tiny-qwen2")[2] == "38 to 58"
    assert "race over 2, 4, 6 seeds, the best 1 are confirmed on 10 fresh ones" in " ".join(text.split())
    assert row_after(printed(space, [planned("tiny-qwen2")], 150), "Plan of", "tiny-qwen2")[2] == "4"


@pytest.mark.parametrize(
    ("concurrency", "configurations", "advised"), [(30, 30, 20), (18, 30, None), (12, 9, 6), (6, 9, None), (2, 1, None)]
)
def test_a_search_that_cannot_learn_is_warned_of(space, concurrency, configurations, advised):
    """More configurations on their way than TPE draws at random, or than a third of them, bring a warning (S14)."""
    space = replace(space, sampler="tpe", stages=replace(space.stages, rungs=(2, 4)))
    plan = replace(planned("tiny-qwen2"), concurrency=concurrency, configurations=configurations)
    lines = blind_searches(space, [plan])
    assert [f"--max-concurrent {advised}" in line for line in lines] == ([True] if advised else [])
    assert advised is None or not blind_searches(space, [replace(plan, concurrency=advised)])
    assert not blind_searches(replace(space, sampler="random"), [plan])

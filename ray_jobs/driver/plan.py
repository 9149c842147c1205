"""The plan of a sweep: what will run, how much of it at once, and what it takes."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from statistics import fmean
from time import perf_counter

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from par.config.backbones import BACKBONES, split_layers
from par.config.run import RunConfig
from par.cost.flops import Cost, seed_cost
from par.ledger.state import ConfigState
from par.space.space import Space
from ray_jobs.console import bytes_text
from ray_jobs.optuna_studies.study import BackboneStudy
from ray_jobs.trial.cluster import Demand

STARTUP = 10
"""Configurations that TPE proposes at random before it learns from their scores."""
SAMPLES = 8
"""Proposals of each backbone whose mean cost stands for all."""
CPU_SHARE = 0.25
"""Share of a core's matrix-product rate that a small model reaches."""
GPU_FLOPS = 1.5e14
"""Assumed rate of one GPU, FLOP/s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackbonePlan:
    """What one backbone's share of the sweep is."""

    backbone: str
    configurations: int
    fewest: int
    """Seeds in total, as few as a race may take."""
    most: int
    """Seeds in total, as many as it may take; the same where nothing climbs."""
    done: int
    """Seeds that have a result already."""
    demand: Demand
    concurrency: int
    cost: Cost
    """Mean of one seed."""

    @property
    def left(self) -> int:
        """Seeds to run at most."""
        return self.most - self.done

    @property
    def storage(self) -> float:
        """Bytes of checkpoints at most: the last and the best weights of each seed, and two whole ones while it runs.

        The one before stays until the new one is written.
        """
        flying = min(self.concurrency, self.left)
        whole, weights = self.cost.checkpoint_bytes, self.cost.weights_bytes
        return (self.most - flying) * 2 * weights + flying * (2 * whole + weights)

    def seconds(self, rate_per_core: float) -> float:
        """Estimated wall time at most, the backbone alone on the cluster."""
        gpus = self.demand.gpus_per_worker
        rate = gpus * GPU_FLOPS if gpus else self.demand.cpus_per_worker * rate_per_core * CPU_SHARE
        return self.left * self.cost.flops / (rate * self.demand.workers) / min(self.concurrency, max(1, self.left))


def sampled_runs(space: Space, backbone: str) -> list[RunConfig]:
    """Some runs that the search may propose."""
    study, known = BackboneStudy(space, backbone, ()), set[str]()
    runs: list[RunConfig] = []
    for number in range(min(SAMPLES, space.shares()[backbone])):
        if record := study.propose(number, known):
            known.add(record.id)
            runs.append(space.run_config(backbone, record.suggested, 0))
    return runs


def mean_cost(runs: list[RunConfig]) -> Cost:
    """The mean of one seed over the sampled runs; parameters, checkpoint and memory are those of the largest."""
    costs = [seed_cost(run) for run in runs]
    return Cost(
        parameters=max(c.parameters for c in costs),
        train_flops=fmean(c.train_flops for c in costs),
        evaluation_flops=fmean(c.evaluation_flops for c in costs),
        checkpoint_bytes=max(c.checkpoint_bytes for c in costs),
        memory=max((c.memory for c in costs), key=lambda memory: memory.total),
    )


def seeds_done(configs: Iterable[ConfigState], backbone: str) -> int:
    """Seeds of a backbone that have a result."""
    return sum(len(config.results) for config in configs if config.record.backbone == backbone)


def rate_per_core() -> float:
    """FLOP/s of one core on a matrix product in fp32, measured for a tenth of a second."""
    from threadpoolctl import threadpool_limits

    a = np.ones((256, 256), dtype=np.float32)
    with threadpool_limits(1):
        started, products = perf_counter(), 0
        while perf_counter() - started < 0.1:
            np.matmul(a, a)
            products += 1
        return products * 2 * 256**3 / (perf_counter() - started)


def plan_table(space: Space, plans: list[BackbonePlan]) -> RenderableType:
    """The plan: what runs and how long it takes, below it what one seed needs, and what speaks against the plan."""
    warnings = [Text(line, style="yellow") for line in blind_searches(space, plans)]
    return Group(_work_table(space, plans), _seed_table(plans), *warnings)


def blind_searches(space: Space, plans: list[BackbonePlan]) -> list[str]:
    """Where so many trials run at once that most configurations are proposed before any result is known."""
    if space.sampler != "tpe":
        return []
    return [
        f"{plan.backbone}: {plan.concurrency} trials at once propose {flying} of {plan.configurations} configurations "
        f"before any of them has a score, so that the search is close to random: raise --configurations, or give "
        f"--max-concurrent {best * space.stages.rungs[0]}"
        for plan in plans
        if (flying := min(plan.configurations, ceil(plan.concurrency / space.stages.rungs[0])))
        > (best := max(1, min(STARTUP, plan.configurations // 3)))
    ]


def _work_table(space: Space, plans: list[BackbonePlan]) -> Table:
    core = rate_per_core()
    table = _table(
        f"Plan of {space.name}: {space.question}",
        ("backbone", "configurations", "seeds", "done", "one trial", "at once", "FLOPs", "storage", "time"),
    )
    for plan in plans:
        table.add_row(
            plan.backbone, str(plan.configurations), _span(plan.fewest, plan.most), str(plan.done),
            f"{plan.demand.workers} × worker: {plan.demand}", str(plan.concurrency),
            f"{plan.left * plan.cost.flops:.2g}", bytes_text(plan.storage),
            _duration(plan.seconds(core)),
        )  # fmt: skip
    table.caption = (
        f"Time is a rough estimate: {CPU_SHARE:.0%} of the {core / 1e9:.0f} GFLOP/s measured on one core here, or "
        f"{GPU_FLOPS / 1e12:.0f} TFLOP/s for each GPU; start-up not included. {_race(space)}Storage is at most: "
        "the last and the best weights of each seed, and two whole checkpoints of each that runs."
    )
    return table


def _seed_table(plans: list[BackbonePlan]) -> Table:
    table = _table(
        "One seed: size, cost, and memory of each worker",
        ("backbone", "layers", "parameters", "FLOPs", "checkpoint", "state", "training", "evaluation"),
    )
    for plan in plans:
        cost, memory = plan.cost, plan.cost.memory
        passes = (memory.gathered + memory.activations, memory.gathered + memory.evaluation)
        table.add_row(
            plan.backbone, str(split_layers(BACKBONES[plan.backbone].layers)), f"{cost.parameters:.2g}",
            f"{cost.flops:.2g}", *map(bytes_text, (cost.checkpoint_bytes, memory.state, *passes)),
        )  # fmt: skip
    table.caption = (
        "Memory of each worker: state is its share of weights, gradients and optimizer; training and evaluation add "
        "the activations of one pass, and whole weights where workers share them. What libraries take comes on top."
    )
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    for name in columns:
        left, whole = name in ("backbone", "layers", "one trial"), name in ("backbone", "configurations")
        table.add_column(name, justify="left" if left else "right", no_wrap=whole)
    return table


def _race(space: Space) -> str:
    """How a configuration comes to its seeds, where they do not all have the same."""
    stages = space.stages
    climbs = f"Configurations race over {', '.join(map(str, stages.rungs))} seeds" if len(stages.rungs) > 1 else ""
    confirmed = f"the best {stages.confirmed} are confirmed on {stages.fresh} fresh ones" if stages.confirmed else ""
    story = ", ".join(filter(None, (climbs, confirmed)))
    return f"{story[0].upper()}{story[1:]}: FLOPs and time are those of the most. " if story else ""


def _span(fewest: int, most: int) -> str:
    return str(most) if fewest == most else f"{fewest} to {most}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"

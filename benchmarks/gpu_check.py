"""What only a GPU shows: time, use and memory of training steps in bf16, and that every way to compute agrees."""

import gc
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from packaging.requirements import Requirement
from torch import Tensor
from torch import distributed as dist
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.machine import LIBRARIES, Hardware, device_clock, provenance
from benchmarks.reference import PlainTrainer, candidate_log_probabilities, loop
from benchmarks.train_step import deepest_step
from benchmarks.wide import WIDE, registered
from par.config.backbones import BACKBONES, Backbone
from par.config.run import RunConfig
from par.cost.flops import step_flops
from par.training.draws import draw_depth
from par.training.loop import Trainer
from par.training.parallel import data_mesh, device_of_this_worker
from par.training.speed import product_rate

BF16_TOLERANCE = 0.05
"""Largest distance of the logits in bf16 from those in fp32, as a share of their spread over the candidates."""
KERNEL_TOLERANCE = 1e-3
"""The same between two kernels in fp32."""
app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How large the check is."""

    backbone: Backbone
    depth: int
    """Operations of every prompt."""
    prompts: int
    iterations: tuple[int, ...]
    """R of the steps in the plainest way; the middle one is that of all other ways."""
    ways: tuple[dict[str, Any], ...]
    """Settings of other ways to compute the same steps."""
    kernels: tuple[str, ...]
    """Of attention, compared with each other."""
    timed_steps: int = 3
    peak_size: int
    """Rows and columns of the factors whose product shows the machine's peak."""

    @property
    def middle(self) -> int:
        """R of the ways that are compared."""
        return self.iterations[len(self.iterations) // 2]

    def run(self, iterations: int, *, task: str = "swap-s5", precision: str = "bf16", **compute: Any) -> RunConfig:
        """A run whose deepest step is the one that is checked."""
        settings = {
            "backbone": self.backbone.name,
            "task.name": task,
            "task.train_depth": self.depth,
            "recurrence.adapter_init": "sum",
            "schedule.kind": "fixed",
            "schedule.iterations": iterations,
            "train.batch_size": self.prompts,
            "train.precision": precision,
        }
        return RunConfig.from_dotted(settings | {f"compute.{key}": value for key, value in compute.items()})


FULL = Plan(
    backbone=replace(BACKBONES["qwen2.5-0.5b"], name="bench-0.5b-random", source=None),
    depth=32,
    prompts=16,
    iterations=(16, 128, 512),
    ways=(
        {"activation_checkpointing": True},
        {"attention": "flex"},
        {"compile": True},
        {"attention": "flex", "compile": True},
    ),
    kernels=("split", "flex"),
    peak_size=8192,
)
REHEARSAL = Plan(
    backbone=replace(WIDE, name="bench-rehearsal", layers=3, hidden=64, heads=2, head_dim=32, ffn=176),
    depth=4,
    prompts=4,
    iterations=(2, 4, 8),
    ways=({"activation_checkpointing": True},),
    kernels=("split",),
    timed_steps=1,
    peak_size=64,
)
"""Small enough for a CPU, which has the split kernel only: shows that the check itself works."""


@app.command()
def main(rehearse: Annotated[bool, typer.Option(hidden=True, help="Tiny sizes, on any device.")] = False) -> None:
    """Print time, use and memory of training steps, and whether all ways to compute agree. Needs a GPU."""
    if not rehearse and not torch.cuda.is_available():
        print("skipped: no GPU (torch.cuda.is_available() is False)")
        return
    print(f"{Hardware.here()}\n{provenance()['versions']}, commit {provenance()['commit']}")
    for wanted, found in unfit_libraries():
        print(f"pyproject.toml wants {wanted}, here is {found}: other versions may fail, or compute something else")
    if not check(REHEARSAL if rehearse else FULL):
        raise typer.Exit(1)


def unfit_libraries() -> Iterator[tuple[str, str]]:
    """Yield (requirement, version found) of the libraries that are not as the project wants them."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for requirement in map(Requirement, project["dependencies"]):
        if requirement.name in LIBRARIES and not requirement.specifier.contains(version(requirement.name)):
            yield str(requirement), version(requirement.name)


def check(plan: Plan) -> bool:
    """Print every row as soon as it is found; return whether all of them are as they should be."""
    try:
        with registered(plan.backbone):
            return all([*_steps(plan), *_agreements(plan), *_paddings(plan)])
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _steps(plan: Plan) -> Iterator[bool]:
    peak, b = product_rate(device_of_this_worker(), torch.bfloat16, plan.peak_size), plan.backbone
    print(f"\npeak of bf16 matrix products of {plan.peak_size}³: {peak / 1e12:.1f} TFLOP/s")
    print(f"{plan.prompts} prompts of {plan.depth} operations, {b.layers} layers of width {b.hidden}")
    print(f"{'step in bf16':<44}{'R':>5}{'seconds':>10}{'of peak':>9}{'GiB':>8}{'first loss':>12}")
    for iterations, way in [(R, {}) for R in plan.iterations] + [(plan.middle, way) for way in plan.ways]:
        named = ", ".join(f"{key}={value}" for key, value in way.items()) or "attention=split, compile=False"
        yield _row(f"{named:<44}{iterations:>5}", partial(_timed, plan, iterations, way, peak))


def _timed(plan: Plan, iterations: int, way: Mapping[str, Any], peak: float) -> tuple[str, bool]:
    run = plan.run(iterations, **way)
    trainer, step = _trainer(run), deepest_step(run)

    def once() -> tuple[float, float]:
        trainer.step, started = step, device_clock()
        report = next(trainer.steps())
        return report.loss, device_clock() - started

    first_loss, _ = once()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    seconds = median(once()[1] for _ in range(plan.timed_steps))
    used = f"{torch.cuda.max_memory_allocated() / 2**30:.1f}" if torch.cuda.is_available() else "–"
    share = step_flops(run, step) / seconds / peak
    return f"{seconds:>10.3f}{share:>9.1%}{used:>8}{first_loss:>12.5f}", isfinite(first_loss)


def _agreements(plan: Plan) -> Iterator[bool]:
    few, R = replace(plan, prompts=2), plan.iterations[0]
    plain = few.run(R, precision="fp32")
    wanted_BNC = cache(lambda: _logits(plain))
    print(f"\n{'logits of the last iteration agree':<49}{'distance':>10}{'limit':>9}")

    def row(name: str, limit: float, logits: Callable[[RunConfig], Tensor], run: RunConfig) -> bool:
        def found() -> tuple[str, bool]:
            apart = distance(logits(run), wanted_BNC())
            return f"{apart:>10.1e}{limit:>9.0e}", apart <= limit

        return _row(f"{name:<49}", found)

    yield row("a prompt for every question with packed prompts", KERNEL_TOLERANCE, _plain_logits, plain)
    yield row("bf16 with fp32", BF16_TOLERANCE, _logits, few.run(R))
    for kernel in plan.kernels[1:]:
        other = few.run(R, precision="fp32", attention=kernel)
        yield row(f"{kernel} with {plan.kernels[0]}, both in fp32", KERNEL_TOLERANCE, _logits, other)


def distance(found: Tensor, wanted: Tensor) -> float:
    """How far logits are from those wanted, as a share of the spread of the wanted ones over the candidates.

    A shift of all candidates of one answer changes no probability and does not count.
    """
    found, wanted = (logits - logits.mean(dim=-1, keepdim=True) for logits in (found, wanted))
    return float((found - wanted).norm() / wanted.norm())


@torch.no_grad()
def _logits(run: RunConfig) -> Tensor:
    """(B, N, C) of the product."""
    trainer = _trainer(run)
    [micro] = trainer.batches.micro_batches(deepest_step(run))
    micro = micro.to(trainer.device)
    return trainer.model(micro.packed, micro.plan)[0][-1].float().cpu()


@torch.no_grad()
def _plain_logits(run: RunConfig) -> Tensor:
    """The same, up to a shift of all candidates, of the plain reference."""
    trainer, step = _trainer(run), deepest_step(run)
    questions = PlainTrainer(run, trainer.model, trainer.rendering).questions(step)
    [logits_QTV] = loop(trainer.model, questions, iterations=draw_depth(run, step).iterations, read_last=1)
    found_QC = candidate_log_probabilities(logits_QTV, questions)
    return found_QC.unflatten(0, (-1, run.train.batch_size)).transpose(0, 1).cpu()


def _paddings(plan: Plan) -> Iterator[bool]:
    print()
    for name, mask_TT in left_padded_masks(tokens=8, padding=3).items():
        rows = nan_rows(mask_TT.to(device_of_this_worker()))
        print(f"fused kernel, left padding, {name} mask: {rows} rows of {len(mask_TT)} are NaN (for information)")
    run = plan.run(plan.iterations[0], task="s4-full")
    yield _row("packed prompts of unequal length: ", partial(_unequal, run))


def left_padded_masks(*, tokens: int, padding: int) -> dict[str, Tensor]:
    """Causal masks (T, T) of a prompt with padding on its left, whose own rows see nobody."""
    rows = torch.arange(tokens)
    visible_TT = (rows <= rows[:, None]) & (rows >= padding)
    hidden_TT = torch.zeros(tokens, tokens, dtype=torch.bfloat16).masked_fill(~visible_TT, -torch.inf)
    return {"boolean": visible_TT, "additive": hidden_TT}


def nan_rows(mask_TT: Tensor) -> int:
    """Rows of the fused kernel's answer in bf16 that are not numbers."""
    q, k, v = (torch.randn(1, 2, len(mask_TT), 64, device=mask_TT.device, dtype=torch.bfloat16) for _ in range(3))
    return int(scaled_dot_product_attention(q, k, v, attn_mask=mask_TT).isnan().any(dim=-1).any(dim=1).sum())


def _unequal(run: RunConfig) -> tuple[str, bool]:
    trainer, step = _trainer(run), deepest_step(run)
    [micro] = trainer.batches.micro_batches(step)
    padding = int((~micro.packed.real_BT).sum())
    trainer.step = step
    report = next(trainer.steps())
    found = f"{padding} padding tokens, loss {report.loss:.4f}, gradient norm {report.grad_norm:.4f}"
    return found, padding > 0 and isfinite(report.loss) and isfinite(report.grad_norm)


def _trainer(run: RunConfig) -> Trainer:
    """A trainer in the precision of its run."""
    return Trainer(run, data_mesh(run.train.precision))


def _row(label: str, found: Callable[[], tuple[str, bool]]) -> bool:
    """Print a row; a failure is a row, too, so that the checks after it still run. Leaves no memory taken."""
    try:
        text, good = found()
    except Exception as fault:  # noqa: BLE001  # shown, and the check as a whole fails
        text, good = f"  {type(fault).__name__}: {fault}", False
    print(f"{label}{text}{'' if good else '   NOT AS IT SHOULD BE'}", flush=True)
    gc.collect()
    torch.compiler.reset()
    torch.cuda.empty_cache()
    return good


if __name__ == "__main__":
    app()

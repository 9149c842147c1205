"""Charts with a line per seed: accuracy by depth, and drift over training."""

from collections.abc import Iterator
from typing import Any

import altair as alt

from par import metrics as m
from par.report.page.blocks import Chart, Columns, transposed
from par.report.page.charts import OUTCOME, RED, SEED_TOOLTIP, line_at, named
from par.report.page.gathered import Gathered, Outcome, Seed, label

CROWD = 40
"""Lines from which on each is drawn thinner and paler."""
PROFILE = {m.DRIFT_HALF.name: "R/2", m.DRIFT_ONCE.name: "R", m.DRIFT_TWICE.name: "2R"}
"""Where drift is measured after training."""


def accuracies(gathered: Gathered) -> Iterator[Chart]:
    """Accuracy by depth of each backbone; a failed seed is a cross at d_train."""
    for backbone in gathered.backbones:
        here = _of(gathered, backbone)
        seeds, menu = _pickable(named("seeds", backbone), here)
        depths = sorted({depth for seed in here for depth in seed.curve.depths})
        flat = seeds.transform_flatten(["depth", "accuracy"])
        lines = _lines(flat, len(here)).encode(**accuracy_axes(depths, "single-query accuracy"))
        bounds = [line_at("x", d) for d in sorted({_train_depth(seed) for seed in here})]
        drawn = alt.layer(line_at("y", 0.5), *bounds, lines.add_params(*menu), *_failed(seeds))
        yield Chart.of(backbone, drawn, height=280)


def accuracy_axes(depths: list[int], title: str = "accuracy") -> dict[str, Any]:
    """Both axes of accuracy by depth, for rows with ``depth`` and ``accuracy``."""
    x = alt.X("depth:Q", title="depth (operations)").scale(type="log", base=2, nice=False)
    y = alt.Y("accuracy:Q", title=title).scale(domain=[0, 1]).axis(format="%")
    return {"x": x.axis(values=depths), "y": y}


def drifts(gathered: Gathered) -> Iterator[Chart]:
    """Drift over training of each backbone that has records of it."""
    for backbone in gathered.backbones:
        here = [seed for seed in _of(gathered, backbone) if seed.drift.steps]
        if here:
            seeds, menu = _pickable(named("seeds", backbone), here)
            lines = _lines(seeds.transform_flatten(["step", "drift"]), len(here)).encode(
                x=alt.X("step:Q", title="step"),
                y=alt.Y("drift:Q", title="drift = rms(s_R) / rms(s_1)").scale(type="log", nice=False),
            )
            yield Chart.of(backbone, alt.layer(line_at("y", 1), lines.add_params(*menu)))


def unrecorded(gathered: Gathered) -> Columns:
    """The drift after training, at three numbers of iterations, of the seeds whose training records have none."""
    rows = [
        {
            "backbone": seed.backbone, "run": place, "configuration": label(seed.config), "seed": seed.number,
            "outcome": str(seed.outcome), "iterations": at, "drift": seed.result.metrics[name],
        }
        for place, seed in enumerate(gathered.seeds)
        for name, at in PROFILE.items()
        if not seed.drift.steps and name in seed.result.metrics
    ]  # fmt: skip
    return transposed(rows)


def drift_profiles(gathered: Gathered, unrecorded: Columns) -> Iterator[Chart]:
    """Drift by iterations, after training, of each backbone that has seeds without records."""
    for backbone in gathered.backbones:
        if here := unrecorded.get("backbone", []).count(backbone):
            lines = _lines(named("unrecorded", backbone), here // len(PROFILE)).encode(
                x=alt.X("iterations:N", title="iterations", sort=list(PROFILE.values())).axis(labelAngle=0),
                y=alt.Y("drift:Q", title="drift = rms(s_k) / rms(s_1)").scale(type="log", nice=False),
                tooltip=["configuration:N", "seed:Q", "iterations:N", "drift:Q"],
            )
            yield Chart.of(f"{backbone}, after training", lines)


def _lines(chart: alt.Chart, count: int) -> alt.Chart:
    crowded = count > CROWD
    drawn = chart.mark_line(
        strokeWidth=1 if crowded else 1.8, opacity=0.3 if crowded else 0.8, point=False if crowded else {"size": 18}
    )
    return drawn.encode(detail="run:N", color=OUTCOME, tooltip=SEED_TOOLTIP)


def _failed(seeds: alt.Chart) -> tuple[alt.Chart, alt.Chart]:
    """A cross at d_train, and how many failed seeds lie there."""
    at = {"x": "train_depth:Q", "y": alt.datum(0)}
    failed = seeds.transform_filter(alt.datum.outcome == str(Outcome.FAILED))
    crosses = failed.mark_point(shape="cross", filled=True, size=80, opacity=1, color=RED)
    counted = failed.transform_aggregate(count="count()", groupby=["train_depth"])
    words = counted.transform_calculate(said="datum.count + ' failed'")
    return (
        crosses.encode(**at, tooltip=[*SEED_TOOLTIP, "failure:N"]),
        words.mark_text(dx=8, dy=-7, align="left", fontSize=11).encode(**at, text="said:N"),
    )


def _pickable(chart: alt.Chart, seeds: list[Seed]) -> tuple[alt.Chart, list[alt.Parameter]]:
    """The chart with the seeds of a picked configuration alone, and the list to pick from; all are shown at first."""
    names = list(dict.fromkeys(label(seed.config) for seed in seeds))
    if len(names) < 2:
        return chart, []
    menu = alt.binding_select(options=[None, *names], labels=["all", *names], name="configuration ")
    picked = alt.selection_point(fields=["configuration"], bind=menu)
    return chart.transform_filter(picked), [picked]


def _of(gathered: Gathered, backbone: str) -> list[Seed]:
    return [seed for seed in gathered.seeds if seed.backbone == backbone]


def _train_depth(seed: Seed) -> int:
    return seed.config.record.run["task"]["train_depth"]

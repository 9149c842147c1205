"""Charts of outcomes, and with a line per seed those of accuracy by depth and of drift over training."""

from collections.abc import Iterator
from typing import Any

import altair as alt

from par import metrics as m
from par.report.page.blocks import Chart, Columns, transposed
from par.report.page.gathered import FRESH, SEARCH, Gathered, Outcome, Seed, label
from par.statistics.success import SUCCESS, THRESHOLDS

BLUE, AMBER, RED, GREEN, GREY = "#3987c4", "#e3a008", "#cf2b50", "#22a06b", "#8a8f98"
"""Colours that stand out on a light and on a dark page, also for the colour-blind."""
BACKBONES = (BLUE, "#dd8f0c", GREEN, "#b565a7", "#c2693f", "#6570d8", "#8a9a0c", GREY)
HEAT = ("#dbe7f3", "#a9cbe8", "#6ba6d6", "#2f7dbb", "#0b5394")
"""G below the first threshold, between the thresholds, and from the last one on."""
CELL_WIDTH, CELL_HEIGHT, LABEL_WIDTH = 56, 22, 330
"""Of a heat map, in pixels."""
GAP = " "
"""What stands between the seeds of the search and the fresh ones."""
CROWD = 40
"""Lines from which on each is drawn thinner and paler."""
PROFILE = {m.DRIFT_HALF.name: "R/2", m.DRIFT_ONCE.name: "R", m.DRIFT_TWICE.name: "2R"}
"""Where drift is measured after training."""

OUTCOME = alt.Color("outcome:N", title="seed").scale(
    domain=[str(outcome) for outcome in Outcome], range=[BLUE, AMBER, RED]
)
STAGE = alt.Color("stage:N", title="seeds").scale(domain=[SEARCH, FRESH], range=[BLUE, GREEN])
SEED_TOOLTIP = ["backbone:N", "configuration:N", "seed:Q", alt.Tooltip("shown:N", title="G"), "stage:N"]


def named(table: str, backbone: str | None = None) -> alt.Chart:
    """A chart of a table, or of the rows of one backbone."""
    chart = alt.Chart(alt.NamedData(name=table))
    return chart if backbone is None else chart.transform_filter(alt.datum.backbone == backbone)


def line_at(channel: str, value: float) -> alt.Chart:
    """A dashed line across the chart, x or y."""
    chart = alt.Chart(alt.InlineData(values=[{"at": value}]))
    return chart.mark_rule(strokeDash=[4, 3], opacity=0.7).encode(**{channel: alt.datum(value)})


def backbone_colours(gathered: Gathered) -> alt.Color:
    """A colour for each backbone, the same in all charts."""
    names = list(gathered.backbones)
    return alt.Color("backbone:N").scale(domain=names, range=[BACKBONES[i % len(BACKBONES)] for i in range(len(names))])


def every_seed(gathered: Gathered) -> Chart:
    """A point per seed at its G, a row per backbone."""
    names, deepest = list(gathered.backbones), max(seed.G for seed in gathered.seeds)
    ticks = [0, 1] + [2.0**k for k in range(1, 12) if 2.0**k <= max(SUCCESS, deepest)]
    points = named("seeds").mark_point(filled=True, size=36, opacity=0.65)
    points = points.encode(
        x=alt.X("G:Q", title="G = d50 / d_train")
        .scale(type="symlog", constant=1, domain=[0, max(SUCCESS, deepest) * 1.05])
        .axis(values=ticks),
        y=alt.Y("backbone:N", title=None, sort=names).scale(paddingInner=0.25),
        yOffset=alt.YOffset("aside:Q").scale(domain=[-0.1, 1.1]),
        color=OUTCOME,
        shape=alt.Shape("sign:N", title="G").scale(
            domain=["G", "lower bound", "failed"], range=["circle", "triangle-right", "cross"]
        ),
        tooltip=SEED_TOOLTIP,
    )
    return Chart.of("Every seed's G", alt.layer(line_at("x", SUCCESS), points), height=70 * len(names))


def success_intervals(gathered: Gathered) -> Chart:
    """Share of successful seeds of each group with its exact interval."""
    names = list(gathered.backbones)
    base = named("success").encode(
        y=alt.Y("backbone:N", title=None, sort=names),
        yOffset=alt.YOffset("stage:N", sort=[SEARCH, FRESH]),
        color=STAGE,
        tooltip=["backbone:N", "stage:N", alt.Tooltip("said:N", title=f"G ≥ {SUCCESS:g}")],
    )
    share = alt.X("low:Q", title=f"share of seeds with G ≥ {SUCCESS:g}").scale(domain=[0, 1]).axis(format="%")
    bars = base.mark_rule(strokeWidth=2.5).encode(x=share, x2="high:Q")
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x="rate:Q")
    return Chart.of(f"P(G ≥ {SUCCESS:g}), exact 95 % interval", alt.layer(bars, points), height=70 * len(names))


def profiles(gathered: Gathered) -> Iterator[Chart]:
    """P(G >= g) of each backbone, a step for each seed."""
    for backbone in gathered.backbones:
        base = named("profiles", backbone).encode(
            x=alt.X("g:Q", title="g").scale(zero=True, nice=False),
            color=STAGE,
            tooltip=["stage:N", "g:Q", alt.Tooltip("said:N", title="P(G ≥ g)")],
        )
        share = alt.Y("low:Q", title="P(G ≥ g)").scale(domain=[0, 1]).axis(format="%")
        band = base.mark_area(interpolate="step-before", opacity=0.2).encode(y=share, y2="high:Q")
        line = base.mark_line(interpolate="step-before", strokeWidth=2).encode(y="rate:Q")
        yield Chart.of(backbone, alt.layer(band, line))


def heat_maps(gathered: Gathered, cells: Columns) -> Iterator[Chart]:
    """Configurations, best first, by seeds; fresh ones stand apart."""
    fresh = gathered.overview.space.stages.fresh_seeds
    for backbone in gathered.backbones:
        columns = zip(cells["seed"], cells["backbone"], strict=True)
        numbers = sorted({int(seed) for seed, name in columns if name == backbone})
        searched = [str(n) for n in numbers if n not in fresh]
        order = (
            searched if len(searched) == len(numbers) else [*searched, GAP, *(str(n) for n in numbers if n in fresh)]
        )
        rows = sum(config.record.backbone == backbone for config in gathered.configs)
        base = named("cells", backbone).encode(
            x=alt.X("seed:N", title="seed").scale(domain=order).axis(orient="top", labelAngle=0, ticks=False),
            y=alt.Y("configuration:N", title=None, sort=alt.SortField("order")).axis(
                labelLimit=LABEL_WIDTH, ticks=False
            ),
            tooltip=["configuration:N", "seed:N", alt.Tooltip("said:N", title="G")],
        )
        heat = alt.Color("G:Q", title="G").scale(type="threshold", domain=list(THRESHOLDS), range=list(HEAT))
        good = base.transform_filter(alt.datum.kind == "G")
        texts = base.mark_text(fontSize=10)
        dark = alt.condition(THRESHOLDS[2] <= alt.datum.G, alt.value("#ffffff"), alt.value("#10141a"))
        drawn = alt.layer(
            good.mark_rect(stroke=None).encode(color=heat),
            base.transform_filter(alt.datum.kind == "failed").mark_rect(color=RED),
            texts.transform_filter(alt.datum.kind == "G").encode(text="said:N", color=dark),
            texts.transform_filter(alt.datum.kind == "failed").encode(text="said:N", color=alt.value("#ffffff")),
            texts.transform_filter(alt.datum.kind == "open").encode(text="said:N"),
        )
        yield Chart.of(
            backbone, drawn, height=CELL_HEIGHT * rows, least_width=CELL_WIDTH * len(order) + LABEL_WIDTH + 10
        )


def optimism(gathered: Gathered, confirmed: Columns) -> Chart:
    """Mean score in the search against that on fresh seeds; below the diagonal the search flattered itself."""
    scores = [*confirmed["search"], *confirmed["fresh"]]
    low, high = min(0.0, *scores), max(*scores, 0.1)
    ends = alt.Chart(alt.InlineData(values=[{"at": low}, {"at": high}]))
    diagonal = ends.mark_line(strokeDash=[4, 3], color=GREY).encode(x="at:Q", y="at:Q")
    points = named("confirmed").mark_point(filled=True, size=80, opacity=0.9)
    points = points.encode(
        x=alt.X("search:Q", title="mean score over the seeds of the search").scale(domain=[low, high]),
        y=alt.Y("fresh:Q", title="mean score over fresh seeds").scale(domain=[low, high]),
        color=backbone_colours(gathered),
        tooltip=["backbone:N", "configuration:N", "search:Q", "fresh:Q", "optimism:Q"],
    )
    return Chart.of("Search against confirmation", alt.layer(diagonal, points), height=320)


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

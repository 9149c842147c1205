"""Accuracy by depth as a picture: a panel per configuration, a line per seed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from par.config.run import RunConfig
from par.ledger.ledger import Ledger
from par.ledger.state import ConfigState
from par.report.page.blocks import Drawn
from par.report.page.charts import GREY, accuracy_axes, line_at
from par.report.page.gathered import Curve, read_curve
from par.tasks.groups import chance, parse_task

TITLE = "Accuracy by depth, a line per seed (solid: single query, dashed: full state)"
COLUMNS = 2
PANEL = {"width": 420, "height": 230}
"""In pixels."""
READS = {"single query": [1, 0], "full state": [5, 3]}
"""Dashes, by what is read."""


def accuracy_by_depth(ledger: Ledger, path: Path) -> Path:
    """Draw every configuration that has a result and write a PNG. Raises LedgerError for a result that is damaged."""
    found = [
        (config, {seed: read_curve(ledger, config.id, seed) for seed in config.results})
        for config in ledger.read().configs
        if config.results
    ]
    depths = sorted({depth for _, curves in found for curve in curves.values() for depth in curve.depths})
    seeds = sorted({seed for _, curves in found for seed in curves})
    panels = (_panel(config, curves, depths, seeds) for config, curves in found)
    return save_png(alt.concat(*panels, columns=COLUMNS, title=TITLE), path)


def save_png(chart: Drawn | alt.ConcatChart, path: Path) -> Path:
    """Write a chart that carries its data. Raises OSError if the file cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_png(chart))
    return path


def as_png(chart: Drawn | alt.ConcatChart) -> bytes:
    """Draw a chart that carries its data."""
    return vl_convert.vegalite_to_png(chart.to_dict(), scale=1.5)


def _panel(config: ConfigState, curves: dict[int, Curve], depths: list[int], seeds: list[int]) -> Drawn:
    name = f"{config.record.backbone}  {', '.join(config.record.choices())}"
    title = alt.Title(name, subtitle=list(_failures(config)), anchor="start", fontSize=11)
    colour = alt.Color("seed:N").scale(domain=seeds, scheme="tableau20")
    return _accuracies(title, config.record.run["task"], curves, depths, colour)


def one_model(lines: Sequence[str], run: RunConfig, curves: Mapping[str, Curve]) -> Drawn:
    """One model read in one or several ways, under some lines that say which and how."""
    depths = sorted({depth for curve in curves.values() for depth in curve.depths})
    subtitle = [*lines[1:], "solid: single query, dashed: full state"]
    title = alt.Title(lines[0], subtitle=subtitle, anchor="start", fontSize=11)
    colour = alt.Color("seed:N", title="read at").scale(domain=list(curves), scheme="tableau10")
    return _accuracies(title, run.task.model_dump(), curves, depths, colour)


def _accuracies(
    title: alt.Title, task: Mapping[str, Any], curves: Mapping[Any, Curve], depths: list[int], colour: alt.Color
) -> Drawn:
    """Accuracy by depth, a line per key of ``curves``, between chance and d_train."""
    axes = accuracy_axes(depths)
    lines = _data(_rows(curves)).mark_line(point={"size": 18}, strokeWidth=1.5)
    dash = alt.StrokeDash("read:N", legend=None).scale(domain=list(READS), range=list(READS.values()))
    lines = lines.encode(**axes, color=colour, strokeDash=dash)
    group = parse_task(task["name"])
    guesses = [{"depth": depth, "accuracy": chance(group, depth).single_query} for depth in depths]
    guessing = _data(guesses).mark_line(color=GREY, strokeWidth=1).encode(**axes)
    trained = [depth for depth in depths if depth == task["train_depth"]]
    words = [{"depth": depth, "accuracy": 1, "said": "d_train"} for depth in trained]
    words += [row | {"said": "chance"} for row in guesses[:1]]
    said = _data(words).mark_text(color=GREY, align="left", dx=3, dy=-6).encode(**axes, text="said:N")
    bounds = [*(line_at("x", depth) for depth in trained), line_at("y", 0.5)]
    return alt.layer(*bounds, guessing, lines, said).properties(title=title, **PANEL)


def _rows(curves: Mapping[Any, Curve]) -> Iterator[dict[str, Any]]:
    for seed, curve in curves.items():
        for read, values in zip(READS, (curve.single_query, curve.full_state), strict=True):
            for depth, accuracy in zip(curve.depths, values, strict=True):
                yield {"seed": seed, "read": read, "depth": depth, "accuracy": accuracy}


def _data(rows: Iterable[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=list(rows)))


def _failures(config: ConfigState) -> Iterator[str]:
    """A line per kind of failure, with its seeds."""
    failed = {seed: result.failure for seed, result in sorted(config.results.items()) if result.failure}
    for kind in dict.fromkeys(failed.values()):
        yield f"{kind}: seed {', '.join(str(seed) for seed, other in failed.items() if other == kind)}"

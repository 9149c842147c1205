"""Success against what was searched: of the seeds that every configuration has, by value or by part of the range.

A race gives good configurations more seeds; all of them together would make the values that it liked look better.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import altair as alt

from par.report.page.blocks import Chart, Columns, p_text, rounded, share_cells, transposed
from par.report.page.charts import backbone_colours, named
from par.report.page.gathered import Gathered, Seed
from par.space.domains import Domain, FloatRange, IntRange
from par.statistics.seeds import TooFew
from par.statistics.success import SUCCESS, success_conditional_mean, success_rate
from par.statistics.trends import TREND_SEEDS, success_trend

PARTS = 5
"""Equal parts of a range, in which configurations are taken together."""
FEW = 8
"""Most values of a range of whole numbers that are each shown."""

Row = Mapping[str, Any]


def parameters(gathered: Gathered) -> Columns:
    """One row per searched key, backbone and value or part: success rate, its interval, mean G of the successes."""
    rows = [
        {"parameter": key, "backbone": backbone, **row}
        for key, domain in gathered.overview.space.search.items()
        for place, backbone in enumerate(gathered.backbones)
        for row in _rows(domain, _searched(gathered, backbone, key), key, place, len(gathered.backbones))
    ]
    return transposed(rows)


def parameter_charts(gathered: Gathered, parameters: Columns) -> Iterator[Chart]:
    """Two charts per key: how many seeds succeed, and how good those are that do."""
    colour = backbone_colours(gathered)
    tooltip = ["backbone:N", "part:N", alt.Tooltip("said:N", title=f"G ≥ {SUCCESS:g}"), "mean:Q"]
    for key, domain in gathered.overview.space.search.items():
        if key not in parameters.get("parameter", []):
            continue
        base = named("parameters").transform_filter(alt.datum.parameter == key)
        place = _axis(domain, key) | {"color": colour, "tooltip": tooltip}
        share = alt.Y("low:Q", title=f"P(G ≥ {SUCCESS:g})").scale(domain=[0, 1]).axis(format="%")
        bars = base.mark_rule(strokeWidth=1.8, opacity=0.6).encode(**place, y=share, y2="high:Q")
        dots = base.mark_point(filled=True, size=60, opacity=1).encode(**place, y="rate:Q")
        yield Chart.of(f"{key}: how many succeed", alt.layer(bars, dots))
        means = base.transform_filter("isValid(datum.mean)").mark_point(filled=True, size=60, opacity=1)
        height = alt.Y("mean:Q", title=f"mean G of those with G ≥ {SUCCESS:g}").scale(zero=True)
        yield Chart.of(f"{key}: how good they are", means.encode(**place, y=height))


def trend_rows(gathered: Gathered) -> list[tuple[str, str, str]]:
    """Key, backbone and the logistic trend of success in words."""
    return [
        (key, backbone, _trend(_searched(gathered, backbone, key), key))
        for key in gathered.overview.space.search
        for backbone in gathered.backbones
    ]


def _searched(gathered: Gathered, backbone: str, key: str) -> list[Seed]:
    """The paired seeds of a backbone's configurations for which the key was searched."""
    return [
        seed
        for seed in gathered.seeds
        if seed.paired and seed.backbone == backbone and key in seed.config.record.suggested
    ]


def _rows(domain: Domain, seeds: list[Seed], key: str, place: int, of: int) -> Iterator[Row]:
    """Rows of one key and backbone. In a part of a range the backbones, ``of`` so many, stand beside each other."""
    parts: dict[Any, list[Seed]] = {}
    for seed in seeds:
        parts.setdefault(_part(domain, seed.config.record.suggested[key]), []).append(seed)
    for part in sorted(parts, key=lambda part: (isinstance(part, str), part)):
        Gs = [seed.G for seed in parts[part]]
        mean = success_conditional_mean(Gs)
        yield {
            "part": _part_text(domain, part),
            "at": rounded(_within(domain, (part + (place + 0.5) / of) / PARTS)) if _is_wide(domain) else None,
            **share_cells(success_rate(Gs, SUCCESS)),
            "mean": None if isinstance(mean, TooFew) else rounded(mean),
        }


def _axis(domain: Domain, key: str) -> dict[str, Any]:
    """A range as a number on its own scale, with a tick at each end of a part; what has few values as categories."""
    if not _is_wide(domain):
        order = [_part_text(domain, value) for value in domain.levels()]
        return {
            "x": alt.X("part:N", title=key, sort=order).axis(labelAngle=0, labelLimit=120),
            "xOffset": alt.XOffset("backbone:N"),
        }
    scale = alt.Scale(type="log" if domain.log else "linear", domain=[domain.low, domain.high], nice=False)
    ends = [_within(domain, part / PARTS) for part in range(PARTS + 1)]
    return {"x": alt.X("at:Q", title=key, scale=scale).axis(values=ends, format=".2~g", labelOverlap=True)}


def _is_wide(domain: Domain) -> TypeGuard[FloatRange | IntRange]:
    """Whether a domain has too many values to show each."""
    if isinstance(domain, IntRange):
        return (domain.high - domain.low) // domain.step >= FEW
    return isinstance(domain, FloatRange) and domain.low < domain.high


def _within(domain: FloatRange | IntRange, share: float) -> float:
    """The value at this share of a range, on its own scale."""
    if domain.log:
        return domain.low * (domain.high / domain.low) ** share
    return domain.low + (domain.high - domain.low) * share


def _part(domain: Domain, value: Any) -> Any:
    """Number of the part of a range in which a value lies; else the value as a text, or a number."""
    if not _is_wide(domain):
        return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    if domain.log:
        share = math.log(value / domain.low) / math.log(domain.high / domain.low)
    else:
        share = (value - domain.low) / (domain.high - domain.low)
    return min(PARTS - 1, max(0, int(share * PARTS)))


def _part_text(domain: Domain, part: Any) -> str:
    if not _is_wide(domain):
        return str(part)
    return f"{_within(domain, part / PARTS):.3g} to {_within(domain, (part + 1) / PARTS):.3g}"


def _trend(seeds: Sequence[Seed], key: str) -> str:
    values = [seed.config.record.suggested[key] for seed in seeds]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values):
        return "no trend: the values have no order, or no logarithm"
    if not values:
        return str(TooFew(0, TREND_SEEDS))
    found = success_trend(values, [seed.G for seed in seeds])
    if isinstance(found, TooFew):
        return str(found)
    change = f"log odds of success {found.slope:+.2f} per tenfold"
    return f"{change} [{found.low:.2f}, {found.high:.2f}], {p_text(found.p)}"

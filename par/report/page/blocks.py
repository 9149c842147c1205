"""What a page is made of: sections of charts, tables and sentences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from par.statistics.success import SuccessRate

Columns = Mapping[str, Sequence[Any]]
"""A table as columns of equal length."""
Drawn = alt.Chart | alt.LayerChart | alt.FacetChart


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A Vega-Lite chart that takes the width of its box and reads its data by name."""

    title: str
    spec: Mapping[str, Any]
    datasets: tuple[str, ...]
    """Names of the tables that it reads."""
    least_width: int = 0
    """Below this many pixels the chart scrolls in its box."""

    @classmethod
    def of(cls, title: str, chart: Drawn, *, height: int = 240, least_width: int = 0) -> "Chart":
        """Check a chart against Vega-Lite's schema and keep its specification, which names no address."""
        spec = chart.properties(width="container", height=height, autosize={"type": "fit-x", "contains": "padding"})
        plain = spec.to_dict()
        for needless in ("$schema", "config"):
            plain.pop(needless, None)
        names = tuple(sorted(set(_named(plain)) - plain.get("datasets", {}).keys()))
        return cls(title=title, spec=plain, datasets=names, least_width=least_width)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Cells as text. The first columns are names, the others are read as numbers, to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1
    """How many of the columns are names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One question to the data. Without charts and tables its sentences say why."""

    anchor: str
    title: str
    lead: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    sentences: Sequence[str] = ()


def text(value: object, digits: int = 2) -> str:
    """A number with so many decimals, a dash for what is not there, a statistic's own words for what it cannot say."""
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def p_text(p: float | None) -> str:
    """A probability as papers write it."""
    if p is None:
        return "–"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def transposed(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows, which all have the same names, as columns; no row gives no column."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def share_cells(found: SuccessRate) -> dict[str, Any]:
    """A success rate with its interval, as numbers and in words."""
    return {
        "rate": rounded(found.rate), "low": rounded(found.low), "high": rounded(found.high), "said": str(found),
    }  # fmt: skip


def compact(columns: Columns) -> dict[str, Any]:
    """Columns for the page: a column of texts as its different values and their places."""
    return {name: _levels(values) for name, values in columns.items()}


def rounded(value: float | None, digits: int = 4) -> float | None:
    """A number with so many significant digits, which no chart can tell from the whole."""
    return None if value is None else float(f"{value:.{digits}g}")


def _levels(values: Sequence[Any]) -> Any:
    if not any(isinstance(value, str) for value in values):
        return list(values)
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return {"levels": list(places), "codes": [places[value] for value in values]}


def _named(spec: Any) -> Iterator[str]:
    """Names of the data that a specification, or a part of it, reads."""
    match spec:
        case {"data": {"name": str(name)}}:
            yield name
    for part in spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ():
        yield from _named(part)

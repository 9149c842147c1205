"""What the tests of the page share: small sweeps, the page of a sweep, and how it is read."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from par.ledger.current_space import current_space
from par.ledger.lease import holder
from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, SeedResult, SweepRecord
from par.report.overview import Overview
from par.report.page.gathered import Gathered, gather
from par.report.page.page import page

SPACE = """
question: why?
backbones: [{backbones}]
fixed: {{task.name: swap-s3, task.rendering: text}}
search: {{optim.lr: {{float: [1.0e-4, 1.0e-2], log: true}}}}
configurations: {configurations}
seeds: {seeds}
{more}
"""
DIVERGED = SeedResult(metrics={"G": 0.0}, failure="NUMERIC", message="loss=nan")
Outcomes = Mapping[int, float | SeedResult]
"""G, or a whole result, by seed."""


def small(
    storage: Path, *configs: Outcomes, backbones: tuple[str, ...] = ("tiny-qwen2",), seeds: int = 6, more: str = ""
) -> Ledger:
    """A sweep whose configurations, on the backbones in turn, have these outcomes."""
    text = SPACE.format(
        backbones=", ".join(backbones), configurations=max(len(configs), len(backbones)), seeds=seeds, more=more
    )  # fmt: skip
    ledger = Ledger.create(storage, "demo", SweepRecord(space=text, space_path="demo.yaml"))
    for number, outcomes in enumerate(configs):
        suggested = {"optim.lr": 1e-4 * (number + 1)}
        run = current_space(ledger).run_config(backbones[number % len(backbones)], suggested, 0)
        record = ConfigRecord.of(run, number=number, suggested=suggested)
        ledger.add_config(record)
        for seed, outcome in outcomes.items():
            ledger.finish(record.id, seed, outcome if isinstance(outcome, SeedResult) else good(outcome))
    return ledger


def good(G: float, *, censored: bool = False, evaluation_set: str = "e" * 16) -> SeedResult:
    metrics = {"G": G, "censored": float(censored), "extrapolation_auc": min(1.0, G / 16)}
    return SeedResult(metrics=metrics, evaluation_set=evaluation_set)


def overview_of(ledger: Ledger) -> Overview:
    now = datetime.now(UTC)
    space, driver = current_space(ledger), holder(ledger)
    return Overview(name=ledger.name, space=space, state=ledger.read(), driver=driver, now=now)


def gathered_of(ledger: Ledger) -> Gathered:
    return gather(overview_of(ledger), ledger)


def page_of(ledger: Ledger) -> str:
    return page(overview_of(ledger), ledger)


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """What a browser makes of a page: its elements, each with the text directly in it."""

    html: str
    elements: list[Element] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    """Cells by table and row."""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)

    def handle_starttag(self, tag, attrs):
        self.elements.append(Element(tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_data(self, data):
        if self.elements:
            self.elements[-1].text += data
            if self.elements[-1].name in ("td", "th"):
                self.tables[-1][-1][-1] = self.elements[-1].text.strip()

    def named(self, name: str) -> list[Element]:
        return [element for element in self.elements if element.name == name]

    def table(self, *columns: str) -> list[list[str]]:
        """The rows of the only table that has these columns, its head first."""
        [found] = [table for table in self.tables if set(columns) <= set(table[0])]
        return found

    @property
    def words(self) -> str:
        """All that a person reads."""
        hidden = ("script", "style")
        return " ".join(element.text.strip() for element in self.elements if element.name not in hidden)

    @property
    def script(self) -> str:
        """The page's own script, without the libraries'."""
        return self.named("script")[-1].text

    def constant(self, name: str) -> Any:
        """A JSON constant of the page's own script."""
        match = re.search(rf"^const {name} = (.*);$", self.script, re.MULTILINE)
        assert match, f"no {name}"
        return json.loads(match[1])

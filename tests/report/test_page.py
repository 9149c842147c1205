"""The page of a sweep as a whole: what it holds, and what it never does."""

import re
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from altair.utils.schemapi import SchemaValidationError

from par.ledger.current_space import current_space
from par.ledger.lease import hold
from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, SeedResult, SweepRecord
from par.report.page.blocks import Chart
from tests.report.pages import Page, good, page_of, small
from tests.report.synthetic import BACKBONES, HOSTILE

LIMIT = 5_000_000
SECTIONS = [
    "seeds", "profiles", "parameters", "accuracy", "heat", "optimism", "drift", "configurations", "backbones",
    "signals", "failures", "provenance",
]  # fmt: skip
DERIVED = {"said", "count", "at"}
"""Columns that charts may make themselves."""
ADDRESS = re.compile(r"https?:|//[a-z]|url\(|@import", re.IGNORECASE)


@pytest.fixture(scope="module")
def read(large_page: Path) -> Page:
    return Page(large_page.read_text(encoding="utf-8"))


def test_a_large_sweep_makes_a_small_page(large_page):
    """Four backbones with thirty configurations of up to sixteen seeds stay below 5 MB."""
    assert large_page.stat().st_size < LIMIT


def test_every_section_is_there_with_something_in_it(read):
    """Each section has its place in the list at the top, and a chart, a table or a sentence."""
    there = [section.attributes["id"] for section in read.named("section")]
    assert there == SECTIONS
    assert [link.attributes["href"] for link in read.named("a")] == [f"#{anchor}" for anchor in SECTIONS]
    parts = re.split(r"<section ", read.html)[1:]
    assert all(re.search(r"<figure|<table|<p>", part) for part in parts)


def fields(spec: Any) -> set[str]:
    """The columns that a chart encodes."""
    if isinstance(spec, list):
        return set().union(*map(fields, spec))
    if not isinstance(spec, dict):
        return set()
    own = {spec["field"]} if isinstance(spec.get("field"), str) else set()
    return own.union(*map(fields, spec.values()))


def test_every_chart_has_a_place_and_its_data(read):
    """Each chart has a box, and the tables that it reads with all columns that it encodes; no other is held."""
    specs, data = read.constant("CHARTS"), read.constant("DATA")
    assert len(specs) == sum(element.attributes.get("class") == "chart" for element in read.elements) > 20
    for chart in specs:
        assert fields(chart["spec"]) - DERIVED <= {column for name in chart["datasets"] for column in data[name]}
    assert set().union(*(chart["datasets"] for chart in specs)) == data.keys()


def test_a_chart_that_breaks_the_schema_is_refused():
    """Every chart of a page has passed Vega-Lite's schema: one with an unknown kind of scale is not made."""
    with pytest.raises(SchemaValidationError):
        Chart.of(
            "wrong", alt.Chart(alt.NamedData(name="seeds")).mark_point().encode(x=alt.X("G:Q").scale(type="cubic"))
        )


def test_every_backbone_has_its_panels(read):
    """Profiles, accuracies, heat maps and drifts are drawn for each backbone."""
    titles = [element.text.strip() for element in read.named("h3")]
    assert all(titles.count(backbone) == 4 for backbone in BACKBONES)


def test_nothing_is_loaded(read):
    """No element, style or chart names an address, and the page forbids the browser to fetch anything."""
    assert {"link", "img", "iframe", "object", "embed", "base", "form"}.isdisjoint({e.name for e in read.elements})
    loading = [(e.name, e.attributes[a]) for e in read.elements for a in ("src", "href", "action") if a in e.attributes]
    assert all(str(target).startswith("#") for name, target in loading)
    assert not any(ADDRESS.search(style.text) for style in read.named("style"))
    assert not ADDRESS.search(read.script)
    assert '"url"' not in read.script
    library = read.named("script")[0].text
    assert "import(" not in library
    assert "importScripts" not in library
    policy = [e.attributes["content"] for e in read.named("meta") if "http-equiv" in e.attributes]
    assert policy[0].startswith("default-src 'none'; ")
    assert "connect-src" not in policy[0]


def test_what_others_wrote_is_text(read):
    """Markup in a message and signs in a question are shown as they are written, and run as nothing."""
    assert HOSTILE in read.words
    assert "anchoring & a small step help <every> backbone?" in read.named("h1")[0].text
    assert len(read.named("script")) == 2
    assert "every" not in {element.name for element in read.elements}


def test_a_name_cannot_end_the_script(tmp_path):
    """A variant whose name closes a script stays a name, in charts too."""
    name = "</script><script>alert(1)"
    variants = f"{{'{name}': {{}}, b: {{recurrence.anchor: none}}}}"
    text = f"question: q?\nbackbones: [tiny-qwen2]\nvariants: {variants}\nseeds: 1\n"
    ledger = Ledger.create(tmp_path, "demo", SweepRecord(space=text, space_path="demo.yaml"))
    record = ConfigRecord.of(
        current_space(ledger).run_config("tiny-qwen2", {"variant": name}, 0), number=0, suggested={"variant": name}
    )
    ledger.add_config(record)
    ledger.finish(record.id, 0, good(4.0))
    found = Page(page_of(ledger))
    assert len(found.named("script")) == 2
    assert found.constant("DATA")["seeds"]["configuration"]["levels"] == [f"{record.id} {name}"]


def test_a_sweep_without_results_has_a_page(tmp_path):
    """Every section says that there is nothing yet; no chart is empty."""
    found = Page(page_of(small(tmp_path)))
    assert found.words.count("No seed has a result yet.") == len(SECTIONS) - len(("failures", "provenance")) - 1
    assert found.constant("CHARTS") == []
    assert "Of 1 configuration 1 are not proposed yet." in found.words


def test_a_running_sweep_says_so(tmp_path):
    """While a driver lives the page says who drives, and that all may change; afterwards that it is not complete."""
    ledger = small(tmp_path, {0: 4.0, 1: 8.0})
    with hold(ledger):
        words = Page(page_of(ledger)).words
    assert "Still running, driven by " in words
    assert "every number here may change" in words
    words = Page(page_of(ledger)).words
    assert "Not complete: 2 seeds have a result" in words
    assert "still running" not in words.lower()


def test_a_failed_configuration_has_a_page(tmp_path):
    """A sweep all of whose seeds diverged is drawn, too: every number is 0 and nothing is undefined."""
    diverged = SeedResult(metrics={"G": 0.0}, failure="NUMERIC", message="loss=nan")
    found = Page(page_of(small(tmp_path, dict.fromkeys(range(6), diverged))))
    assert "NUMERIC" in found.words
    assert "Complete: 6 seeds have a result, 6 of them a final failure" in found.words
    assert "NaN" not in found.script

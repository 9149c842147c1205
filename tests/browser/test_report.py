"""The report, in a browser: it draws, it does not complain, and it asks nobody for anything."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.conftest import DESKTOP, PHONE
from tests.ray_jobs.sweeps import REPOSITORY
from tests.report.pages import page_of
from tests.report.synthetic import synthetic

pytestmark = pytest.mark.browser
DRAW_MS = 60_000
WINDOWS = [("desktop", DESKTOP, "light"), ("phone", PHONE, "dark")]


@pytest.fixture(scope="session")
def reports(chromium, finished, tmp_path_factory) -> dict[str, Path]:
    """Of a sweep that ran, by the command; and of a large one that is made up."""
    folder = tmp_path_factory.mktemp("reports")
    command = [sys.executable, "-m", "ray_jobs.cli", "report", "tiny", "--storage", str(finished[0])]
    subprocess.run([*command, "--out", str(folder / "tiny.html")], cwd=REPOSITORY, check=True, capture_output=True)
    (folder / "large.html").write_text(page_of(synthetic(folder)), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in ("tiny", "large")}


@pytest.mark.parametrize("name", ["tiny", "large"])
@pytest.mark.parametrize(("where", "size", "scheme"), WINDOWS, ids=[name for name, *_ in WINDOWS])
def test_the_report_draws_itself_and_needs_nobody(window, reports, name, where, size, scheme):
    """Every chart has marks, nothing is wider than the window, the console is silent, no request leaves the page."""
    view = window(size, scheme)
    address = reports[name].as_uri()
    view.page.goto(address)
    charts = view.page.locator(".chart")
    count = charts.count()
    assert count >= 5
    view.page.wait_for_function(f"document.documentElement.dataset.drawn == {count}", timeout=DRAW_MS)
    view.picture(f"report-{name}-{where}")
    assert view.complaints == []
    assert [request for request in view.requests if not request.startswith(("data:", "blob:"))] == [address]
    marks = "charts => charts.map(chart => chart.querySelectorAll('svg path, svg rect, svg line, svg text').length)"
    assert all(found > 3 for found in charts.evaluate_all(marks))
    assert view.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_the_report_follows_the_scheme(window, reports):
    """Paper and ink change places between light and dark."""
    papers = []
    for scheme in ("light", "dark"):
        view = window(scheme=scheme)
        view.page.goto(reports["tiny"].as_uri())
        papers.append(view.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert papers == ["rgb(255, 255, 255)", "rgb(20, 24, 29)"]

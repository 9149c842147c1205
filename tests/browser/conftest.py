"""A real browser: what it is shown, what it complains of, what it asks the network for, and where its pictures go."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PICTURES = Path(__file__).parent / "out"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def chromium() -> Iterator:
    """Headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make dev")
    binary = shutil.which("chromium")
    if binary is None:
        pytest.skip("there is no chromium on the PATH: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class View:
    """One page in one window, from before its first byte."""

    page: object
    complaints: list[str] = field(default_factory=list)
    """Errors of the console and of scripts."""
    requests: list[str] = field(default_factory=list)
    """Addresses that were asked for."""

    def listen(self) -> "View":
        self.page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))
        self.page.on("pageerror", lambda fault: self.complaints.append(str(fault)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        return self

    def picture(self, name: str, *, whole: bool = True) -> None:
        PICTURES.mkdir(exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=whole)


@pytest.fixture
def window(chromium) -> Iterator[Callable[..., View]]:
    """Opens a window; all are closed at the end."""
    contexts = []

    def new(size: dict[str, int] = DESKTOP, scheme: str = "light") -> View:
        contexts.append(chromium.new_context(viewport=size, color_scheme=scheme))
        return View(contexts[-1].new_page()).listen()

    yield new
    for context in contexts:
        context.close()

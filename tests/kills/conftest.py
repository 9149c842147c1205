"""The sweeps that are left alone, the scenes of the kills, and the table of what came of them."""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from tests.kills.matrix import Row, table, write_into
from tests.kills.scene import Scene, output_of

ROWS = pytest.StashKey[list[Row]]()
PAGE = "KILL_MATRIX_PAGE"
"""Environment variable: a page into which the table is written."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = []


@pytest.fixture(scope="session")
def left_alone(tmp_path_factory) -> Callable[[int], Path]:
    """The storage of a sweep with so many workers that nothing disturbed."""

    @cache
    def storage(workers: int) -> Path:
        scene = Scene(tmp_path_factory.mktemp("left-alone") / "storage", workers=workers)
        output_of(scene.start())
        return scene.storage

    return storage


@pytest.fixture
def scene(tmp_path) -> Iterator[Callable[..., Scene]]:
    """Sets a scene up; what is left of its processes is killed at the end."""
    scenes: list[Scene] = []

    def new(**options) -> Scene:
        scenes.append(Scene(**{"storage": tmp_path / "storage"} | options))
        return scenes[-1]

    yield new
    for started in scenes:
        started.end()


@pytest.fixture
def judged(request, left_alone) -> Callable[[str, Scene, str], Row]:
    """Adds what came of a kill to the matrix, and fails unless all of it is as it should be."""

    def judge(killed: str, scene: Scene, attempt: str) -> Row:
        row = Row.of(killed, scene, left_alone(scene.workers), attempt)
        request.config.stash[ROWS].append(row)
        assert row.green, row
        return row

    return judge


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if rows := config.stash.get(ROWS, []):
        terminalreporter.ensure_newline()
        Console(width=160).print(table(rows))
        if page := os.environ.get(PAGE):
            write_into(Path(page), rows)

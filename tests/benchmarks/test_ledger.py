"""The benchmark of a driver that takes up a sweep, on a small one."""

from dataclasses import replace
from pathlib import Path

from benchmarks.ledger import SPACE, filled, replayed
from par.space.space import parse_space


def test_what_is_counted_is_what_was_written(tmp_path):
    """A sweep that is written past the ledger reads as a finished one: all its configurations, results and scores."""
    space = parse_space(SPACE, Path("ledger.yaml"))
    space = replace(space, stages=space.stages.up_to(3))
    assert replayed(filled(tmp_path, space, 20), space) == [20, 60, 20, 9]

"""A row is green when all of it is as it should be, and the table finds its place on a page."""

from dataclasses import replace

import pytest

from tests.kills.matrix import BEGIN, END, Row, Share, markdown, write_into

ALL = Share(found=4, wanted=4)
ROW = Row(
    killed="trial process", lives=("WORKER_DIED", "done"), as_before=Share(found=1, wanted=1), done=ALL,
    runs=Share(found=7, wanted=7), told=Share(found=2, wanted=2), undisturbed=ALL, seconds=15.93,
)  # fmt: skip


@pytest.mark.parametrize("column", ["as_before", "done", "runs", "told", "undisturbed"])
@pytest.mark.parametrize("change", [-1, 1])
def test_one_too_few_or_too_many_is_red(column, change):
    """A row in which any count is not the one that is wanted is not green."""
    share = getattr(ROW, column)
    assert ROW.green
    assert not replace(ROW, **{column: replace(share, found=share.found + change)}).green


def test_the_table_replaces_the_one_before(tmp_path):
    """Between its two comments a page has the last table alone, and all else stays."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for rows in ([ROW, ROW], [ROW]):
        write_into(page, rows)
        assert page.read_text() == f"before\n{BEGIN}\n{markdown(rows)}\n{END}\nafter\n"
    assert "| trial process | WORKER_DIED → done | 1 of 1 | 4 of 4 |" in markdown([ROW])

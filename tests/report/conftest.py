"""A large sweep and its page, made once."""

from pathlib import Path

import pytest

from par.ledger.ledger import Ledger
from tests.report.pages import page_of
from tests.report.synthetic import synthetic


@pytest.fixture(scope="session")
def large(tmp_path_factory) -> Ledger:
    return synthetic(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="session")
def large_page(large: Ledger, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_of(large), encoding="utf-8")
    return path

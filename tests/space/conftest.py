"""What the tests of spaces share: loading a text, and its faults."""

import pytest

from par.errors import SpaceError
from par.space.space import load_space
from tests.space.spaces import line_and_message


@pytest.fixture(scope="session")
def load(tmp_path_factory):
    """Load a space from its text."""
    path = tmp_path_factory.mktemp("spaces") / "space.yaml"

    def load_text(text):
        path.write_text(text)
        return load_space(path)

    return load_text


@pytest.fixture(scope="session")
def faults(load):
    """The (line, message) of every fault of a text; none if it is accepted."""

    def faults_of(text):
        try:
            load(text)
        except SpaceError as refused:
            return [line_and_message(row) for row in str(refused).split("\n")]
        return []

    return faults_of

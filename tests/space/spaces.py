"""How the tests read what a space was refused for."""

import re


def located(row: str) -> tuple[int, str]:
    """The line and the message of one fault."""
    match = re.fullmatch(r".*space\.yaml:(\d+): (\S.*)", row)
    assert match, f"not path:LINE: message: {row!r}"
    return int(match[1]), match[2]

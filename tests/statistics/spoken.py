"""A statistic that had enough seeds to say something."""

from typing import TypeVar

from par.statistics.seeds import Degenerate, TooFew

T = TypeVar("T")


def spoken(found: T | TooFew | Degenerate) -> T:
    """What was found; the test fails where the answer is that the seeds do not suffice."""
    assert not isinstance(found, TooFew | Degenerate), str(found)
    return found

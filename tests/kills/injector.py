"""A kill at an exact point of a process that a sweep starts, without a hook in the product."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

INJECTED = Path(__file__).parent / "injected"


@dataclass(frozen=True, kw_only=True)
class KillAt:
    """SIGKILL at a call of a function, for the first process that comes there; none after it dies."""

    function: str
    """``package.module:name`` or ``package.module:Class.name``."""
    flag: str
    """A file that exists once the process has died; its time is that of the kill."""
    call: int = 1
    """Number of the call, counted in each process."""
    after: bool = False
    """Whether the call is made before the end."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the process that is to die."""

    def environment(self) -> dict[str, str]:
        """What arms every Python process that is started with it."""
        paths = [str(INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PAR_KILL": json.dumps(asdict(self)), "PYTHONPATH": os.pathsep.join(paths)}

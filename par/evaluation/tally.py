"""Right answers so far: what an interrupted evaluation goes on from."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from par.objects import Objects

COUNTS = "evaluation.json"
"""Where a tally lies in the folder of the seed's checkpoints."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Counts over the first frozen prompts, all workers together."""

    prompts: int
    """Prompts that are counted: 0 … prompts − 1."""
    single_D: tuple[int, ...]
    """Questions answered right, by depth."""
    full_D: tuple[int, ...]
    """Prompts whose boxes are all right, by depth."""

    @classmethod
    def empty(cls, depths: int) -> Self:
        """Nothing counted yet."""
        return cls(prompts=0, single_D=(0,) * depths, full_D=(0,) * depths)

    def plus(self, prompts: int, single_D: list[int], full_D: list[int]) -> Self:
        """This and the counts of the next prompts, of which ``prompts`` are then counted in all."""
        return type(self)(
            prompts=prompts,
            single_D=tuple(a + b for a, b in zip(self.single_D, single_D, strict=True)),
            full_D=tuple(a + b for a, b in zip(self.full_D, full_D, strict=True)),
        )

    def save(self, folder: Objects, owner: Mapping[str, Any]) -> None:
        """Write it in one piece, under the weights and settings that it belongs to."""
        folder.put(COUNTS, json.dumps({"owner": dict(owner), "tally": asdict(self)}).encode())

    @classmethod
    def load(cls, folder: Objects, owner: Mapping[str, Any], depths: int) -> Self:
        """What was saved for the same owner; an empty tally where nothing was, or nothing whole."""
        try:
            saved = json.loads(folder.get(COUNTS))
        except (FileNotFoundError, json.JSONDecodeError):
            return cls.empty(depths)
        if saved["owner"] != dict(owner):
            return cls.empty(depths)
        found = saved["tally"]
        return cls(prompts=found["prompts"], single_D=tuple(found["single_D"]), full_D=tuple(found["full_D"]))

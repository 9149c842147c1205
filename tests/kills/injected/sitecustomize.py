"""Read by every Python process under PAR_KILL: whoever comes first to the point that it names dies there, once."""

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import count
from types import ModuleType
from typing import Any


class Arming(MetaPathFinder):
    """Once the module is loaded, wraps its function so that the process kills itself at the chosen call."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.module, _, self.function = order["function"].partition(":")

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def execute(module: ModuleType) -> None:
                load(module)
                self.arm(module)

            spec.loader.exec_module = execute  # pyright: ignore[reportAttributeAccessIssue]
        return spec

    def arm(self, owner: Any) -> None:
        *path, name = self.function.split(".")
        for step in path:
            owner = getattr(owner, step)
        setattr(owner, name, self.dying(getattr(owner, name)))

    def dying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        calls = count(1)

        def function(*args: Any, **keywords: Any) -> Any:
            fatal = next(calls) == self.order["call"]
            if fatal and not self.order["after"]:
                self.die()
            answer = original(*args, **keywords)
            if fatal and self.order["after"]:
                self.die()
            return answer

        return function

    def die(self) -> None:
        if all(os.environ.get(name) == value for name, value in self.order["where"].items()):
            try:
                os.close(os.open(self.order["flag"], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


if "PAR_KILL" in os.environ:
    sys.meta_path.insert(0, Arming(json.loads(os.environ["PAR_KILL"])))

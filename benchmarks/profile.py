"""Where the time of a training step and of an evaluation goes: shares of kinds of operations, as one table."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks import evaluation, train_step

KINDS = {
    "matrix products": ("mm", "addmm"),
    "attention": ("scaled_dot_product", "bmm", "softmax"),
    "copies and layout": ("copy_", "cat", "clone", "gather", "index", "repeat", "fill_", "zero_", "where", "masked_"),
}
"""Kinds of operations by the beginning of their names; all other operations compute element by element or reduce."""
ELEMENTWISE, REST = "elementwise and reductions", "Python and dispatch"
WHOLE = "all of it"
CALLS = 3


def main() -> None:
    """Print the shares of the product's work in each case, one thread."""
    torch.set_num_threads(1)
    table = Table(title="share of the time", box=SIMPLE_HEAD)
    table.add_column("kind")
    columns = {}
    for case in (train_step.case(), evaluation.case()):
        table.add_column(case.name, justify="right")
        columns[case.name] = shares(case.product)
    for kind in (*KINDS, ELEMENTWISE, REST):
        table.add_row(kind, *(f"{found[kind]:.0%}" for found in columns.values()))
    Console().print(table)


def shares(work: Callable[[], Any]) -> dict[str, float]:
    """The share of each kind in the time of ``work``, after one call that does not count."""
    work()
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded, record_function(WHOLE):
        for _ in range(CALLS):
            work()
    spent: Counter[str] = Counter()
    whole = 0.0
    for event in recorded.key_averages():
        if event.key.startswith("aten::"):
            spent[_kind(event.key.removeprefix("aten::").lstrip("_"))] += event.self_cpu_time_total
        elif event.key == WHOLE:
            whole = event.cpu_time_total
    return {kind: spent[kind] / whole for kind in (*KINDS, ELEMENTWISE)} | {REST: 1 - spent.total() / whole}


def _kind(operation: str) -> str:
    return next((kind for kind, names in KINDS.items() if operation.startswith(names)), ELEMENTWISE)


if __name__ == "__main__":
    main()

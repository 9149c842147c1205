"""What a person reads at the end of a sweep."""

import io
from pathlib import Path

from rich.console import Console

from par.study.ledger import ConfigRecord, Ledger, SeedResult
from par.study.records import ConfigState, SeedState, SweepState, Verdict
from par.study.report.plots import accuracy_by_depth
from par.study.report.table import results_table
from par.study.space import parse_space
from par.testing import tiny_run

SPACE = parse_space(
    "question: Which?\nbackbones: [tiny-qwen2]\nsearch: {recurrence.gradient_window: {int: [1, 3]}}\n"
    "configurations: 3\nseeds: 2\n",
    Path("demo.yaml"),
)


def config(number: int, results: dict[int, SeedResult], score: float | None) -> ConfigState:
    run = tiny_run(recurrence__gradient_window=number + 1)
    record = ConfigRecord.of(run, number=number, suggested={"recurrence.gradient_window": number + 1})
    verdicts = () if score is None else (Verdict(score=score, seeds=tuple(results)),)
    return ConfigState(record, {seed: SeedState((), result) for seed, result in results.items()}, verdicts)


def shown(*configs: ConfigState) -> list[str]:
    console = Console(width=200, file=io.StringIO())
    console.print(results_table(SweepState({}, configs), SPACE))
    return [line for line in console.file.getvalue().splitlines() if line.startswith("│")]


def good(G: float, censored: float = 0.0) -> SeedResult:
    return SeedResult(metrics={"G": G, "censored": censored})


def test_rows_are_ranked_and_show_every_seed():
    """Best score first, those that wait last; every seed's G, the worst one, the success rate with its interval."""
    low, high = config(0, {0: good(1.5), 1: good(3.25)}, 0.2), config(1, {0: good(16.0, 1.0), 1: good(8.0)}, 0.7)
    waiting = config(2, {0: good(4.0)}, None)
    first, second, third = shown(low, waiting, high)
    assert all(
        text in first for text in ("gradient_window=2", "2/2", "16.00+  8.00", " 8.00 ", "100% [16%, 100%]", "0.700")
    )
    assert all(text in second for text in ("gradient_window=1", "1.50  3.25", " 1.50 ", "50% [1%, 99%]", "0.200"))
    assert all(text in third for text in ("gradient_window=3", "1/2", "waits for seeds"))


def test_failed_seed_is_a_zero_with_its_kind():
    """A diverged seed is shown as 0 with its kind, and is the worst."""
    [row] = shown(config(0, {0: good(4.0), 1: SeedResult(metrics={"G": 0.0}, failure="NUMERIC")}, 0.1))
    assert "4.00  0 (NUMERIC)" in row
    assert "│  0.00 │" in row
    assert "50% [1%, 99%]" in row


def test_a_variant_is_shown_by_its_name_alone(tmp_path, monkeypatch):
    """Table and plot call a configuration by the name of its variant, as the space has it."""
    run = tiny_run()
    record = ConfigRecord.of(run, number=0, suggested={"variant": "PAR hold"})
    state = ConfigState(record, {0: SeedState((), good(4.0))})
    [row] = shown(state)
    assert f"│ {record.id}  PAR hold │" in row
    titles = []
    monkeypatch.setattr("matplotlib.axes.Axes.set_title", lambda axis, title, **style: titles.append(title))
    ledger = Ledger.create(tmp_path, "demo", {"space": ""})
    ledger.add_config(record)
    ledger.finish(record.id, 0, good(4.0))
    assert accuracy_by_depth(ledger, tmp_path / "plot.png").exists()
    assert titles == [f"{run.backbone}  PAR hold"]


def test_a_choice_is_shown_with_its_key():
    """Numbers have three digits; a short name has the last part of the key."""
    record = ConfigRecord.of(tiny_run(), number=0, suggested={"optim.lr": 0.00124872, "recurrence.anchor": "none"})
    assert record.choices() == ["optim.lr=0.00125", "recurrence.anchor=none"]
    assert record.choices(short=True) == ["lr=0.00125", "anchor=none"]

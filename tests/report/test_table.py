"""What a person reads at the end of a sweep."""

import io
from pathlib import Path

from rich.console import Console

from par.ledger.ledger import Ledger
from par.ledger.records import ConfigRecord, SeedResult, SweepRecord, Verdict
from par.ledger.state import ConfigState, SeedState, SweepState
from par.report.plots import accuracy_by_depth
from par.report.table import results_table
from par.space.space import Space, parse_space
from par.testing import tiny_run

SPACE = parse_space(
    "question: Which?\nbackbones: [tiny-qwen2]\nsearch: {recurrence.gradient_window: {int: [1, 3]}}\n"
    "configurations: 3\nseeds: 2\n",
    Path("demo.yaml"),
)


RACE = parse_space(SPACE.text + "confirm: 1\nfresh_seeds: 10\n", Path("race.yaml"))
FRESH = range(1000, 1010)


def config(number: int, results: dict[int, SeedResult], score: float | None) -> ConfigState:
    run = tiny_run(recurrence__gradient_window=number + 1)
    record = ConfigRecord.of(run, number=number, suggested={"recurrence.gradient_window": number + 1})
    verdicts = () if score is None else (Verdict(score=score, seeds=tuple(results)),)
    return ConfigState(record, {seed: SeedState((), result) for seed, result in results.items()}, verdicts)


def printed(*configs: ConfigState, space: Space = SPACE, width: int = 200) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(results_table(SweepState(SweepRecord(space=""), configs), space))
    return console.file.getvalue()


def shown(*configs: ConfigState) -> list[str]:
    return [line for line in printed(*configs).splitlines() if line.startswith("│")]


def cells(table: str) -> list[str]:
    """What the only row of a table says, by column, however many lines it takes."""
    lines = [line.strip("│").split("│") for line in table.splitlines() if line.startswith("│")]
    return [" ".join(" ".join(parts).split()) for parts in zip(*lines, strict=True)]


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


def sure(searched: list[float], fresh: list[float], bound: float = 0.4) -> ConfigState:
    state = config(0, {seed: good(G) for seed, G in [*enumerate(searched), *zip(FRESH, fresh, strict=False)]}, None)
    verdicts = [Verdict(score=0.9, seeds=tuple(range(len(searched))))]
    verdicts += [Verdict(score=bound, seeds=tuple(FRESH), stage="confirm")] if len(fresh) == len(FRESH) else []
    return ConfigState(state.record, state.seeds, tuple(verdicts))


def test_seeds_that_chose_a_configuration_do_not_confirm_it():
    """Worst seed and success rate of a confirmed one are of its fresh seeds, which stand behind a bar (X1)."""
    found = cells(printed(sure([0.5, 16.0, 16.0], [1.0] * 5 + [8.0] * 5), space=RACE))
    assert found[3:] == [
        f"0.50 16.00 16.00 | {' '.join(['1.00'] * 5 + ['8.00'] * 5)}", "1.00", "50% [19%, 81%]", "0.900", "0.400",
    ]  # fmt: skip


def test_a_confirmation_that_has_only_begun_confirms_nothing():
    """Until all fresh seeds have results, worst and success rate are of the search, as the score is."""
    found = cells(printed(sure([4.0, 16.0], [1.0]), space=RACE))
    assert found[2:] == ["3/12", "4.00 16.00 | 1.00", "4.00", "100% [16%, 100%]", "0.900", "-"]


def test_a_confirmed_sweep_is_read_in_a_hundred_columns():
    """With sixteen seeds nothing is cut off, and the caption says which seeds are which."""
    table = printed(sure([16.0] * 6, [12.0] * 10), space=RACE, width=100)
    assert max(map(len, table.splitlines())) <= 100
    name, _, _, Gs, *_ = cells(table)
    assert name.replace(" ", "").endswith("gradient_window=1")
    assert Gs == " ".join(["16.00"] * 6 + ["|"] + ["12.00"] * 10)
    assert "stand behind the |" in " ".join(table.split())


def test_a_variant_is_shown_by_its_name_alone(tmp_path, monkeypatch):
    """Table and plot call a configuration by the name of its variant, as the space has it."""
    run = tiny_run()
    record = ConfigRecord.of(run, number=0, suggested={"variant": "PAR hold"})
    state = ConfigState(record, {0: SeedState((), good(4.0))})
    [row] = shown(state)
    assert f"│ {record.id}  PAR hold │" in row
    specs = []
    monkeypatch.setattr("vl_convert.vegalite_to_png", lambda spec, scale: specs.append(spec) or b"")
    ledger = Ledger.create(tmp_path, "demo", SweepRecord(space=""))
    ledger.add_config(record)
    ledger.finish(record.id, 0, good(4.0))
    assert accuracy_by_depth(ledger, tmp_path / "plot.png").exists()
    assert [panel["title"]["text"] for spec in specs for panel in spec["concat"]] == [f"{run.backbone}  PAR hold"]


def test_a_picture_names_its_failed_seeds_and_needs_none_that_ended_well(tmp_path):
    """A sweep whose only seed failed, or that has none, has a picture too; of a failed seed it has the kind."""
    ledger = Ledger.create(tmp_path, "demo", SweepRecord(space=""))
    assert accuracy_by_depth(ledger, tmp_path / "none.png").read_bytes().startswith(b"\x89PNG")
    record = ConfigRecord.of(tiny_run(), number=0, suggested={})
    ledger.add_config(record)
    ledger.finish(record.id, 0, SeedResult(metrics={"G": 0.0}, failure="NUMERIC"))
    assert accuracy_by_depth(ledger, tmp_path / "failed.png").read_bytes().startswith(b"\x89PNG")


def test_a_choice_is_shown_with_its_key():
    """Numbers have three digits; a short name has the last part of the key."""
    record = ConfigRecord.of(tiny_run(), number=0, suggested={"optim.lr": 0.00124872, "recurrence.anchor": "none"})
    assert record.choices() == ["optim.lr=0.00125", "recurrence.anchor=none"]
    assert record.choices(short=True) == ["lr=0.00125", "anchor=none"]

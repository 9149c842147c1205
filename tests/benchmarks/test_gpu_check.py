"""The check for GPUs works on a CPU, at tiny sizes, and can fail."""

from dataclasses import replace

import pytest
import torch
from torch import distributed as dist
from typer.testing import CliRunner

from benchmarks import gpu_check
from benchmarks.gpu_check import REHEARSAL, app, check, distance, left_padded_masks, nan_rows, unfit_libraries
from par.model.packing import Layout

QUICK = replace(REHEARSAL, iterations=(2,), ways=(), kernels=("split",))


def test_without_a_gpu_it_is_skipped_with_the_reason(monkeypatch):
    """No GPU is no failure: exit code 0 and one line that says why nothing was checked."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 0
    assert done.output.startswith("skipped: no GPU")


def test_the_rehearsal_finds_everything_in_order(capsys):
    """Steps, agreements and padding are all as they should be, and no process group is left behind."""
    assert check(QUICK)
    assert not dist.is_initialized()
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("step in bf16", "bf16 with fp32", "packed prompts of unequal length"))
    assert "NOT AS IT SHOULD BE" not in shown


def test_a_hidden_token_is_found(monkeypatch, capsys):
    """If branches miss one token of the prefix, packed prompts no longer answer as prompts of their own do."""
    visible = Layout.visible_BQT

    def without_the_first(layout: Layout) -> torch.Tensor:
        return visible(layout).index_fill(-1, torch.tensor([0]), False)

    monkeypatch.setattr(Layout, "visible_BQT", without_the_first)
    assert not check(QUICK)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith("NOT AS IT SHOULD BE")]
    assert [row.split("  ")[0] for row in rows] == ["a prompt for every question with packed prompts"]


def test_a_failed_row_stops_no_other(monkeypatch, capsys):
    """What a way of computing raises is shown in its row; the rows after it are still found, the whole has failed."""
    monkeypatch.setattr(gpu_check, "_paddings", lambda plan: iter([]))
    assert not check(replace(QUICK, ways=({"attention": "flex"}, {"activation_checkpointing": True})))
    rows = capsys.readouterr().out.splitlines()
    failed = next(number for number, row in enumerate(rows) if row.startswith("attention=flex"))
    assert "ConfigError" in rows[failed]
    assert "NOT AS IT SHOULD BE" not in rows[failed + 1]


def test_distance_of_logits():
    """A shift of all candidates is no distance; a tenth of all differences is 0.1, whatever their size."""
    wanted = torch.tensor([[1.0, 2.0, 3.0], [0.0, 5.0, -5.0]])
    assert distance(wanted + torch.tensor([[7.0], [-3.0]]), wanted) == pytest.approx(0, abs=1e-6)
    assert distance(1.1 * wanted, wanted) == pytest.approx(0.1)
    assert distance(1100 * wanted, 1000 * wanted) == pytest.approx(0.1)


def test_left_padded_rows_see_nobody():
    """Both masks hide everything from the padding and leave a real token its past; a NaN answer is counted by row."""
    boolean, additive = left_padded_masks(tokens=5, padding=2).values()
    assert boolean.sum(1).tolist() == [0, 0, 1, 2, 3]
    assert torch.equal(additive == 0, boolean)
    poisoned = additive.clone()
    poisoned[[0, 3]] = torch.nan
    assert nan_rows(poisoned) == 2


def test_other_versions_are_named(monkeypatch):
    """A library outside the project's range is named with the range and its version; those inside are not."""
    assert list(unfit_libraries()) == []
    monkeypatch.setattr(gpu_check, "version", lambda name: "5.17.0" if name == "transformers" else "2.13.0")
    [(wanted, found)] = unfit_libraries()
    assert wanted.startswith("transformers")
    assert found == "5.17.0"

"""What the page compares: backbones by their seeds, and early signals with what became of the seeds."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from par.ledger.ledger import HISTORY
from par.ledger.records import SeedResult
from par.statistics.comparison import paired_improvement, probability_of_improvement
from par.statistics.spread import variance_split
from tests.report.pages import DIVERGED, Page, good, page_of, small


def test_backbones_are_compared_by_their_best(tmp_path):
    """Each pair of backbones has tests on the seeds of its best configuration, with p adjusted for their number."""
    good_one, bad_one = dict.fromkeys(range(6), 8.0), dict.fromkeys(range(6), 1.0)
    names = ("tiny-qwen2", "tiny-qwen3", "mini-qwen3")
    found = Page(page_of(small(tmp_path, good_one, bad_one, good_one, backbones=names)))
    pairs = [["tiny-qwen2", "tiny-qwen3"], ["tiny-qwen2", "mini-qwen3"], ["tiny-qwen3", "mini-qwen3"]]
    head, *rows = found.table("against", "spread")
    assert [row[:2] for row in rows] == pairs
    assert [row[head.index("G ≥ 2")] for row in rows] == ["p < 0.001", "p = 1.000", "p < 0.001"]
    assert [row[:2] for row in found.table("against", "on one seed the first is better")[1:]] == pairs


def test_backbones_are_paired_on_the_seeds_that_both_have(tmp_path):
    """Six seeds against four: the four are compared one by one, and the two that only one has are named (X10)."""
    first, second = {seed: 2.0**seed for seed in range(6)}, {seed: 2.0**seed - 0.1 for seed in range(4)}
    found = Page(page_of(small(tmp_path, first, second, backbones=("tiny-qwen2", "tiny-qwen3"))))
    [[*_, said]] = found.table("on one seed the first is better")[1:]
    assert said == f"{paired_improvement(first, second)}"
    assert said.startswith("on 4 shared seeds: 1.00 [")
    assert said.endswith("; only in the first: seeds 4, 5")
    [row] = found.table("against", "spread")[1:]
    unpaired = probability_of_improvement(list(first.values()), list(second.values()))
    assert row[2:4] == ["6, 4", f"{unpaired}"]
    assert not row[3].startswith("1.00")


def test_variance_between_seeds_is_told_from_that_of_prompts(tmp_path):
    """Shares that differ by more than their prompts explain vary between seeds, a failed one being 0."""
    read = [SeedResult(metrics={**good(8.0).metrics, "full_state_16x": share}) for share in (0.5, 0.9)]
    ledger = small(tmp_path, {0: read[0], 1: read[1], 2: DIVERGED}, {0: 8.0}, backbones=("tiny-qwen2", "tiny-qwen3"))
    prompts = ledger.read().configs[0].record.run["evaluation"]["sequences"]
    split = variance_split([0.5, 0.9, 0.0], [prompts] * 3)
    part = f"{split.between:.4f} ({split.between / split.total:.0%})"
    assert Page(page_of(ledger)).table("variance over seeds")[1:] == [
        ["tiny-qwen2", "3", str(prompts), "0.47", f"{split.total:.4f}", part, f"{split.binomial:.4f}"],
        ["tiny-qwen3", "1", str(prompts), "not measured", "–", "–", "–"],
    ]


def recorded(ledger, config, seed, **columns):
    """Twenty records of the whole training."""
    steps = [config.record.run["train"]["steps"] * part // 20 for part in range(1, 21)]
    buffer = io.BytesIO()
    pq.write_table(pa.table({"step": steps, **columns}), buffer)
    ledger.write_bytes(config.id, seed, HISTORY, buffer.getvalue())


def test_seeds_without_a_signal_are_counted(tmp_path):
    """A row says how many seeds of its backbone lack the signal, and how many of these failed (X10)."""
    ledger = small(tmp_path, {0: 1.0, 1: 2.0, 2: 4.0, 3: 8.0, 4: 16.0, 5: DIVERGED, 6: DIVERGED, 7: 3.0}, seeds=8)
    [config] = ledger.read().configs
    for seed in range(5):
        recorded(ledger, config, seed, **{"train/drift": [10.0 - seed] * 20})
    [row] = Page(page_of(ledger)).table("signal")[1:]
    assert row == ["largest drift, first half of training", "tiny-qwen2", "5", "3", "2", "-1.00", "p = 0.017"]


def test_a_backbone_whose_seeds_all_diverged_has_its_row(tmp_path):
    """No seed of it has the signal that others have: the row counts them and says that they are too few (X10)."""
    ledger = small(tmp_path, {0: 1.0}, {0: DIVERGED}, backbones=("tiny-qwen2", "tiny-qwen3"), seeds=1)
    recorded(ledger, ledger.read().configs[0], 0, **{"train/drift": [1.0] * 20})
    rows = Page(page_of(ledger)).table("signal")[1:]
    assert [row[1:6] for row in rows] == [
        ["tiny-qwen2", "1", "0", "0", "too few seeds to say (1, needs 5)"],
        ["tiny-qwen3", "0", "1", "1", "too few seeds to say (0, needs 5)"],
    ]


def test_late_spikes_are_no_early_signal(tmp_path):
    """Gradient spikes count up to half of the steps that training was to take, not after."""
    ledger = small(tmp_path, dict(enumerate((1.0, 2.0, 4.0, 8.0, 16.0))), seeds=5)
    [config] = ledger.read().configs
    for seed in range(5):
        norms = (
            [100.0 if place < seed else 1.0 for place in range(10)] + [100.0] * (8 - 2 * seed) + [1.0] * (2 + 2 * seed)
        )
        recorded(ledger, config, seed, **{"train/grad_norm": norms})
    [row] = Page(page_of(ledger)).table("signal")[1:]
    assert row[0] == "gradient spikes, first half of training"
    assert row[-2] == "1.00"

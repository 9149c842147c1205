"""What the page says about seeds: their numbers, what is missing, and what cannot be said."""

import io
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from par.errors import LedgerError
from par.ledger.ledger import HISTORY
from par.ledger.records import Attempt, SeedResult
from par.race.verdicts import judge
from par.report.page.caveats import caveats
from par.report.page.datasets import PROFILE_POINTS, cells, confirmed, profiles
from par.report.page.gathered import COURSE_POINTS, Course
from par.report.page.page import datasets
from par.report.page.parameters import parameters
from tests.report.pages import DIVERGED, Page, gathered_of, good, page_of, small

NUMBERS = ("worst", "G ≥ 2", "IQM", "search score")


def attempt(ledger, config, seed, **end):
    begun = ledger.begin_attempt(config, seed, Attempt(start="2026-01-01T12:00:00+00:00"))
    if end:
        ledger.end_attempt(config, seed, replace(begun, end="2026-01-01T13:00:00+00:00", **end))


def test_the_failing_seed_is_read_before_the_iqm(tmp_path):
    """Of five seeds at 16 and one at 1.8 the worst and 5/6 [0.36, 1.00] stand before IQM = 16 (X7)."""
    ledger = small(tmp_path, {**dict.fromkeys(range(5), 16.0), 5: 1.8})
    head, row = Page(page_of(ledger)).table(*NUMBERS)
    assert head.index("worst") < head.index("G ≥ 2") < head.index("mean G") < head.index("IQM")
    assert dict(zip(head, row, strict=True)) | {"worst": "1.80", "G ≥ 2": "5/6 [0.36, 1.00]", "IQM": "16.00"} == dict(
        zip(head, row, strict=True)
    )


def test_five_seeds_have_no_humps(tmp_path):
    """Of five seeds, however far apart, the page says that they are too few, and no p (X8)."""
    words = Page(page_of(small(tmp_path, {0: 0.5, 1: 0.6, 2: 16.0, 3: 16.0, 4: 15.0}, seeds=5))).words
    assert "two humps was not tested, too few seeds to say (5, needs 10)" in words
    assert "p = " not in words
    assert "p < " not in words


def test_ten_seeds_are_tested_for_humps(tmp_path):
    """From ten seeds on the dip test is made and says p (X8)."""
    outcomes = {seed: (0.5 if seed < 5 else 15.0) + seed / 100 for seed in range(10)}
    found = Page(page_of(small(tmp_path, outcomes, seeds=10)))
    assert "too few seeds" not in found.words
    [_, row] = found.table("n", "more than one hump? (dip test, from 10 seeds)")
    assert row[-1].startswith("p ")


def test_missing_seeds_are_named(tmp_path):
    """A configuration with four of six seeds is named with the two that lack, and where they stand (X10)."""
    ledger = small(tmp_path, dict.fromkeys(range(6), 8.0), dict.fromkeys(range(4), 4.0))
    first, second = (config.id for config in ledger.read().configs)
    attempt(ledger, second, 4, failure="HANG", message="no word")
    found = Page(page_of(ledger))
    rows = found.table("seeds without a result")[1:]
    assert [row[0].split()[0] for row in rows] == [second]
    assert rows[0][-1] == "4 (HANG), 5 (waiting)"
    assert "1 configuration lacks 2 seeds" in found.words
    assert first not in rows[0][0]


def test_the_score_is_set_against_that_of_fresh_seeds(tmp_path):
    """A lucky configuration shows both scores, both means, and the optimism, which is between the means (X1)."""
    fresh = dict.fromkeys(range(1000, 1010), 1.0)
    ledger = small(tmp_path, {0: 16.0, 1: 8.0, **fresh}, seeds=2, more="confirm: 1\nfresh_seeds: 10")
    [config] = ledger.read().configs
    verdicts = [
        judge(config, stage, seeds, "extrapolation_auc")
        for stage, seeds in (("search", range(2)), ("confirm", range(1000, 1010)))
    ]
    for verdict in verdicts:
        ledger.give_verdict(config.id, verdict)
    searched, sure = (verdict.score for verdict in verdicts)
    found = Page(page_of(ledger))
    tables = [table for table in found.tables if "optimism" in table[0]]
    assert [table[1][-5:] for table in tables] == [[f"{searched:.3f}", f"{sure:.3f}", "0.750", "0.062", "0.688"]] * 2
    drawn = found.constant("DATA")["confirmed"]
    assert [drawn[name] for name in ("search", "fresh", "optimism")] == [[0.75], [0.0625], [0.6875]]


def test_a_point_below_the_diagonal_was_a_lucky_one(large):
    """In the chart a configuration lies below the diagonal exactly where its optimism is above 0 (X1)."""
    drawn = confirmed(gathered_of(large))
    points = list(zip(drawn["search"], drawn["fresh"], drawn["optimism"], strict=True))
    assert {fresh < search for search, fresh, _ in points} == {True, False}
    assert all((fresh < search) == (optimism > 0) for search, fresh, optimism in points)


def test_without_confirmation_the_best_score_is_too_good(tmp_path):
    """Where nothing is confirmed the page says of how many the best score is the best (X1)."""
    said = caveats(gathered_of(small(tmp_path, {0: 8.0, 1: 8.0}, {0: 2.0, 1: 1.0}, seeds=2)))
    assert any(
        sentence.startswith("Nothing is confirmed on fresh seeds: the best score is the best of 2 ")
        for sentence in said
    )


def test_different_prompts_are_a_limit(tmp_path):
    """Two evaluation sets are named, each with its number of seeds; one is not remarkable."""
    same, other = {0: good(8.0), 1: good(4.0)}, {0: good(8.0), 1: good(4.0, evaluation_set="f" * 16)}
    for name, outcomes, expected in (("same", same, 0), ("other", other, 1)):
        said = caveats(gathered_of(small(tmp_path / name, outcomes, seeds=2)))
        assert sum("different prompts" in sentence for sentence in said) == expected


def test_censored_seeds_are_a_limit(tmp_path):
    """Seeds whose G is a lower bound are counted, and so is every mean with them."""
    said = caveats(gathered_of(small(tmp_path, {0: good(16.0, censored=True), 1: good(4.0)}, seeds=2)))
    assert any(sentence.startswith("Of 2 seeds 1 are censored: ") for sentence in said)


def test_failures_are_counted_by_kind(tmp_path):
    """Attempts and last words are counted apart, with the last message; device-hours are those of all attempts.

    An attempt that ends with a result says nothing of a failure: that of a diverged one stands in the result alone.
    """
    ledger = small(tmp_path, {0: 8.0, 1: DIVERGED}, seeds=2)
    [config] = ledger.read().configs
    attempt(ledger, config.id, 0, failure="HANG", message="gone", device_seconds=1800.0)
    attempt(ledger, config.id, 0, device_seconds=3600.0)
    attempt(ledger, config.id, 1, device_seconds=900.0)
    found = Page(page_of(ledger))
    assert found.table("kind", "attempts")[1:] == [
        ["NUMERIC", f"{config.id} seed 1: loss=nan", "1", "1"],
        ["HANG", "every such seed went on", "1", "0"],
    ]
    assert found.table("device-hours")[1:] == [["tiny-qwen2", "2", "2", "3", "1.75"]]


def test_every_seed_is_in_the_heat_map_once(large):
    """Each cell is a (configuration, seed) that has begun or is to come; one with a result has a G or a failure."""
    gathered = gathered_of(large)
    found = cells(gathered)
    places = list(zip(found["configuration"], found["seed"], strict=True))
    assert len(set(places)) == len(places)
    kinds = Counter(found["kind"])
    failed = sum(seed.result.failure is not None for seed in gathered.seeds)
    assert (kinds["G"], kinds["failed"]) == (len(gathered.seeds) - failed, failed)
    assert kinds["open"] == sum(map(len, gathered.missing.values())) > 0


def test_settings_are_judged_by_the_seeds_that_all_have(large):
    """Of each key and backbone every seed of the first rung is counted in one part, and no other seed is."""
    gathered = gathered_of(large)
    found = parameters(gathered)
    counts = Counter[tuple[str, str]]()
    for key, backbone, said in zip(found["parameter"], found["backbone"], found["said"], strict=True):
        counts[key, backbone] += int(said.split("/")[1].split()[0])
    paired = Counter(seed.backbone for seed in gathered.seeds if seed.number in (0, 1))
    assert {
        (key, backbone): paired[backbone] for key in gathered.overview.space.search for backbone in paired
    } == counts


def test_a_part_of_a_range_lies_on_its_own_scale(tmp_path):
    """On a log range a value lies in its part by its logarithm, and a point within that part."""
    found = parameters(gathered_of(small(tmp_path, {0: 8.0}, {0: 1.0}, {0: 1.0}, seeds=1)))
    assert found["part"] == ["0.0001 to 0.000251", "0.000251 to 0.000631"]
    assert found["said"][0].startswith("1/2 ")
    assert 1e-4 < found["at"][0] < 2.51e-4 < found["at"][1] < 6.31e-4


def test_a_long_course_keeps_its_peaks():
    """A drift curve of many records is short, and its largest value is still there at its step."""
    steps, values = list(range(1000)), [1.0] * 1000
    values[777] = 50.0
    course = Course(steps, values).peaks()
    assert len(course.steps) <= COURSE_POINTS
    assert dict(zip(course.steps, course.values, strict=True))[777] == 50.0
    assert Course([1, 2], [3.0, 4.0]).peaks() == Course([1, 2], [3.0, 4.0])


def test_a_profile_is_drawn_from_end_to_end(large):
    """However many seeds there are, the profile begins at P(G ≥ 0) = 1, ends at the best seed, and is short."""
    gathered = gathered_of(large)
    found = profiles(gathered)
    for backbone in gathered.backbones:
        rows = [
            (g, rate)
            for name, stage, g, rate in zip(found["backbone"], found["stage"], found["g"], found["rate"], strict=True)
            if (name, stage) == (backbone, "search")
        ]
        assert rows[0] == (0.0, 1.0)
        assert len(rows) <= PROFILE_POINTS
        assert rows == sorted(rows, key=lambda row: (row[0], -row[1]))
        best = max(seed.G for seed in gathered.seeds if seed.backbone == backbone)
        assert rows[-1][0] == pytest.approx(best, rel=1e-3)


def test_drift_without_records_is_that_after_training(tmp_path):
    """A seed whose history has no drift shows it at R/2, R and 2R; one that has a history is not among these."""
    profile = {"drift_half": 1.1, "drift_once": 1.2, "drift_twice": 1.4}
    with_profile = SeedResult(metrics={**good(8.0).metrics, **profile})
    ledger = small(tmp_path, {0: with_profile, 1: with_profile}, seeds=2)
    [config] = ledger.read().configs
    buffer = io.BytesIO()
    pq.write_table(pa.table({"step": [5, 10], "train/drift": [1.0, 1.5]}), buffer)
    ledger.write_bytes(config.id, 1, HISTORY, buffer.getvalue())
    found = datasets(gathered_of(ledger))["unrecorded"]
    assert (found["seed"], found["drift"]) == ([0, 0, 0], [1.1, 1.2, 1.4])
    assert "tiny-qwen2, after training" in page_of(ledger)


def test_a_damaged_curve_is_named(tmp_path):
    """A file that is no Parquet ends the report with its path, not with a traceback of the reader."""
    ledger = small(tmp_path, {0: 8.0}, seeds=1)
    [config] = ledger.read().configs
    ledger.write_bytes(config.id, 0, HISTORY, b"not Parquet")
    with pytest.raises(LedgerError, match=f"demo/configs/{config.id}/seed-0/history.parquet is damaged"):
        gathered_of(ledger)

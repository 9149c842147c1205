"""What the benchmarks say of known times, on a clock that the work itself moves."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.__main__ import CASES, app
from benchmarks.harness import TOLERANCE, Case, Result, Spread, Target, Times, disagreement, store, take_times
from benchmarks.machine import Hardware

HARDWARE = Hardware(cpu="Some(R) CPU @ 2.0GHz", cores=2, ram_gib=7.5, gpu=None)
SECONDS = st.floats(1e-3, 1e3)


@dataclass
class FakeClock:
    """A clock that stands still but for the work done, and a diary of that work."""

    now_s: float = 0.0
    diary: list[str] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now_s

    def works(self, who: str, seconds: Sequence[float]):
        """Work that takes the next of ``seconds`` at each call."""
        rest = iter(seconds)

        def work() -> tuple[float]:
            self.diary.append(who)
            self.now_s += next(rest)
            return (1.0,)

        return work


def case(product=lambda: (1.0,), reference=lambda: (1.0,), *, name="a", **more) -> Case:
    wanted = {"amount": 10, "target": Target("≥", 3)} | more
    return Case(name=name, setting={"n": 5}, product=product, reference=reference, **wanted)


def result(name: str, product_s=(1.0, 2.0, 4.0), reference_s=(4.0, 8.0, 16.0), **more) -> Result:
    times = Times(product_s, reference_s)
    return Result(case=case(name=name, **more), disagreement=0.0, times=times, peak=200.0)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [((5, 1, 4, 2, 3), (3, 2, 4)), ((4, 1, 3, 2), (2.5, 1.75, 3.25)), ((7,), (7, 7, 7)), ((1, 1, 1, 9), (1, 1, 3))],
)
def test_spread_of_known_numbers(values, wanted):
    """Median and quartiles of an unordered sample are those worked out by hand."""
    assert Spread.of(values) == Spread(*wanted)


def test_ways_take_turns_and_warm_ups_do_not_count():
    """Product and reference alternate; each timed call is its own work's time, the warm-ups' times are left out."""
    clock = FakeClock()
    both = case(clock.works("product", [90, 80, 1, 2, 3]), clock.works("reference", [70, 60, 4, 5, 6]))
    assert take_times(both, repeats=3, warm_ups=2, clock=clock) == Times((1, 2, 3), (4, 5, 6))
    assert clock.diary == ["product", "reference"] * 5


@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=8))
def test_a_shared_load_does_not_move_the_ratio(pairs):
    """If a load slows both calls of a pair by the same factor, whatever it is for each pair, both ratios stay."""
    product_s, reference_s, loads = zip(*pairs, strict=True)
    loaded = Times(*(tuple(s * load for s, load in zip(way, loads, strict=True)) for way in (product_s, reference_s)))
    unloaded = Times(product_s, reference_s)
    for still, moved in ((unloaded.speed_up, loaded.speed_up), (unloaded.overhead, loaded.overhead)):
        assert (moved.low, moved.median, moved.high) == pytest.approx((still.low, still.median, still.high))


def test_rates_and_ratio_of_known_times():
    """Ten answers in 1, 2 and 4 s are 5 per second in the median; four times the seconds is the ratio 4."""
    measured = result("a")
    assert measured.product == Spread(5.0, 3.75, 7.5)
    assert measured.reference == Spread(1.25, 0.9375, 1.875)
    assert measured.ratio == Spread(4.0, 4.0, 4.0)


@pytest.mark.parametrize(
    ("target", "ratio", "met"),
    [
        (Target("≥", 4.0), 4.0, True), (Target("≥", 4.1), 4.0, False),
        (Target("≤", 0.25), 0.25, True), (Target("≤", 0.2), 0.25, False),
    ],
)  # fmt: skip
def test_a_target_says_which_way_the_ratio_goes(target, ratio, met):
    """At least: reference over product, more is better. At most: product over reference, less is. The limit is met."""
    record = result("a", target=target).record()
    assert record["ratio"]["median"] == ratio
    assert record["ratio_target"] == str(target)
    assert record["ratio_target_met"] is met


def test_utilisation_is_the_share_of_the_peak():
    """100 FLOPs in 1, 2 and 4 s: 50 FLOP/s in the median, a quarter of a peak of 200; without FLOPs there is none."""
    measured = result("a", flops=100.0)
    assert measured.rate == Spread(50.0, 37.5, 75.0)
    assert measured.utilisation == Spread(0.25, 0.1875, 0.375)
    assert measured.record()["utilisation_target_met"] is False
    assert result("a").utilisation is None
    assert "utilisation" not in result("a").record()


@pytest.mark.parametrize(
    ("difference", "refused"), [(0.0, False), (0.9 * TOLERANCE, False), (1.1 * TOLERANCE, True), (float("nan"), True)]
)
def test_different_results_are_not_timed(difference, refused):
    """A number that differs by more than the limit, or is not a number, is an error that names case and numbers."""
    apart = case(lambda: (3.0, 0.0), lambda: (3.0, difference))
    if refused:
        with pytest.raises(ValueError, match=r"a: product .* and reference .* differ"):
            disagreement(apart)
    else:
        assert disagreement(apart) == pytest.approx(difference)


def test_nothing_to_compare_is_no_agreement():
    """Work without numbers has no disagreement at all; numbers on one side only are an error, never agreement."""
    assert disagreement(case(tuple, tuple)) is None
    with pytest.raises(ValueError, match="differ"):
        disagreement(case(tuple, lambda: (1.0,)))


def test_a_case_left_out_keeps_its_record(tmp_path):
    """One file per hardware: a case measured again is replaced, one that was not keeps date, commit and times."""
    path = store([result("a"), result("b")], HARDWARE, tmp_path)
    before = json.loads(path.read_text())
    assert store([result("b", product_s=(2.0, 4.0, 8.0))], HARDWARE, tmp_path) == path
    after = json.loads(path.read_text())
    assert list(tmp_path.iterdir()) == [path]
    assert path.name == "some-r-cpu-2-0ghz-2-cores.json"
    assert after["cases"]["a"] == before["cases"]["a"]
    assert after["cases"]["b"]["ratio"]["median"] == 2.0
    assert after["cases"]["b"].keys() >= {"date", "commit", "versions", "threads", "setting", "product_s"}


def test_an_unknown_case_is_refused():
    """A name that is no case ends with exit code 2 and the names of all cases, before anything is measured."""
    done = CliRunner().invoke(app, ["train_step", "training"])
    assert done.exit_code == 2
    assert "training" in done.output
    assert all(name in done.output for name in CASES)

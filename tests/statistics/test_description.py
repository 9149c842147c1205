from par.statistics.description import censored_share, describe, interquartile_mean, mean_interval, median_G, summary
from par.statistics.success import THRESHOLDS, success_conditional_mean, success_rate


def test_a_failing_seed_is_read_before_the_iqm():
    """Of five seeds at 16 and one at 1.8 the worst and 5/6 [0.36, 1.00] come before IQM = 16, which is last (X7)."""
    text = str(describe([16.0, 16, 16, 16, 16, 1.8], [True] * 5 + [False]))
    assert text.index("1.80") < text.index("G ≥ 8: 5/6 [0.36, 1.00]") < text.index("IQM 16.00")
    assert text.endswith("IQM 16.00")


def test_a_description_is_what_its_parts_say():
    """Each number of a description is that of its own statistic."""
    Gs, censored = [16.0, 16, 7, 3, 0, 0.4], [True, True, False, False, False, False]
    found, short = describe(Gs, censored), summary(Gs)
    assert (found.n, found.worst, found.mean, found.sd) == (short.n, short.worst, short.mean, short.sd)
    assert found.success == tuple((level, success_rate(Gs, level)) for level in THRESHOLDS)
    assert (found.conditional_mean, found.interval) == (success_conditional_mean(Gs), mean_interval(Gs))
    assert (found.censored, found.median) == (censored_share(censored), median_G(Gs, censored))
    assert found.iqm == interquartile_mean(Gs)


def test_one_failed_seed_is_described_in_words():
    """Of a single failed seed every line is there, and says what is needed where a number would say too much."""
    assert str(describe([0.0], [False])).splitlines() == [
        "seeds: 1, the worst at G = 0.00",
        *(f"G ≥ {level}: 0/1 [0.00, 0.97]" for level in (2, 4, 8, 16)),
        "mean of those with G ≥ 2: too few successful seeds to say (0, needs 1)",
        "mean 0.00 too few seeds to say (1, needs 4), sd too few seeds to say (1, needs 2)",
        "censored 0%, median 0.00",
        "IQM too few seeds to say (1, needs 4)",
    ]


def test_a_median_beyond_the_bounds_is_not_reached():
    """Where most seeds are at the ceiling the text says that the median is not reached."""
    assert "censored 75%, median not reached" in str(describe([16.0, 16, 16, 0], [True, True, True, False]))

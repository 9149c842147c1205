"""The sections of the page, in the order in which a person should read them."""

from collections.abc import Mapping

from par.race.selection import winners
from par.report.page import charts, results
from par.report.page.blocks import Columns, Section, Table
from par.report.page.gathered import Gathered
from par.report.page.parameters import parameter_charts, trend_rows
from par.report.page.provenance import failure_table, hours_table, missing_table, provenance_table
from par.report.page.results import comparison_tables

NO_RESULT = "No seed has a result yet."


def sections(gathered: Gathered, tables: Mapping[str, Columns]) -> list[Section]:
    """Every section; one without data says so."""
    if not gathered.seeds:
        outcomes = [
            Section(anchor=anchor, title=title, sentences=[NO_RESULT])
            for anchor, title in (*_OUTCOMES.items(), ("configurations", "Configurations in numbers"))
        ]
    else:
        outcomes = [
            _seeds(gathered), _profiles(gathered), _parameters(gathered, tables), _accuracy(gathered),
            _heat(gathered, tables), _optimism(gathered, tables), _drift(gathered, tables), _numbers(gathered),
            _comparison(gathered), _signals(gathered),
        ]  # fmt: skip
    return [*outcomes, _failures(gathered), _provenance(gathered)]


_OUTCOMES = {
    "seeds": "Every seed", "profiles": "How many seeds reach which G", "parameters": "What success goes along with",
    "accuracy": "Accuracy by depth", "heat": "Configurations and seeds", "optimism": "What the search promised",
    "drift": "Drift of good and failed seeds",
}  # fmt: skip


def _seeds(gathered: Gathered) -> Section:
    return Section(
        anchor="seeds", title=_OUTCOMES["seeds"],
        lead="A triangle is a lower bound: accuracy never fell below one half on the tested depths. A failed seed lies "
        "at 0. Height within a row means nothing. Fresh seeds are those of confirmed configurations.",
        charts=[charts.every_seed(gathered), charts.success_intervals(gathered)],
        tables=[results.backbone_table(gathered)],
    )  # fmt: skip


def _profiles(gathered: Gathered) -> Section:
    return Section(
        anchor="profiles", title=_OUTCOMES["profiles"],
        lead="Share of seeds with G at least g. A plateau between two steps separates bad seeds from good ones. The "
        "bands are exact 95 % intervals at each g, not for the whole curve.",
        charts=list(charts.profiles(gathered)),
    )  # fmt: skip


def _parameters(gathered: Gathered, tables: Mapping[str, Columns]) -> Section:
    title, rows = _OUTCOMES["parameters"], trend_rows(gathered)
    if not tables["parameters"]:
        return Section(anchor="parameters", title=title, sentences=["No searched setting has a seed with a result."])
    trends = Table(title="Logistic trends of success", columns=("setting", "backbone", "trend"), rows=rows, names=3)
    return Section(
        anchor="parameters", title=title,
        lead="Seeds of the first rung alone, which every configuration has. Bars are exact 95 % intervals; a range is "
        "taken in five equal parts, in each of which the backbones stand beside each other.",
        charts=list(parameter_charts(gathered, tables["parameters"])), tables=[trends],
    )  # fmt: skip


def _accuracy(gathered: Gathered) -> Section:
    return Section(
        anchor="accuracy", title=_OUTCOMES["accuracy"],
        lead="A line per seed, up to the deepest prompt tested. The dashed lines are d_train and 50 %; a cross at "
        "d_train is a seed that failed and was never tested.",
        charts=list(charts.accuracies(gathered)),
    )  # fmt: skip


def _heat(gathered: Gathered, tables: Mapping[str, Columns]) -> Section:
    return Section(
        anchor="heat", title=_OUTCOMES["heat"],
        lead="G of each seed, best configuration first; + is a lower bound, red a kind of failure. Fresh seeds stand "
        "apart. An empty field is a seed that the race never gave.",
        charts=list(charts.heat_maps(gathered, tables["cells"])),
    )  # fmt: skip


def _optimism(gathered: Gathered, tables: Mapping[str, Columns]) -> Section:
    title = _OUTCOMES["optimism"]
    if not tables["confirmed"]:
        return Section(anchor="optimism", title=title, sentences=["No configuration is confirmed on fresh seeds yet."])
    return Section(
        anchor="optimism", title=title,
        lead="Optimism is the mean score over the seeds of the search less the mean score over fresh seeds, which the "
        "search never saw. A point below the diagonal was a lucky one.",
        sentences=[str(winner) for winner in winners(gathered.race)],
        charts=[charts.optimism(gathered, tables["confirmed"])],
    )  # fmt: skip


def _drift(gathered: Gathered, tables: Mapping[str, Columns]) -> Section:
    drawn = [*charts.drifts(gathered), *charts.drift_profiles(gathered, tables["unrecorded"])]
    if not drawn:
        return Section(anchor="drift", title=_OUTCOMES["drift"], sentences=["No seed has a record of its drift."])
    return Section(
        anchor="drift", title=_OUTCOMES["drift"],
        lead="How the scale of the state changes from the first iteration to the last, before rescaling; 1 is no "
        "change. Of long records the largest value of each part of training is drawn.",
        charts=drawn,
    )  # fmt: skip


def _numbers(gathered: Gathered) -> Section:
    return Section(
        anchor="configurations", title="Configurations in numbers",
        lead="The worst seed and the success rate come first: a mean hides failing seeds, and the IQM leaves them out. "
        "Success rates have exact 95 % intervals, means bootstrap intervals, which are short for few seeds. Scores are "
        "lower confidence bounds; optimism compares means, as bounds rise with the number of seeds.",
        tables=list(results.configuration_tables(gathered)),
    )  # fmt: skip


def _comparison(gathered: Gathered) -> Section:
    alone = len(gathered.leaders()) < 2
    return Section(
        anchor="backbones", title="Backbones against each other",
        lead="The best configuration of each, on fresh seeds if it is confirmed, otherwise on the seeds that chose it, "
        "which flatter it. Variance between seeds is what the number of test prompts does not explain. In pairs: the "
        "probability that the first is better, ties counted half, with its 95 % interval. Seed by seed it is on the "
        "seeds that both have, and those that only one has are named. On all seeds of each, success is tested by "
        "Boschloo's exact test, spread by a permutation test; p is also adjusted for so many tests.",
        tables=list(comparison_tables(gathered)),
        sentences=["One backbone: there is nothing to compare it with."] if alone else [],
    )  # fmt: skip


def _signals(gathered: Gathered) -> Section:
    table = results.signal_table(gathered)
    if not table.rows:
        return Section(anchor="signals", title="Early signals", sentences=["No seed has a record of early signals."])
    return Section(
        anchor="signals", title="Early signals",
        lead="Whether what is seen early in training tells good seeds from bad ones, within a backbone. Seeds without "
        "a signal, such as those that diverged before their first record, are counted beside it. p is not adjusted for "
        "the number of tests.",
        tables=[table],
    )  # fmt: skip


def _failures(gathered: Gathered) -> Section:
    failures, hours = failure_table(gathered), hours_table(gathered)
    return Section(
        anchor="failures", title="Failures and device-hours",
        lead="Device-hours are those of attempts that have ended, lost ones too.",
        tables=[table for table in (failures, hours) if table.rows],
        sentences=[] if failures.rows else ["No attempt has failed."],
    )  # fmt: skip


def _provenance(gathered: Gathered) -> Section:
    missing = missing_table(gathered)
    return Section(
        anchor="provenance", title="Provenance",
        tables=[provenance_table(gathered), *([missing] if missing.rows else [])],
        sentences=[] if missing.rows else ["No configuration lacks a seed that it is to have so far."],
    )  # fmt: skip

"""The sections of the page, in the order in which a person should read them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from par.race.verdicts import winners
from par.report.page import charts, results
from par.report.page.blocks import Chart, Columns, Section, Table
from par.report.page.gathered import Gathered
from par.report.page.parameters import parameter_charts, trend_rows
from par.report.page.provenance import failure_table, hours_table, missing_table, provenance_table

NO_RESULT = "No seed has a result yet."
FIRST_RESULT = "seeds", "profiles", "parameters", "accuracy", "heat", "optimism", "drift", "configurations"
"""The sections that say that there is no result yet; what compares or correlates results is not there before."""


class About(NamedTuple):
    """What stands in a section whatever the sweep."""

    title: str
    lead: str = ""
    otherwise: str = NO_RESULT
    """The only sentence of a section that has nothing to show."""


ABOUT = {
    "seeds": About(
        "Every seed",
        "A triangle is a lower bound: accuracy never fell below one half on the tested depths. A failed seed lies at "
        "0. Height within a row means nothing. Fresh seeds are those of confirmed configurations.",
    ),
    "profiles": About(
        "How many seeds reach which G",
        "Share of seeds with G at least g. A plateau between two steps separates bad seeds from good ones. The bands "
        "are exact 95 % intervals at each g, not for the whole curve.",
    ),
    "parameters": About(
        "What success goes along with",
        "Seeds of the first rung alone, which every configuration has. Bars are exact 95 % intervals; a range is taken "
        "in five equal parts, in each of which the backbones stand beside each other.",
        "No searched setting has a seed with a result.",
    ),
    "accuracy": About(
        "Accuracy by depth",
        "A line per seed, up to the deepest prompt tested. The dashed lines are d_train and 50 %; a cross at d_train "
        "is a seed that failed and was never tested.",
    ),
    "heat": About(
        "Configurations and seeds",
        "G of each seed, best configuration first; + is a lower bound, red a kind of failure. Fresh seeds stand apart. "
        "An empty field is a seed that the race never gave.",
    ),
    "optimism": About(
        "What the search promised",
        "Optimism is the mean score over the seeds of the search less the mean score over fresh seeds, which the "
        "search never saw. A point below the diagonal was a lucky one.",
        "No configuration is confirmed on fresh seeds yet.",
    ),
    "drift": About(
        "Drift of good and failed seeds",
        "How the scale of the state changes from the first iteration to the last, before rescaling; 1 is no change. Of "
        "long records the largest value of each part of training is drawn.",
        "No seed has a record of its drift.",
    ),
    "configurations": About(
        "Configurations in numbers",
        "The worst seed and the success rate come first: a mean hides failing seeds, and the IQM leaves them out. "
        "Success rates have exact 95 % intervals, means bootstrap intervals, which are short for few seeds. Scores are "
        "lower confidence bounds; optimism compares means, as bounds rise with the number of seeds.",
    ),
    "backbones": About(
        "Backbones against each other",
        "The best configuration of each, on fresh seeds if it is confirmed, otherwise on the seeds that chose it, "
        "which flatter it. Variance between seeds is what the number of test prompts does not explain. In pairs: the "
        "probability that the first is better, ties counted half, with its 95 % interval. Seed by seed it is on the "
        "seeds that both have, and those that only one has are named. On all seeds of each, success is tested by "
        "Boschloo's exact test, spread by a permutation test; p is also adjusted for so many tests.",
    ),
    "signals": About(
        "Early signals",
        "Whether what is seen early in training tells good seeds from bad ones, within a backbone. Seeds without a "
        "signal, such as those that diverged before their first record, are counted beside it. p is not adjusted for "
        "the number of tests.",
        "No seed has a record of early signals.",
    ),
    "failures": About(
        "Failures and device-hours", "Device-hours are those of attempts that have ended, lost ones too."
    ),
    "provenance": About("Provenance"),
}


def sections(gathered: Gathered, tables: Mapping[str, Columns]) -> list[Section]:
    """Every section; one without data says so."""
    if gathered.seeds:
        outcomes = [_section(anchor, parts) for anchor, parts in _outcomes(gathered, tables).items()]
    else:
        outcomes = [Section(anchor=name, title=ABOUT[name].title, sentences=[NO_RESULT]) for name in FIRST_RESULT]
    failures, hours, missing = failure_table(gathered), hours_table(gathered), missing_table(gathered)
    went_wrong = failures if failures.rows else "No attempt has failed."
    lacks = missing if missing.rows else "No configuration lacks a seed that it is to have so far."
    return [
        *outcomes,
        _section("failures", [went_wrong, *([hours] if hours.rows else [])]),
        _section("provenance", [provenance_table(gathered), lacks]),
    ]


def _section(anchor: str, parts: Sequence[Chart | Table | str]) -> Section:
    """Sentences, then charts, then tables; without any a sentence says why."""
    title, lead, otherwise = ABOUT[anchor]
    if not parts:
        return Section(anchor=anchor, title=title, sentences=[otherwise])
    return Section(
        anchor=anchor,
        title=title,
        lead=lead,
        charts=[part for part in parts if isinstance(part, Chart)],
        tables=[part for part in parts if isinstance(part, Table)],
        sentences=[part for part in parts if isinstance(part, str)],
    )


def _outcomes(gathered: Gathered, tables: Mapping[str, Columns]) -> dict[str, Sequence[Chart | Table | str]]:
    """What seeds with a result have to show, by section."""
    columns, signals = ("setting", "backbone", "trend"), results.signal_table(gathered)
    trends = Table(title="Logistic trends of success", columns=columns, rows=trend_rows(gathered), names=3)
    searched, confirmed = tables["parameters"], tables["confirmed"]
    alone = ["One backbone: there is nothing to compare it with."] if len(gathered.leaders()) < 2 else []
    return {
        "seeds": [charts.every_seed(gathered), charts.success_intervals(gathered), results.backbone_table(gathered)],
        "profiles": list(charts.profiles(gathered)),
        "parameters": [*parameter_charts(gathered, searched), trends] if searched else [],
        "accuracy": list(charts.accuracies(gathered)),
        "heat": list(charts.heat_maps(gathered, tables["cells"])),
        "optimism": [*map(str, winners(gathered.race)), charts.optimism(gathered, confirmed)] if confirmed else [],
        "drift": [*charts.drifts(gathered), *charts.drift_profiles(gathered, tables["unrecorded"])],
        "configurations": list(results.configuration_tables(gathered)),
        "backbones": [*results.comparison_tables(gathered), *alone],
        "signals": [signals] if signals.rows else [],
    }

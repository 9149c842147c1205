"""What these data cannot say: each limit in one sentence, from the sweep's own state and the statistics' answers."""

from collections.abc import Iterator

from par.race.status import is_complete, unproposed
from par.report.page.gathered import FRESH, Gathered
from par.report.page.provenance import evaluation_sets
from par.report.table import counted
from par.statistics.description import mean_interval
from par.statistics.seeds import TooFew
from par.statistics.spread import SPREAD_SEEDS, dip_test


def caveats(gathered: Gathered) -> list[str]:
    """Sentences, the gravest first."""
    return [
        *_unfinished(gathered), *_prompts(gathered), *_selection(gathered), *_too_few(gathered), *_bounds(gathered),
        *_pooling(gathered),
    ]  # fmt: skip


def _unfinished(gathered: Gathered) -> Iterator[str]:
    overview = gathered.overview
    if overview.driver is not None:
        yield "The sweep is still running: every number here may change."
    elif not is_complete(overview.state, overview.space):
        yield "The sweep is not complete, and nobody drives it: what is missing may be what fails most."
    if missing := gathered.missing:
        who, lack = counted(len(missing), "configuration"), "lacks" if len(missing) == 1 else "lack"
        seeds = counted(sum(map(len, missing.values())), "seed")
        yield f"{who} {lack} {seeds}, listed under Provenance: no number here knows them."
    if further := unproposed(overview.state, overview.space):
        yield f"Of {counted(overview.space.total, 'configuration')} {further} are not proposed yet."


def _prompts(gathered: Gathered) -> Iterator[str]:
    if len(found := evaluation_sets(gathered)) > 1:
        sets = "; ".join(found)
        yield f"Seeds were tested on different prompts, {sets}: differences between them may be the prompts'."
    if unknown := sum(not seed.result.evaluation_set and not seed.result.failure for seed in gathered.seeds):
        yield f"Of {counted(unknown, 'seed')} it is not recorded on which prompts they were tested."


def _selection(gathered: Gathered) -> Iterator[str]:
    if not any(seed.stage == FRESH for seed in gathered.seeds) and len(gathered.by_config) > 1:
        yield (
            f"Nothing is confirmed on fresh seeds: the best score is the best of {len(gathered.by_config)} "
            "and so too good by an unknown amount."
        )


def _too_few(gathered: Gathered) -> Iterator[str]:
    if not gathered.seeds:
        yield "No seed has a result yet."
    for backbone, seeds in gathered.leaders().items():
        Gs = [seed.G for seed in seeds]
        if isinstance(found := dip_test(Gs), TooFew):
            yield f"{backbone}: whether good and bad seeds fall into two humps was not tested, {found}."
        if isinstance(found := mean_interval(Gs), TooFew):
            yield f"{backbone}: the mean of the best configuration has no interval, {found}."
    if len(leaders := gathered.leaders()) > 1 and min(map(len, leaders.values())) < SPREAD_SEEDS:
        yield "Whether all backbones have the same spread was not tested: too few seeds to say."


def _bounds(gathered: Gathered) -> Iterator[str]:
    if bounds := sum(seed.censored for seed in gathered.seeds):
        yield (
            f"Of {counted(len(gathered.seeds), 'seed')} {bounds} are censored: accuracy never fell below one half on "
            "the tested depths, so their G, and every mean with it, is a lower bound."
        )
    if failed := sum(seed.result.failure is not None for seed in gathered.seeds):
        yield (
            f"{counted(failed, 'seed')} failed for good. In every number a failed seed counts as G = 0; none is left "
            "out of a mean."
        )


def _pooling(gathered: Gathered) -> Iterator[str]:
    if len(gathered.overview.space.stages.rungs) > 1 and gathered.seeds:
        yield (
            "A race gives good configurations more seeds, so the share of good ones among all seeds of a backbone is "
            "no property of the backbone."
        )
    if len(gathered.by_config) > 1:
        yield (
            "Seeds of one configuration are alike, and intervals and tests over several configurations take them as "
            "independent: those are too narrow, and p too small."
        )

"""What the seeds of one stage say about a configuration."""

from collections.abc import Sequence

from par import metrics as m
from par.study.records import ConfigState, Stage, Verdict
from par.study.statistics.location import summary
from par.study.statistics.scores import lower_bound
from par.study.statistics.success import SUCCESS, success_rate


def judge(config: ConfigState, stage: Stage, seeds: Sequence[int], score: str) -> Verdict:
    """The score of a configuration over the seeds of a stage, failures counted as 0, and the aggregates beside it."""
    results = [config.results[seed] for seed in seeds]
    factors = [result.score(m.G.name) for result in results]
    over_seeds, success = summary(factors), success_rate(factors, SUCCESS)
    return Verdict(
        score=lower_bound([result.score(score) for result in results]),
        seeds=tuple(seeds),
        stage=stage,
        metrics=m.by_name(
            {
                m.G_MEAN: over_seeds.mean,
                m.G_MIN: over_seeds.worst,
                m.SUCCESS_RATE: success.rate,
                m.SUCCESS_LOW: success.low,
                m.SUCCESS_HIGH: success.high,
                m.N_SEEDS: len(results),
                m.N_FAILED: sum(result.failure is not None for result in results),
                m.G_SD: over_seeds.sd,
            }
        ),
    )

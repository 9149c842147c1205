"""What the seeds of one stage say about a configuration."""

from collections.abc import Sequence
from dataclasses import replace

from par import metrics as m
from par.ledger.records import SeedResult, Stage, Verdict
from par.ledger.state import ConfigState, SweepState
from par.race.racing import Race
from par.space.space import Space
from par.statistics.location import summary
from par.statistics.scores import lower_bound
from par.statistics.success import SuccessRate, success_rate

FAR = 16.0
"""G from which a seed counts in success_16x."""


def judge(config: ConfigState, stage: Stage, seeds: Sequence[int], score: str) -> Verdict:
    """The score of a configuration over the seeds of a stage, failures counted as 0, and the aggregates beside it."""
    bound = lower_bound([config.results[seed].score(score) for seed in seeds], score)
    return Verdict(score=bound, seeds=tuple(seeds), stage=stage, metrics=aggregates(config, seeds))


def judged(race: Race, config: str) -> ConfigState:
    """The configuration with its verdicts on all stages that are complete, whether or not a driver has written them."""
    state = race.configs[config]
    for stage, seeds in race.due(config):
        state = state.judged(judge(state, stage, seeds, race.score))
    return state


def as_judged(state: SweepState, space: Space) -> SweepState:
    """The sweep with every verdict that its results allow: a driver that died may not have written the last ones."""
    race = Race(space.stages, space.score, state.configs)
    return replace(state, configs=tuple(judged(race, config.id) for config in state.configs))


def aggregates(config: ConfigState, seeds: Sequence[int]) -> dict[str, float]:
    """What these seeds, which all have a result, come to, by metric name."""
    results = [config.results[seed] for seed in seeds]
    over_seeds, success = summary([result.score(m.G.name) for result in results]), _success_16x(results)
    return m.by_name(
        {
            m.G_MEAN: over_seeds.mean,
            m.G_SD: over_seeds.sd,
            m.G_MIN: over_seeds.worst,
            m.SUCCESS_16X: success and success.rate,
            m.SUCCESS_LO: success and success.low,
            m.SUCCESS_HI: success and success.high,
            m.N_SEEDS: len(results),
            m.N_FAILED: sum(result.failure is not None for result in results),
            m.GPU_HOURS: sum(config.device_hours(seed) for seed in seeds),
        }
    )


def _success_16x(results: Sequence[SeedResult]) -> SuccessRate | None:
    """The share of seeds with G >= 16; None where a seed was still right at the end of a grid that ends before that."""
    Gs = [result.score(m.G.name) for result in results]
    censored = [result.failure is None and result.metrics.get(m.CENSORED.name, 0) > 0 for result in results]
    unknown = any(bound < FAR for bound, is_bound in zip(Gs, censored, strict=True) if is_bound)
    return None if unknown else success_rate(Gs, FAR)

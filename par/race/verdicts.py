"""What seeds say: about a configuration, about which one to take, and about how much the search flattered it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from par import metrics as m
from par.ledger.records import SeedResult, Stage, Verdict
from par.ledger.state import ConfigState, SweepState
from par.race.racing import Race
from par.space.space import Space
from par.statistics.description import summary
from par.statistics.scores import lower_bound, selected
from par.statistics.success import SuccessRate, success_rate

FAR = 16.0
"""G from which a seed counts in success_16x."""


def judge(config: ConfigState, stage: Stage, seeds: Sequence[int], score: str) -> Verdict:
    """The score of a configuration over the seeds of a stage, failures counted as 0, and the aggregates beside it."""
    bound = lower_bound(_scores(config, seeds, score), score)
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


@dataclass(frozen=True, slots=True)
class Winner:
    """The best confirmed configuration of a backbone."""

    config: ConfigState
    confirmed: int
    """Configurations that it was chosen from."""
    fresh: int
    """Seeds of the confirmation of each."""
    score: float
    """Mean score over seeds, estimated so that choosing does not flatter it."""

    def __str__(self) -> str:
        """A sentence for a person."""
        settings = ", ".join(self.config.record.choices()) or "the fixed settings"
        among = f"best of {self.confirmed} confirmed" if self.confirmed > 1 else "the one that is confirmed"
        return (
            f"{self.config.record.backbone}: take {self.config.id} ({settings}), {among}. Mean score over {self.fresh} "
            f"fresh seeds, half of which choose and the others judge: {self.score:.3f}"
        )


def winners(race: Race) -> Iterator[Winner]:
    """The winner of each backbone whose best configurations are all confirmed: among these, and any others that are."""
    confirmed = {
        name: config for name, config in race.configs.items() if config.results.keys() >= set(race.stages.fresh_seeds)
    }
    for backbone in race.known:
        best = race.best(backbone)
        if best and confirmed.keys() >= set(best):
            rivals = {name: config for name, config in confirmed.items() if config.record.backbone == backbone}
            scores = {name: _scores(of, race.stages.fresh_seeds, race.score) for name, of in rivals.items()}
            found = selected(scores, race.score)
            yield Winner(confirmed[found.name], len(scores), race.stages.fresh, found.score)


@dataclass(frozen=True, slots=True)
class Optimism:
    """Mean scores of a confirmed configuration over the seeds of the search, and over fresh ones.

    Means, as lower bounds also differ with the number of seeds: that of 10 fresh ones is above that of 2 alike.
    """

    search: float
    fresh: float

    @property
    def difference(self) -> float:
        """Above 0 where the search promised too much."""
        return self.search - self.fresh


def optimism(config: ConfigState, score: str) -> Optimism | None:
    """Compare what its verdicts cover, a failed seed being 0; None before the configuration is confirmed.

    Raises LedgerError if a seed was not measured by ``score``.
    """
    searched, confirmed = config.verdict, config.confirmation
    if searched is None or confirmed is None:
        return None
    return Optimism(fmean(_scores(config, searched.seeds, score)), fmean(_scores(config, confirmed.seeds, score)))


def _scores(config: ConfigState, seeds: Sequence[int], score: str) -> list[float]:
    return [config.results[seed].score(score) for seed in seeds]

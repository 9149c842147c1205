"""What a sweep, a configuration and a seed are, in a few lines of Markdown; the same ledger gives the same text."""

from par import metrics as m
from par.ledger.records import Verdict
from par.ledger.state import ConfigState, SweepState
from par.race.status import last_word
from par.report.table import counted, rank, shown

BEST = 10
"""Configurations that a sweep's note lists."""
LONGEST_MESSAGE = 200


def sweep_note(question: str, state: SweepState) -> str:
    """The question, how far the sweep has come, and its best configurations, best first."""
    done = sum(len(config.results) for config in state.configs)
    judged = [config for config in sorted(state.configs, key=rank) if config.verdict]
    begun = f"{len(state.configs)} configurations, {done} of {sum(len(c.seeds) for c in state.configs)} seeds done."
    best = [f"- {_name(config)}: {_scores(config)}" for config in judged[:BEST]]
    return "\n".join([f"**{question}**", "", begun, *(["", "Best first:", "", *best] if best else [])])


def configuration_note(config: ConfigState) -> str:
    """What was chosen, what its seeds are worth, and every seed of it that has begun, worst first."""
    judged = [_judgement(verdict) for verdict in (config.verdict, config.confirmation) if verdict]
    Gs = {seed: result.score(m.G.name) for seed, result in config.results.items()}
    seeds = sorted(config.seeds, key=lambda seed: (seed in Gs, Gs.get(seed, 0.0), seed))
    listed = ["", "Seeds, worst first:", "", *(f"- {_seed_line(config, seed)}" for seed in seeds)] if seeds else []
    return "\n".join([f"**{_name(config)}**", "", *(judged or ["No score yet."]), *listed])


def seed_note(config: ConfigState, seed: int) -> str:
    """How one seed went."""
    return f"**{_name(config)}**\n\n{_seed_line(config, seed)}"


def _name(config: ConfigState) -> str:
    return f"{config.record.backbone}: {', '.join(config.record.choices()) or 'the fixed settings'} ({config.id})"


def _scores(config: ConfigState) -> str:
    verdicts = (config.confirmation, config.verdict)
    return ", ".join(
        f"{verdict.stage} {verdict.score:.3f} over {counted(len(verdict.seeds), 'seed')}"
        for verdict in verdicts
        if verdict
    )


def _judgement(verdict: Verdict) -> str:
    word = "Search" if verdict.stage == "search" else "Confirmation, on seeds that the search never saw"
    return f"{word}: score {verdict.score:.3f} over {counted(len(verdict.seeds), 'seed')}.\n"


def _seed_line(config: ConfigState, seed: int) -> str:
    """Result, stage, what the failure said, and what it took."""
    kind, message = last_word(config, seed)
    result = config.results.get(seed)
    ended = f"G = {shown(result)}" if result else "no result yet" + (f", {kind}" if kind else "")
    said = f": {message.splitlines()[0][:LONGEST_MESSAGE]}" if message else ""
    attempts = counted(len(config.attempts(seed)), "attempt")
    stage = ", fresh" if config.stage(seed) == "confirm" else ""
    return f"seed {seed}{stage}: {ended}{said} ({attempts}, {config.device_hours(seed):.2f} device-hours)"

"""What happened besides the results: failures, attempts, time on devices, and which code and prompts were used."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from par.ledger.state import ConfigState
from par.race.status import failures, in_a_word
from par.report.page.blocks import Table
from par.report.page.gathered import Gathered

LONGEST_MESSAGE = 400


def failure_table(gathered: Gathered) -> Table:
    """By kind: attempts that ended so, seeds whose last word it is, and what the last of them said."""
    attempts = Counter(kind for config, seed in _begun(gathered) for kind in _ends(config, seed))
    found = failures(gathered.overview.state)
    seeds = {kind: found.get(kind, []) for kind in (*attempts, *found)}
    said = {kind: f"{place}: {message[:LONGEST_MESSAGE]}" for kind, [*_, (place, message)] in found.items()}
    rows = [
        [kind, said.get(kind, "every such seed went on"), str(attempts[kind]), str(len(seeds[kind]))]
        for kind in sorted(seeds, key=lambda kind: (-len(seeds[kind]), kind))
    ]
    columns = ("kind", "the last one said", "attempts", "seeds that ended so")
    return Table(title="Failures by kind", columns=columns, rows=rows, names=2)


def hours_table(gathered: Gathered) -> Table:
    """Seeds, attempts and device-hours of each backbone."""
    found: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
    for config, seed in _begun(gathered):
        counts, attempts = found[config.record.backbone], len(config.attempts(seed))
        for place, more in enumerate((1, seed in config.results, attempts, config.device_hours(seed))):
            counts[place] += more
    if len(found) > 1:
        found["all"] = [sum(column) for column in zip(*found.values(), strict=True)]
    rows = [
        [backbone, *(str(count) for count in counts), f"{hours:.2f}"] for backbone, (*counts, hours) in found.items()
    ]
    columns = ("backbone", "seeds begun", "with a result", "attempts", "device-hours")
    return Table(title="Attempts and device-hours", columns=columns, rows=rows)


def missing_table(gathered: Gathered) -> Table:
    """The configurations that lack seeds which they are to have, with where each of these stands."""
    driven, configs = gathered.overview.driven, {config.id: config for config in gathered.configs}
    rows = [
        [
            " ".join([name, *configs[name].record.choices()]),
            configs[name].record.backbone,
            ", ".join(f"{seed} ({in_a_word(configs[name], seed, driven=driven)})" for seed in seeds),
        ]
        for name, seeds in gathered.missing.items()
    ]
    columns = ("configuration", "backbone", "seeds without a result")
    return Table(title="Missing seeds", columns=columns, rows=rows, names=3)


def provenance_table(gathered: Gathered) -> Table:
    """When, with which code and libraries, on which prompts."""
    sweep = gathered.overview.state.sweep
    libraries = ", ".join(f"{name} {version}" for name, version in sweep.libraries.items())
    facts = {
        "sweep": gathered.overview.name,
        "created": sweep.created,
        "this page": gathered.overview.now.isoformat(timespec="seconds"),
        "space": f"{sweep.space_path} {sweep.space_fingerprint or ''}".strip(),
        "commit": sweep.commit,
        "source": sweep.source,
        "Python": sweep.python,
        "libraries": libraries,
        "evaluation sets": "; ".join(evaluation_sets(gathered)),
    }
    rows = [[name, str(value) if value else "not recorded"] for name, value in facts.items()]
    return Table(title="Provenance", columns=("what", "value"), rows=rows, names=2)


def evaluation_sets(gathered: Gathered) -> list[str]:
    """The hashes of the test prompts that were read, each with its number of seeds."""
    counts = Counter(seed.result.evaluation_set for seed in gathered.seeds if seed.result.evaluation_set)
    return [f"{name} ({count} seeds)" for name, count in counts.most_common()]


def _begun(gathered: Gathered) -> Iterator[tuple[ConfigState, int]]:
    return ((config, seed) for config in gathered.configs for seed in config.seeds)


def _ends(config: ConfigState, seed: int) -> Iterator[str]:
    """The kinds of failure that attempts of a seed ended with; that of a result is its last attempt's."""
    kinds = [attempt.failure for attempt in config.attempts(seed)]
    result = config.results.get(seed)
    if kinds and result and result.failure:
        kinds[-1] = result.failure
    return filter(None, kinds)

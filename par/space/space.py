"""A search space: what a sweep compares, and why. Loads without torch."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from par.config.run import RunConfig
from par.errors import ConfigError, SpaceError
from par.metrics import FULL_STATE_16X
from par.space.check_runs import judge
from par.space.conditions import holds, parents_first, walk
from par.space.domains import Domain
from par.space.inactive import inert_faults
from par.space.parse import Draft, read_draft
from par.space.stages import Stages
from par.space.variants import VARIANT, twin_faults
from par.space.yaml_lines import Fault, locate, read_text, refusal

GRID_LIMIT = 10_000
"""Most combinations of a grid, for each backbone."""


class Exhausted(NamedTuple):
    """The configurations of a backbone, and how many were wanted when it was found that there are no others."""

    found: int
    wanted: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """A search space that has been checked: each of its samples is a valid RunConfig on each of its backbones."""

    question: str
    """What the sweep is to answer."""
    cost: str
    """What it takes, in words; may be empty."""
    backbones: tuple[str, ...]
    fixed: Mapping[str, object]
    """Settings that every run shares, by dotted key."""
    search: Mapping[str, Domain]
    """Settings that are searched, by dotted key; with variants the choice between their names."""
    variants: Mapping[str, Mapping[str, object]]
    """The settings of each variant, which override ``fixed``; empty where ``search`` is a search."""
    configurations: int
    """Proposals in total, over all backbones."""
    stages: Stages
    """How many seeds a configuration has."""
    sampler: str
    """tpe, random or grid."""
    sampler_seed: int
    score: str
    """The metric that ranks seeds, one of par.metrics.SCORES."""
    name: str
    """The file's name without its ending."""
    text: str
    """The file as it was read."""
    exhausted: Mapping[str, Exhausted] = field(default_factory=dict[str, Exhausted])
    """Backbones that ran out of configurations."""

    def shares(self) -> dict[str, int]:
        """Configurations of each backbone: equal shares, the remainder to the first ones, as far as there are any."""
        share, more = divmod(self.configurations, len(self.backbones))
        shares = {backbone: share + (place < more) for place, backbone in enumerate(self.backbones)}
        for backbone, limit in self.exhausted.items():
            if shares.get(backbone, 0) <= limit.wanted:
                shares[backbone] = limit.found
        return shares

    @property
    def total(self) -> int:
        """Configurations over all backbones, as far as there are any."""
        return sum(self.shares().values())

    def ordered(self) -> list[tuple[str, Domain]]:
        """The domains in the order of the file, but each after those that its condition names."""
        return parents_first(self.search)

    def is_active(self, key: str, suggested: Mapping[str, object]) -> bool:
        """Whether ``key`` is searched, given the values of the domains before it in ordered()."""
        return holds(self.search[key].when, {**self.fixed, **suggested})

    def grid(self) -> list[dict[str, object]]:
        """Every combination of searched values, for one backbone. Raises SpaceError if they cannot be listed."""
        try:
            return _combinations(self.search, self.fixed)
        except ConfigError as fault:
            raise SpaceError(f"{self.name}: {fault}") from None

    def run_config(self, backbone: str, suggested: Mapping[str, object], seed: int) -> RunConfig:
        """The run of one seed of one proposal."""
        chosen = self.variants[str(suggested[VARIANT])] if self.variants else suggested
        return RunConfig.from_dotted({**self.fixed, **chosen, "backbone": backbone, "seed": seed})

    def meaning(self) -> dict[str, object]:
        """All that decides which runs are made and how they are ranked, as JSON values; question and cost do not."""
        meaning = {
            "backbones": self.backbones,
            "fixed": self.fixed,
            "search": {key: str(domain) for key, domain in self.search.items() if key != VARIANT},
            "variants": self.variants,
            "configurations": self.configurations,
            **self.stages.meaning(),
            "sampler": self.sampler,
            "sampler_seed": self.sampler_seed,
            "score": self.score,
        }
        return json.loads(json.dumps(meaning))

    def fingerprint(self) -> str:
        """Sixteen hex digits that name the meaning: comments, wording and the order of keys leave it alone."""
        return hashlib.sha256(json.dumps(self.meaning(), sort_keys=True).encode()).hexdigest()[:16]


def load_space(path: Path | str) -> Space:
    """Read and check a search space file. Raises one SpaceError that lists every fault as ``path:LINE: message``."""
    return parse_space(read_text(Path(path)), Path(path))


def parse_space(text: str, path: Path) -> Space:
    """Check the text of a search space; ``path`` names it in the faults. Raises SpaceError as ``load_space`` does."""
    faults: list[Fault] = []
    root = locate(text, faults)
    if root is None or not isinstance(root.value, dict):
        message = "the file is not a mapping: open it with question, backbones and search"
        raise refusal(path, faults if root is None else [*faults, Fault(root.line, message)])
    draft = read_draft(root, faults)
    judge(draft, faults)
    configurations = _configurations(draft, faults)
    fixed = {key: entry.plain() for key, entry in draft.fixed.items()}
    if not faults:
        twins = twin_faults([variant for variant in draft.variants if variant.name], fixed, draft.backbones[0])
        faults.extend([*inert_faults(draft), *twins, *_score_faults(draft)])
    if faults:
        raise refusal(path, faults)
    return Space(
        question=draft.question,
        cost=draft.cost,
        backbones=draft.backbones,
        fixed=fixed,
        search=draft.searched,
        variants={variant.name: variant.settings() for variant in draft.variants if variant.name},
        configurations=configurations,
        stages=draft.stages,
        sampler=draft.sampler,
        sampler_seed=draft.sampler_seed,
        score=draft.score,
        name=path.stem,
        text=text,
    )


def _score_faults(draft: Draft) -> Iterator[Fault]:
    """Yield why a run could not be scored: full_state_16x is read at sixteen times the training depth."""
    if draft.score != FULL_STATE_16X.name:
        return
    keys = ("task.name", "task.train_depth", "evaluation.depths")
    searched = [(key, draft.searched[key].ends()) for key in keys if key in draft.searched]
    for variant, values in product(draft.variants, product(*(ends for _, ends in searched))):
        given = {**draft.fixed, **variant.entries}
        fixed = {key: given[key].plain() for key in keys if key in given}
        run = RunConfig.from_dotted({**fixed, **dict(zip((key for key, _ in searched), values, strict=True))})
        deepest = 16 * run.task.train_depth
        if deepest not in run.depth_grid():
            message = f"score=full_state_16x is read at depth {deepest}, which is not among {list(run.depth_grid())}"
            yield Fault(draft.lines["score"], f"{message}: add it to evaluation.depths, or use extrapolation_auc")
            return


def _configurations(draft: Draft, faults: list[Fault]) -> int:
    """Proposals over all backbones; what is wrong with the number, or with a grid, is appended to ``faults``."""
    wanted, backbones = draft.configurations, len(draft.backbones)
    if draft.sampler != "grid":
        if wanted is not None and wanted < backbones:
            message = f"configurations={wanted} leaves some of the {backbones} backbones without one: raise it"
            faults.append(Fault(draft.lines["configurations"], message))
        return wanted or 0
    for key, domain in draft.domains.items():
        try:
            domain.levels()
        except ConfigError as fault:
            faults.append(Fault(draft.lines[key], f"{key}: {fault}"))
    if faults:
        return 0
    values = {key: entry.plain() for key, entry in draft.fixed.items()}
    try:
        size = len(_combinations(draft.searched, values))
    except ConfigError as fault:
        faults.append(Fault(draft.lines.get("search", draft.lines.get("variants", 1)), str(fault)))
        return 0
    total = size * backbones
    if wanted not in (None, total):
        what = "variants" if VARIANT in draft.searched else "combinations"
        count = f"{size} {what} x {backbones} backbones = {total}"
        message = f"configurations={wanted}, but there are {count}: remove the field, or set it to {total}"
        faults.append(Fault(draft.lines["configurations"], message))
    return total


def _combinations(search: Mapping[str, Domain], fixed: Mapping[str, object]) -> list[dict[str, object]]:
    """Every combination of searched values. Raises ConfigError if they cannot be listed, or are too many."""
    rows = list(islice(walk(parents_first(search), lambda domain: domain.levels(), fixed), GRID_LIMIT + 1))
    if len(rows) > GRID_LIMIT:
        raise ConfigError(f"the grid has more than {GRID_LIMIT} combinations: use sampler tpe or random")
    return [{key: row[key] for key in search if key in row} for row in rows]

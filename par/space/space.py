"""A search space: what a sweep compares, and why. Loads without torch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from par.config.run import RunConfig
from par.errors import ConfigError, SpaceError
from par.metrics import FULL_STATE_16X
from par.space.check_runs import check_runs
from par.space.conditions import find_inactive, holds, parents_first, satisfiable, walk
from par.space.domains import Choice, Domain, read_domains
from par.space.parse import VARIANT, SpaceFile, read_file
from par.space.stages import Stages
from par.space.yaml_lines import Document, read_text

GRID_LIMIT = 10_000
"""Most combinations of a grid, for each backbone."""
ALONE = "run"
"""Name of the only variant of a space that has one run alone."""


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


def space_of_run(run: RunConfig, name: str) -> Space:
    """A space that has this run alone, so that whatever reads sweeps reads the ledger of one seed, too."""
    default = RunConfig().dotted()
    fixed = {key: value for key, value in run.dotted().items() if value != default[key]}
    for key in ("backbone", "seed"):
        fixed.pop(key, None)
    space = {
        "question": f"What does seed {run.seed} of one run achieve?", "backbones": [run.backbone], "fixed": fixed,
        "variants": {ALONE: {}}, "seeds": 1, "first_seed": run.seed,
    }  # fmt: skip
    return parse_space(json.dumps(space, indent=1), Path(f"{name}.yaml"))


def parse_space(text: str, path: Path) -> Space:
    """Check the text of a search space; ``path`` names it in the faults. Raises SpaceError as ``load_space`` does."""
    document = Document(text, path)
    file = read_file(document)
    domains = read_domains(document, file.search)
    searched = satisfiable(document, domains, file)
    if "variants" in document.values:
        file, domains, searched = file.model_copy(update={"search": {}}), {}, {}
    check_runs(document, file, domains, searched)
    _find_uncounted(document, file, domains)
    document.check()
    if file.variants:
        searched = {VARIANT: Choice(tuple(file.variants))}
    configurations = _configurations(document, file, searched)
    document.check()
    find_inactive(document, file, searched)
    _find_twins(document, file)
    _find_unscored(document, file, searched)
    document.check()
    return Space(
        question=file.question,
        cost=file.cost,
        backbones=file.backbones,
        fixed=file.fixed,
        search=searched,
        variants=file.variants,
        configurations=configurations,
        stages=file.stages(),
        sampler=file.sampler,
        sampler_seed=file.sampler_seed,
        score=file.score,
        name=path.stem,
        text=text,
    )


def _find_uncounted(document: Document, file: SpaceFile, domains: Mapping[str, Domain]) -> None:
    """Find why there are not as many configurations as the file says, or why a grid cannot list them."""
    wanted, backbones = file.configurations, len(file.backbones)
    if file.sampler != "grid" and wanted and wanted < backbones:
        message = f"configurations={wanted} leaves some of the {backbones} backbones without one: raise it"
        document.fault(message, "configurations")
    for key, domain in domains.items() if file.sampler == "grid" else ():
        try:
            domain.levels()
        except ConfigError as fault:
            document.fault(f"{key}: {fault}", "search", key)


def _configurations(document: Document, file: SpaceFile, searched: Mapping[str, Domain]) -> int:
    """Proposals over all backbones; those of a grid are counted."""
    if file.sampler != "grid":
        return file.configurations
    try:
        size, backbones = len(_combinations(searched, file.fixed)), len(file.backbones)
    except ConfigError as fault:
        document.fault(str(fault), "search" if file.search else "variants")
        return 0
    total = size * backbones
    if file.configurations not in (0, total):
        count = f"{size} {'variants' if file.variants else 'combinations'} x {backbones} backbones = {total}"
        message = f"configurations={file.configurations}, but there are {count}: remove the field, or set it to {total}"
        document.fault(message, "configurations")
    return total


def _find_twins(document: Document, file: SpaceFile) -> None:
    """Find each variant whose run is that of an earlier one: a sweep would run it once."""
    first: dict[str, str] = {}
    for name, entries in file.variants.items():
        run = RunConfig.from_dotted({**file.fixed, **entries, "backbone": file.backbones[0]})
        twin = first.setdefault(run.fingerprint(), name)
        if twin != name:
            where = f"{twin} (line {document.line('variants', twin)})"
            message = f"{name} is the same run as {where}: nothing that changes a result differs, remove one"
            document.fault(message, "variants", name)


def _find_unscored(document: Document, file: SpaceFile, searched: Mapping[str, Domain]) -> None:
    """Find why a run could not be scored: full_state_16x is read at sixteen times the training depth."""
    if file.score != FULL_STATE_16X.name:
        return
    keys = ("task.name", "task.train_depth", "evaluation.depths")
    ends = [[(key, end) for end in searched[key].ends()] for key in keys if key in searched]
    for entries, chosen in product(file.runs().values(), product(*ends)):
        given = {**file.fixed, **entries, **dict(chosen)}
        run = RunConfig.from_dotted({key: given[key] for key in keys if key in given})
        deepest = 16 * run.task.train_depth
        if deepest not in run.depth_grid():
            message = f"score=full_state_16x is read at depth {deepest}, which is not among {list(run.depth_grid())}"
            document.fault(f"{message}: add it to evaluation.depths, or use extrapolation_auc", "score")
            return


def _combinations(search: Mapping[str, Domain], fixed: Mapping[str, object]) -> list[dict[str, object]]:
    """Every combination of searched values. Raises ConfigError if they cannot be listed, or are too many."""
    rows = list(islice(walk(parents_first(search), lambda domain: domain.levels(), fixed), GRID_LIMIT + 1))
    if len(rows) > GRID_LIMIT:
        raise ConfigError(f"the grid has more than {GRID_LIMIT} combinations: use sampler tpe or random")
    return [{key: row[key] for key in search if key in row} for row in rows]

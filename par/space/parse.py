"""The model of a space file: its fields, their types and ranges, and what is wrong with them. Loads without torch."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from par.config.backbones import BACKBONES
from par.metrics import EXTRAPOLATION_AUC, SCORES
from par.space.keys import KEYS, known_settings
from par.space.stages import FRESH, Stages
from par.space.variants import EXAMPLE, read_variants
from par.space.yaml_lines import Document, Fault, Reading, did_you_mean
from par.statistics.scores import FEWEST_FRESH
from par.tasks.streams import WORD

LAST_FIRST_SEED = WORD - 2**16
"""Leaves room for the seeds that follow it."""
SAMPLERS = ("tpe", "random", "grid")
RACE = (2, 4, 6)
"""Seeds at each rung of a search; a grid has those of the first, for all."""
CONFIRMED, CONFIRMATION = 3, 10
"""Configurations of each backbone that a race confirms, and seeds of each."""


def _whole(default: int, least: int, most: int | None = None) -> Any:
    """A whole number that has a default, which may be outside the range where it means that none is given."""
    hint = f": write a whole number of at least {least}" + (f" and at most {most}" if most else "")
    return Field(default=default, ge=least, le=most, description=hint)


def _rungs(given: Any) -> tuple[int, ...]:
    """A number of seeds, or a rising list of them."""
    rungs = given if isinstance(given, tuple) else (given,)
    whole = all(isinstance(rung, int) and not isinstance(rung, bool) for rung in rungs)
    if whole and rungs and rungs[0] > 0 and rungs[-1] <= FRESH and list(rungs) == sorted(set(rungs)):
        return rungs
    raise ValueError(f": write a whole number of at least 1, or a rising list such as {list(RACE)}, up to {FRESH}")


def _one_of(options: Collection[str], given: Any) -> Any:
    if given not in tuple(options):
        hint = did_you_mean(str(given), options) or f"choose one of {', '.join(options)}"
        raise ValueError(f" does not exist: {hint}")
    return given


Text = Annotated[str, Field(pattern=r"\S", description=" is not a text: write a sentence")]
Settings = Annotated[dict[str, Any], BeforeValidator(lambda given: {} if given is None else given)]


class SpaceFile(BaseModel):
    """What a space file says, by its fields. A description is what a fault of the field says behind its value."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    question: Text = ""
    cost: Text = ""
    backbones: tuple[Any, ...] = Field(
        default=(),
        min_length=1,
        description=f" is not a list of names: list some of {', '.join(BACKBONES)} in brackets",
    )
    fixed: Settings = Field(
        default_factory=dict[str, Any], description=" is not a mapping of dotted keys, e.g. train.steps: ..."
    )
    search: Settings = Field(
        default_factory=dict[str, Any],
        description=" is not a mapping of dotted keys: "
        "give at least one key a domain, e.g. optim.lr: {float: [1e-5, 1e-3], log: true}, or name variants",
    )
    variants: dict[str, Any] = Field(
        default_factory=dict[str, Any], min_length=1, description=f" names no variant: write e.g. {EXAMPLE}"
    )
    configurations: int = _whole(0, least=1)
    """In total; 0 if the file does not say."""
    seeds: Annotated[tuple[int, ...], BeforeValidator(_rungs)] = ()
    first_seed: int = _whole(0, least=0, most=LAST_FIRST_SEED)
    confirm: int = _whole(CONFIRMED, least=0)
    fresh_seeds: int = _whole(CONFIRMATION, least=FEWEST_FRESH)
    sampler: Annotated[str, BeforeValidator(partial(_one_of, SAMPLERS))] = SAMPLERS[0]
    sampler_seed: int = _whole(0, least=0)
    score: Annotated[str, BeforeValidator(partial(_one_of, SCORES))] = EXTRAPOLATION_AUC.name

    def stages(self) -> Stages:
        """How many seeds there are."""
        rungs = self.seeds or (RACE[:1] if self.sampler == "grid" else RACE)
        confirms = len(rungs) > 1 or "confirm" in self.model_fields_set
        return Stages(
            rungs=rungs,
            first_seed=self.first_seed,
            confirmed=self.confirm if confirms else 0,
            fresh=self.fresh_seeds,
        )

    def runs(self) -> Mapping[str, Mapping[str, Any]]:
        """The settings that override the fixed ones, by variant; a space without variants has one that does not."""
        return self.variants or {"": {}}


def read_file(document: Document) -> Reading[SpaceFile]:
    """The fields of the file: a faulty one at its default, of lists and mappings the entries that are right."""
    file = yield from _fields(document)
    yield from _missing_faults(document, file)
    yield from _variants_faults(document, file)
    backbones = yield from _backbones(document, file)
    one_value = "move a domain under search"
    fixed = yield from known_settings(document, ("fixed",), file.fixed, no_domain=one_value)
    search = yield from known_settings(document, ("search",), file.search, no_domain=None)
    variants = yield from read_variants(document, file.variants)
    for key in fixed.keys() & search.keys():
        where = f"(line {document.line('fixed', key)})"
        yield Fault(document.line("search", key), f"{key} is both searched and fixed {where}: keep one of them")
    return file.model_copy(update={"backbones": backbones, "fixed": fixed, "search": search, "variants": variants})


def _fields(document: Document) -> Reading[SpaceFile]:
    values = document.values
    defaults = {"sampler": "grid"} if "variants" in values else {}
    try:
        return SpaceFile.model_validate(defaults | values)
    except ValidationError as error:
        wrong = {str(fault["loc"][0]): fault for fault in error.errors(include_url=False)}
    for name, fault in wrong.items():
        if fault["type"] == "extra_forbidden":
            message = _unknown_field(name)
        elif fault["type"] == "value_error":
            message = f"{name}={values[name]!r}{fault['msg'].removeprefix('Value error, ')}"
        else:
            message = f"{name}={values[name]!r}{SpaceFile.model_fields[name].description}"
        yield Fault(document.line(name), message)
    return SpaceFile.model_validate(defaults | {name: value for name, value in values.items() if name not in wrong})


def _unknown_field(name: str) -> str:
    fields = SpaceFile.model_fields
    if name in KEYS:
        return f"{name} stands at the top: move it under fixed or search"
    hint = did_you_mean(name, fields) or f"the fields are {', '.join(fields)}"
    return f"{name} is not a field of a space: {hint}"


def _missing_faults(document: Document, file: SpaceFile) -> Iterator[Fault]:
    """Yield a fault for each field that the file must have: what it is to answer, where, and what it compares."""
    values = document.values
    searches = "variants" not in values
    samples = searches and file.sampler != "grid"
    for name in ["question", "backbones", *["search"] * searches, *["configurations"] * samples]:
        hint = str(SpaceFile.model_fields[name].description).partition(": ")[2]
        if name not in values:
            yield Fault(document.line(), f"{name} is missing: {hint}")
        elif name == "search" and values[name] in ({}, None):
            yield Fault(document.line(name), f"{name} is empty: {hint}")


def _variants_faults(document: Document, file: SpaceFile) -> Iterator[Fault]:
    """Yield what stands beside variants in vain: every variant runs, there is nothing to search, nor to sample."""
    values, line = document.values, document.line("variants")
    if "variants" in values and "search" in values:
        message = f"variants stands in the place of search (line {document.line('search')}): keep one of them"
        yield Fault(line, message)
    elif "variants" in values and file.sampler != "grid":
        message = f"sampler={file.sampler} chooses, but all variants (line {line}) are run: remove it"
        yield Fault(document.line("sampler"), message)


def _backbones(document: Document, file: SpaceFile) -> Reading[tuple[str, ...]]:
    """The registered ones of those listed, each once."""
    for place, name in enumerate(file.backbones):
        line = document.line("backbones", place)
        if name in file.backbones[:place]:
            yield Fault(line, f"backbone {name} is listed twice: remove one")
        elif name not in tuple(BACKBONES):
            near = did_you_mean(str(name), BACKBONES) or f"choose one of {', '.join(BACKBONES)}"
            yield Fault(line, f"backbone {name} is not registered: {near}")
    return tuple(dict.fromkeys(name for name in file.backbones if name in tuple(BACKBONES)))

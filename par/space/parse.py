"""The model of a space file: its fields, their types and ranges, and what is wrong with them. Loads without torch."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from par.config.backbones import BACKBONES
from par.config.keys import RENAMED, known_keys, new_name
from par.config.run import RunConfig
from par.metrics import EXTRAPOLATION_AUC, SCORES
from par.space.stages import FRESH, Stages
from par.space.yaml_lines import Document, did_you_mean
from par.statistics.scores import FEWEST_FRESH
from par.tasks.streams import WORD

KEYS = tuple(known_keys(RunConfig))
"""The dotted keys of all settings."""
OWN_PLACE = {
    "backbone": "list it under backbones, and remove it here",
    "seed": "seeds counts them for each configuration; remove it here",
}
VARIANT = "variant"
"""What a proposal calls the variant that it is, in place of a dotted key."""
EXAMPLE = "no anchoring: {recurrence.anchor: none}"
LONGEST_NAME = 40
MARKUP = frozenset("[]$\\")
"""What tables and plots would not show as it is written in the name of a variant."""
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


def read_file(document: Document) -> SpaceFile:
    """The fields of the file: a faulty one at its default, of lists and mappings the entries that are right."""
    file = _fields(document)
    _find_missing(document, file)
    backbones = tuple(name for at, name in enumerate(file.backbones) if _is_backbone(document, file, at, name))
    fixed = _known_settings(document, ("fixed",), file.fixed, no_domain="move a domain under search")
    search = _known_settings(document, ("search",), file.search, no_domain=None)
    variants = {name: _variant(document, name, entries) for name, entries in file.variants.items()}
    for key in fixed.keys() & search.keys():
        where = f"(line {document.line('fixed', key)})"
        document.fault(f"{key} is both searched and fixed {where}: keep one of them", "search", key)
    return file.model_copy(update={"backbones": backbones, "fixed": fixed, "search": search, "variants": variants})


def _fields(document: Document) -> SpaceFile:
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
        document.fault(message, name)
    return SpaceFile.model_validate(defaults | {name: value for name, value in values.items() if name not in wrong})


def _unknown_field(name: str) -> str:
    fields = SpaceFile.model_fields
    if name in KEYS:
        return f"{name} stands at the top: move it under fixed or search"
    hint = did_you_mean(name, fields) or f"the fields are {', '.join(fields)}"
    return f"{name} is not a field of a space: {hint}"


def _find_missing(document: Document, file: SpaceFile) -> None:
    """Find the fields that the file must have: what it is to answer, where, and what it compares.

    Beside variants, all of which run, there is nothing to search, nor to sample.
    """
    values, varies = document.values, "variants" in document.values
    needed = ["question", "backbones"] if varies else ["question", "backbones", "search"]
    for name in needed if varies or file.sampler == "grid" else [*needed, "configurations"]:
        hint = str(SpaceFile.model_fields[name].description).partition(": ")[2]
        if name not in values:
            document.fault(f"{name} is missing: {hint}")
        elif name == "search" and values[name] in ({}, None):
            document.fault(f"{name} is empty: {hint}", name)
    if varies and "search" in values:
        where = f"(line {document.line('search')})"
        document.fault(f"variants stands in the place of search {where}: keep one of them", "variants")
    elif varies and file.sampler != "grid":
        every = f"all variants (line {document.line('variants')}) are run"
        document.fault(f"sampler={file.sampler} chooses, but {every}: remove it", "sampler")


def _is_backbone(document: Document, file: SpaceFile, place: int, name: Any) -> bool:
    """Whether a registered backbone is listed here, for the first time."""
    if name in file.backbones[:place]:
        document.fault(f"backbone {name} is listed twice: remove one", "backbones", place)
        return False
    if name not in tuple(BACKBONES):
        near = did_you_mean(str(name), BACKBONES) or f"choose one of {', '.join(BACKBONES)}"
        document.fault(f"backbone {name} is not registered: {near}", "backbones", place)
        return False
    return True


def _variant(document: Document, name: str, entries: Any) -> dict[str, Any]:
    """The settings of a variant; of a faulty one those that are right."""
    if name != name.strip() or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or MARKUP & set(name):
        hint = f"write at most {LONGEST_NAME} characters on one line, without {' '.join(sorted(MARKUP))}"
        document.fault(f"variants: {name!r} is no name: {hint}", "variants", name)
    if isinstance(entries, dict):
        return _known_settings(document, ("variants", name), entries, no_domain="write a variant for each value")
    hint = f"write e.g. {EXAMPLE}, or {{}} for the fixed settings alone"
    document.fault(f"{name}: {entries!r} is not a mapping: {hint}", "variants", name)
    return {}


def _known_settings(
    document: Document, place: tuple[str, ...], entries: Mapping[str, Any], *, no_domain: str | None
) -> dict[str, Any]:
    """The entries whose keys are settings of a run; ``no_domain`` says what to do with a domain."""
    for key, value in entries.items():
        messages = list(key_faults(key, value))
        if not messages and no_domain and isinstance(value, dict):
            messages = [f"{key} has one value here: {no_domain}"]
        for message in messages:
            document.fault(f"{place[-1]}: {message}", *place, key)
    return {key: value for key, value in entries.items() if key in KEYS and key not in OWN_PLACE}


def key_faults(key: str, value: object) -> Iterator[str]:
    """Yield why ``key`` cannot be fixed, searched or a condition."""
    if key in OWN_PLACE:
        yield f"{key} has its own place: {OWN_PLACE[key]}"
    elif key in RENAMED:
        yield from new_name(key)
    elif any(known.startswith(f"{key}.") for known in KEYS):
        inner = [f"{key}.{name}" for name in value] if isinstance(value, dict) else []
        example = next((name for name in inner if name in KEYS), next(k for k in KEYS if k.startswith(f"{key}.")))
        yield f"{key} is a group of settings: write dotted keys, e.g. {example}: ..."
    elif key not in KEYS:
        group = [known for known in KEYS if known.startswith(f"{key.partition('.')[0]}.")]
        listed = f"that group has {', '.join(group)}" if group else f"settings are dotted keys such as {KEYS[1]}"
        yield f"{key} is not a setting: {did_you_mean(key, KEYS) or listed}"

"""All seeds of a sweep in one table, for whoever computes with something else. Loads without torch."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from par.ledger.state import ConfigState, SweepState
from par.race.racing import Race
from par.race.status import last_word, seed_status
from par.space.domains import Choice, Domain, FloatRange, IntRange
from par.space.space import Space

PLACE = {"sweep": pa.string(), "backbone": pa.string(), "configuration": pa.string(), "seed": pa.int64()}
COURSE = {
    "stage": pa.string(), "status": pa.string(), "failure": pa.string(), "attempts": pa.int64(),
    "device_hours": pa.float64(), "score": pa.float64(),
}  # fmt: skip
_CHOICES = (({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64()))
"""Types of a choice's values, and of the column that holds them as they are; others become text."""


def seed_table(sweep: str, space: Space, state: SweepState, *, driven: bool) -> pa.Table:
    """One row per seed, in order of configuration number and seed; ``driven`` says whether a driver is alive.

    A seed that its configuration is to have has a row with its status whether or not it has begun. ``failure`` is the
    kind that a seed, or else its last attempt, ended with. ``score`` is what ranks the seed: 0 for a failed one, null
    without a result. A searched key that is not active is null, and so is a metric that the seed has not; a choice of
    mixed values is text, other values than text as JSON. The schema's metadata is that of ``identity``.
    """
    race = Race(space.stages, space.score, state.configs)
    metrics = sorted(
        {metric for config in state.configs for done in config.results.values() for metric in done.metrics}
    )
    searched = {key: _column(domain) for key, domain in space.search.items()}
    schema = pa.schema(
        PLACE | searched | COURSE | dict.fromkeys(metrics, pa.float64()), metadata=identity(sweep, space)
    )
    rows = [{"sweep": sweep} | row for config in state.configs for row in _rows(config, race, searched, driven=driven)]
    return pa.Table.from_pylist(rows, schema=schema)


def identity(sweep: str, space: Space) -> dict[str, str]:
    """Whose results these are: the sweep's name, the space's text, and the fingerprint with all that is wanted now."""
    return {"par.sweep": sweep, "par.space": space.text, "par.space_fingerprint": space.fingerprint()}


def as_parquet(table: pa.Table) -> bytes:
    """The table as a Parquet file, with its types and its metadata."""
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def as_csv(table: pa.Table) -> bytes:
    """The table as CSV with a header: text in quotes, null as nothing."""
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(table, buffer)
    return buffer.getvalue()


def _column(domain: Domain) -> pa.DataType:
    match domain:
        case FloatRange():
            return pa.float64()
        case IntRange():
            return pa.int64()
        case Choice():
            kinds = {type(value) for value in domain.values}
            return next((column for of, column in _CHOICES if kinds <= of), pa.string())


def _cell(value: Any, column: pa.DataType) -> Any:
    return json.dumps(value) if column == pa.string() and not isinstance(value, str) else value


def _rows(
    config: ConfigState, race: Race, searched: dict[str, pa.DataType], *, driven: bool
) -> Iterator[dict[str, Any]]:
    """What is known of each seed that the configuration has or is to have."""
    suggested = {key: _cell(value, searched[key]) for key, value in config.record.suggested.items()}
    for seed in sorted({*race.seeds_of(config.id), *config.seeds}):
        result = config.results.get(seed)
        yield {
            "backbone": config.record.backbone,
            "configuration": config.id,
            "seed": seed,
            "stage": config.stage(seed),
            "status": seed_status(config, seed, driven=driven).value,
            "failure": last_word(config, seed)[0] or None,
            "attempts": len(config.attempts(seed)),
            "device_hours": config.device_hours(seed),
            **suggested,
            **({"score": result.score(race.score), **result.metrics} if result else {}),
        }

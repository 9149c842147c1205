"""What one trained model says after every iteration: enough to score any halting rule without the model.

A trace is a Parquet file with one row per question, in any order:

    split     dictionary<string>           "calibration": rules are chosen on it; "test": they are reported on it
    sequence  int32                        index of the prompt in its split
    depth     int32                        operations of the prompt
    completed int32                        iteration that completes it, ceil(depth / step_size)
    box       int8                         the box that is asked for, 0 … X−1
    target    int8                         the object that is in it
    p_yes     fixed_size_list<float16>[K]  probability of Yes after iterations 1 … K
    answer    fixed_size_list<int8>[K]     the object that is answered after iterations 1 … K, −1 for none

A split holds each of its sequences at each of its depths, every time with all boxes: a share of its questions or
prompts is the mean over its depths, too. A rule sees p_yes as recorded, rounded to float16.

Dimension letters: S questions, K iterations, P prompts, X boxes.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from par.errors import DataError
from par.tasks.streams import Split

SPLITS = (Split.CALIBRATION, Split.TEST)


@dataclass(frozen=True, slots=True, eq=False)
class Traces:
    """The columns of a trace as arrays. Raises DataError, which names the column, for what no trace can hold."""

    split_S: np.ndarray
    """Values of SPLITS."""
    sequence_S: np.ndarray
    depth_S: np.ndarray
    completed_S: np.ndarray
    box_S: np.ndarray
    target_S: np.ndarray
    p_yes_SK: np.ndarray
    answer_SK: np.ndarray

    def __post_init__(self) -> None:
        fault = next(self._faults(), None)
        if fault:
            raise DataError(f"column {fault}")

    @property
    def iterations(self) -> int:
        """K, the number of recorded iterations."""
        return self.p_yes_SK.shape[1]

    def prompts(self) -> np.ndarray:
        """The rows of each prompt's boxes 0 … X−1, (P, X)."""
        order_S = np.lexsort((self.box_S, self.sequence_S, self.depth_S, self.split_S))
        return order_S.reshape(-1, int(self.box_S.max()) + 1)

    def of(self, split: Split) -> Self:
        """The questions of one split. Raises DataError if there are none."""
        rows_S = self.split_S == split
        if not rows_S.any():
            raise DataError(f"column split: no question is of {split}")
        return type(self)(*(getattr(self, field.name)[rows_S] for field in fields(self)))

    def to_parquet(self) -> bytes:
        """The bytes of the file. Raises DataError for a number that its column cannot hold."""
        columns = schema(self.iterations)
        pairs = zip(columns, fields(self), strict=True)
        table = pa.table([_to_arrow(column, getattr(self, field.name)) for column, field in pairs], schema=columns)
        data = io.BytesIO()
        pq.write_table(table, data, compression="zstd", use_dictionary=False)
        return data.getvalue()

    @classmethod
    def from_parquet(cls, source: Path | bytes) -> Self:
        """Read a trace. Raises DataError, which names file and column, if it is missing or not what a trace must be."""
        name = source if isinstance(source, Path) else "trace"
        try:
            with pq.ParquetFile(io.BytesIO(source) if isinstance(source, bytes) else source) as file:
                return cls(*_arrays(file))
        except FileNotFoundError:
            raise DataError(f"{name} does not exist") from None
        except (OSError, pa.ArrowException) as fault:
            raise DataError(f"{name} is no Parquet file: {fault}") from None
        except DataError as fault:
            raise DataError(f"{name}: {fault}") from None

    def _faults(self) -> Iterator[str]:
        for field in fields(self):
            column, _, letters = field.name.rpartition("_")
            shape = getattr(self, field.name).shape
            expected = (len(self.split_S), *self.p_yes_SK.shape[1:])[: len(letters)]
            if shape != expected or not all(shape):
                yield f"{column} has shape {shape}, must be {expected} and not empty"
        if not np.isin(self.split_S, SPLITS).all():
            yield f"split holds {sorted({*self.split_S.tolist()} - {*SPLITS})}, must be {' or '.join(SPLITS)}"
        if not ((self.p_yes_SK >= 0) & (self.p_yes_SK <= 1)).all():
            yield "p_yes holds a value outside 0..1"
        if not ((self.completed_S >= 1) & (self.completed_S <= self.iterations)).all():
            yield f"completed holds an iteration outside 1..{self.iterations}"
        boxes_X = np.arange(self.box_S.max() + 1)
        for split in np.unique(self.split_S):
            rows_S = self.split_S == split
            asked_S3 = np.stack([self.depth_S, self.sequence_S, self.box_S], axis=-1)[rows_S]
            depths_D, sequences_Q = np.unique(self.depth_S[rows_S]), np.unique(self.sequence_S[rows_S])
            grid_S3 = np.stack(np.meshgrid(depths_D, sequences_Q, boxes_X, indexing="ij"), axis=-1).reshape(-1, 3)
            if not np.array_equal(asked_S3[np.lexsort(asked_S3.T[::-1])], grid_S3):
                yield (
                    f"box: {split} does not ask once for each of {len(boxes_X)} boxes of each of its "
                    f"{len(sequences_Q)} sequences at each of its {len(depths_D)} depths"
                )


def schema(iterations: int) -> pa.Schema:
    """The columns of a trace over that many iterations."""
    columns: dict[str, pa.DataType] = {
        "split": pa.dictionary(pa.int32(), pa.string()),
        "sequence": pa.int32(),
        "depth": pa.int32(),
        "completed": pa.int32(),
        "box": pa.int8(),
        "target": pa.int8(),
        "p_yes": pa.list_(pa.float16(), iterations),
        "answer": pa.list_(pa.int8(), iterations),
    }
    return pa.schema(columns)


def _to_arrow(column: pa.Field, values: np.ndarray) -> pa.Array:
    try:
        if pa.types.is_dictionary(column.type):
            return pa.array(values, pa.string()).dictionary_encode()
        if pa.types.is_fixed_size_list(column.type):
            return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), column.type.value_type), type=column.type)
        return pa.array(values, column.type)
    except pa.ArrowInvalid as fault:
        raise DataError(f"column {column.name}: {fault}") from None


def _arrays(file: pq.ParquetFile) -> Iterator[np.ndarray]:
    """The arrays of Traces in order. Raises DataError for a column that is missing, of another type or with gaps."""
    columns = file.schema_arrow
    sizes = [column.type.list_size for column in columns if pa.types.is_fixed_size_list(column.type)]
    for column in schema(sizes[0] if sizes else 1):
        if column.name not in columns.names:
            raise DataError(f"column {column.name} is missing")
        if columns.field(column.name).type != column.type:
            raise DataError(f"column {column.name} is {columns.field(column.name).type}, must be {column.type}")
        try:
            array = file.read([column.name])[column.name].combine_chunks()
        except pa.ArrowException as fault:
            raise DataError(f"column {column.name} cannot be read: {fault}") from None
        yield _to_numpy(column, array)


def _to_numpy(column: pa.Field, array: pa.Array) -> np.ndarray:
    """A column's array: numbers are a view of the column, which is one piece if the file has one row group."""
    traced = pa.types.is_fixed_size_list(column.type)
    values = array.flatten() if traced else array
    if array.null_count or values.null_count:
        raise DataError(f"column {column.name} has gaps")
    if traced:
        return values.to_numpy().reshape(len(array), column.type.list_size)
    if pa.types.is_dictionary(column.type):
        return np.array(array.dictionary.to_pylist())[array.indices.to_numpy()]
    return array.to_numpy()

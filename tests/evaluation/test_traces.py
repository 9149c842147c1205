"""A trace says the same after it was written and read, and what cannot be one is refused by its column."""

import io
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from par.errors import DataError
from par.evaluation.traces import Traces, schema
from par.tasks.streams import Split
from tests.evaluation.recorded import recorded


def changed(data: bytes, change) -> bytes:
    table = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(data))), table)
    return table.getvalue()


def recast(column: str, kind: pa.DataType):
    return lambda table: table.set_column(
        table.schema.get_field_index(column), column, pa.array(table[column].to_pylist(), kind)
    )


def valued(column: str, **values):
    """Replace the first row's value."""

    def change(table: pa.Table) -> pa.Table:
        rows = table[column].to_pylist()
        rows[0] = values["first"]
        return recast(column, table.schema.field(column).type)(table.set_column(
            table.schema.get_field_index(column), column, pa.array(rows, table.schema.field(column).type)
        ))  # fmt: skip

    return change


@pytest.mark.parametrize("from_file", [True, False])
def test_what_is_read_is_what_was_written(tmp_path, from_file):
    """A file, or its bytes, gives back every array bit for bit and in its order."""
    written = recorded()
    path = tmp_path / "trace.parquet"
    path.write_bytes(written.to_parquet())
    read = Traces.from_parquet(path if from_file else path.read_bytes())
    for field in fields(Traces):
        before, after = getattr(written, field.name), getattr(read, field.name)
        assert np.array_equal(before, after)
        assert before.dtype == after.dtype
    assert read.iterations == 6


def test_the_file_has_the_documented_columns():
    """The columns are those of the schema; p_yes of a float32 trace is rounded to the nearest float16."""
    p_yes_SK = np.random.default_rng(0).random((24, 6), dtype=np.float32)
    data = replace(recorded(), p_yes_SK=p_yes_SK).to_parquet()
    assert pq.read_schema(io.BytesIO(data)).equals(schema(6))
    assert np.array_equal(Traces.from_parquet(data).p_yes_SK, p_yes_SK.astype(np.float16))


def test_values_per_iteration_are_read_without_a_copy():
    """The arrays per iteration are views of the file's own memory."""
    read = Traces.from_parquet(recorded().to_parquet())
    assert not read.p_yes_SK.flags.owndata
    assert not read.p_yes_SK.flags.writeable
    assert not read.answer_SK.flags.writeable


def test_a_prompt_has_its_boxes_in_order():
    """The rows of a prompt share split, depth and sequence, and ask for its boxes 0, 1, … in turn; all are there."""
    traces = recorded(sequences=3, depths=(2, 5), boxes=4)
    rows_PX = traces.prompts()
    assert sorted(rows_PX.ravel().tolist()) == list(range(2 * 3 * 2 * 4))
    assert (traces.box_S[rows_PX] == np.arange(4)).all()
    for values_S in (traces.split_S, traces.depth_S, traces.sequence_S):
        assert (values_S[rows_PX] == values_S[rows_PX[:, :1]]).all()


def test_a_split_has_its_questions_only():
    """The questions of a split are those marked so, unchanged; a trace without any is refused."""
    traces = recorded()
    test = traces.of(Split.TEST)
    assert set(test.split_S) == {"test"}
    assert np.array_equal(test.answer_SK, traces.answer_SK[traces.split_S == "test"])
    with pytest.raises(DataError, match=r"column split: no question is of calibration"):
        test.of(Split.CALIBRATION)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["target"]), "column target is missing"),
        (lambda table: table.drop_columns(["p_yes"]), "column p_yes is missing"),
        (lambda table: table.slice(0, 0), "column split has shape"),
        (lambda table: table.slice(1), "column box: .* does not ask once for each of 2 boxes"),
        (lambda table: pa.concat_tables([table, table]), "column box: .* does not ask once"),
        (recast("depth", pa.int64()), "column depth is int64, must be int32"),
        (recast("split", pa.string()), "column split is string, must be dictionary"),
        (recast("p_yes", pa.list_(pa.float16())), "column p_yes is list<.*halffloat>, must be fixed_size_list"),
        (recast("p_yes", pa.list_(pa.float32(), 6)), r"column p_yes is fixed_size_list<.*float>\[6\], must be"),
        (valued("answer", first=None), "column answer cannot be read: "),
        (valued("p_yes", first=[0.5, None, 0.5, 0.5, 0.5, 0.5]), "column p_yes has gaps"),
        (valued("target", first=None), "column target has gaps"),
        (valued("p_yes", first=[0.5, 1.5, 0.5, 0.5, 0.5, 0.5]), "column p_yes holds a value outside 0..1"),
        (valued("p_yes", first=[0.5, float("nan"), 0.5, 0.5, 0.5, 0.5]), "column p_yes holds a value outside"),
        (valued("split", first="train"), r"column split holds \['train'\], must be calibration or test"),
        (valued("box", first=-1), "column box: .* does not ask once"),
        (valued("depth", first=3), "column box: .* does not ask once"),
        (valued("completed", first=7), r"column completed holds an iteration outside 1\.\.6"),
        (valued("completed", first=0), "column completed holds an iteration outside"),
        (valued("sequence", first=7), "column box: .* does not ask once"),
    ],
)
def test_a_malformed_trace_is_refused_by_its_column(tmp_path, change, message):
    """Whatever is wrong with a file, the error is a DataError that names file and column."""
    path = tmp_path / "trace.parquet"
    path.write_bytes(changed(recorded().to_parquet(), change))
    with pytest.raises(DataError, match=f"^{path}: {message}"):
        Traces.from_parquet(path)


def test_no_file_and_no_parquet_are_told_apart(tmp_path):
    """A path that leads nowhere, and a file of another format, are DataErrors that name the file."""
    with pytest.raises(DataError, match=r"none\.parquet does not exist"):
        Traces.from_parquet(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("split,sequence")
    with pytest.raises(DataError, match=r"text\.parquet is no Parquet file"):
        Traces.from_parquet(tmp_path / "text.parquet")
    with pytest.raises(DataError, match="is no Parquet file"):
        Traces.from_parquet(tmp_path)


@pytest.mark.parametrize(("column", "letters"), [("answer", "SK"), ("p_yes", "SK"), ("target", "S"), ("depth", "S")])
def test_arrays_that_do_not_fit_together_are_refused(column, letters):
    """Arrays of a trace agree in questions and iterations; the error names the one that differs."""
    values = getattr(recorded(), f"{column}_{letters}")
    with pytest.raises(DataError, match=f"column {column} has shape"):
        replace(recorded(), **{f"{column}_{letters}": values[:-1]})


def test_a_number_too_large_for_its_column_is_refused():
    """A depth beyond int32 is an error, not another depth."""
    traces = recorded(depths=(2, 5))
    with pytest.raises(DataError, match=r"column depth: .*1099511627776"):
        replace(traces, depth_S=np.where(traces.depth_S == 5, 2**40, 2)).to_parquet()

"""Rows are copied out of mapped shards as Arrow would take them; what NumPy cannot hold is refused."""

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import InvalidInput
from halving.data.arrow_layout import NotReadable, layout_of
from halving.data.columns import Gathered, as_arrow, as_numpy, columns_of
from halving.data.shard_rows import MappedShard, allocate_rows
from tests.sdk.data.sharded import arrow_file

SECONDS = dt.datetime(2026, 1, 1)
VALUES: dict[pa.DataType, Any] = {
    pa.int8(): st.integers(-128, 127),
    pa.uint16(): st.integers(0, 65_535),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float16(): st.floats(width=16, allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.large_binary(): st.binary(max_size=5),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.timestamp("us"): st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)),
    pa.timestamp("ms", "UTC"): st.integers(-(2**40), 2**40),
    pa.duration("s"): st.integers(-(2**30), 2**30),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.time32("s"): st.integers(0, 86_399),
    pa.list_(pa.float32(), 3): st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3),
    pa.list_(pa.list_(pa.int16(), 2), 2): st.lists(
        st.lists(st.integers(-9, 9), min_size=2, max_size=2), min_size=2, max_size=2
    ),
    pa.list_(pa.int32()): st.lists(st.integers(-9, 9), max_size=4),
    pa.large_list(pa.float64()): st.lists(st.floats(allow_nan=False), max_size=4),
}


def gather(
    shards: list[MappedShard], which: "np.ndarray[Any, Any]", rows: "np.ndarray[Any, Any]", schema: pa.Schema
) -> list[Gathered]:
    columns = allocate_rows(columns_of(schema, None, "the data"), len(rows))
    for number, shard in enumerate(shards):
        places = np.flatnonzero(which == number)
        shard.fill(columns, places, rows[places])
    return columns


def map_shard(table: pa.Table, batch: int) -> MappedShard:
    return MappedShard(np.frombuffer(arrow_file(table, batch), np.uint8), table.num_rows)


@given(data=st.data(), batch=st.integers(1, 7))
@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_rows_are_those_that_arrow_takes(type_: pa.DataType, batch: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[type_]), min_size=2, max_size=20))
    table = pa.table({"before": pa.array(range(len(values))), "x": pa.array(values, type_)})
    cut = data.draw(st.integers(1, len(values) - 1))
    shards = [map_shard(table[:cut], batch), map_shard(table[cut:], batch)]
    rows_to_read = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=30)))
    which = (rows_to_read >= cut).astype(int)
    rows = as_arrow(gather(shards, which, rows_to_read - which * cut, table.schema))
    rows.validate(full=True)
    assert rows.equals(table.take(pa.array(rows_to_read)).combine_chunks().to_batches()[0])


def test_arrays_are_what_one_expects_of_their_columns() -> None:
    table = pa.table(
        {
            "f": pa.array([0.5, None, 2.0], pa.float32()),
            "v": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
            "i": pa.array([1, 2, 3], pa.int16()),
            "b": pa.array([True, False, True]),
            "s": ["a", None, "é"],
            "z": [b"\0", b"", None],
            "l": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
            "t": pa.array([SECONDS, None, SECONDS], pa.timestamp("s")),
        }
    )
    columns = gather([map_shard(table, 2)], np.zeros(3, int), np.arange(3), table.schema)
    arrays = {column.column.name: as_numpy(column, 0, 3) for column in columns}
    assert {name: (array.dtype, array.shape) for name, array in arrays.items()} == {
        "f": (np.float32, (3,)),
        "v": (np.float64, (3, 2)),
        "i": (np.int16, (3,)),
        "b": (np.bool_, (3,)),
        "s": (object, (3,)),
        "z": (object, (3,)),
        "l": (object, (3,)),
        "t": (np.dtype("datetime64[s]"), (3,)),
    }
    assert math.isnan(arrays["f"][1])
    assert np.isnan(arrays["v"]).tolist() == [[False, False], [True, True], [False, False]]
    assert np.isnat(arrays["t"]).tolist() == [False, True, False]
    assert arrays["s"].tolist() == ["a", None, "é"]
    assert arrays["z"].tolist() == [b"\0", b"", None]
    assert [items if items is None else items.tolist() for items in arrays["l"]] == [[1, 2], [], None]


@pytest.mark.parametrize(
    "values", [pa.array([1, None]), pa.array([True, None])], ids=["integers", "booleans"]
)
def test_a_null_that_numpy_has_no_value_for_is_refused_where_it_is_handed_out(values: pa.Array) -> None:
    table = pa.table({"x": values})
    (column,) = gather([map_shard(table, 2)], np.zeros(2, int), np.arange(2), table.schema)
    assert len(as_numpy(column, 0, 1)) == 1
    with pytest.raises(InvalidInput, match=r"column 'x' of type .* has a null"):
        as_numpy(column, 0, 2)
    assert as_arrow([column])["x"].equals(values)


def test_a_null_within_a_list_is_refused() -> None:
    for values in (
        pa.array([None, [1.0, None]], pa.list_(pa.float32(), 2)),
        pa.array([None, [1, None, 2], [3]], pa.list_(pa.int8())),
        pa.array([None, [[1, 2], [3, None]]], pa.list_(pa.list_(pa.int8(), 2), 2)),
        pa.array([[[1, 2], None]], pa.list_(pa.list_(pa.int8(), 2), 2)),
    ):
        table = pa.table({"x": values})
        with pytest.raises(InvalidInput, match=r"column 'x' of type .* has a null within a list"):
            gather([map_shard(table, 2)], np.zeros(len(values), int), np.arange(len(values)), table.schema)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([{"a": 1}]),
        pa.array([["a"]]),
        pa.array([[[1]]]),
        pa.nulls(1),
        pa.array(["a"]).dictionary_encode(),
        pa.array([1], pa.decimal128(5)),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda values: str(values.type),
)
def test_a_column_that_is_not_read_is_named_and_the_columns_beside_it_are_read(values: pa.Array) -> None:
    table = pa.table({"before": [1.5], "x": values, "behind": [2.5], "text": ["a"]})
    with pytest.raises(
        InvalidInput,
        match=r"column 'x' of the data is of type .*, which a loader does not read: it reads numbers, bool",
    ):
        columns_of(table.schema, None, "the data")
    shard = map_shard(table, 2)
    columns = columns_of(table.schema, ["text", "behind", "before"], "the data")
    gathered = allocate_rows(columns, 1)
    shard.fill(gathered, np.zeros(1, int), np.zeros(1, int))
    assert as_arrow(gathered).to_pydict() == {"text": ["a"], "behind": [2.5], "before": [1.5]}


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match="columns = 'z' is not accepted: split 'train' has x, y"):
        columns_of(pa.schema({"x": pa.int64(), "y": pa.string()}), ["x", "z"], "split 'train'")
    with pytest.raises(InvalidInput, match="columns"):
        columns_of(pa.schema({"x": pa.int64()}), [], "split 'train'")


def test_columns_in_front_of_a_view_are_read_and_those_behind_it_are_refused() -> None:
    schema = pa.schema({"x": pa.int64(), "text": pa.list_(pa.string_view()), "y": pa.int64()})
    assert [column.name for column in columns_of(schema, ["x"], "the data")] == ["x"]
    for names in (["text"], ["y"], None):
        with pytest.raises(InvalidInput, match="because 'text' is of type list<item: string_view>"):
            columns_of(schema, names, "the data")


# The layout


@given(rows=st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_the_layout_is_where_arrows_own_reader_finds_the_batches(rows: list[int]) -> None:
    schema = pa.schema({"x": pa.int64(), "s": pa.string(), "v": pa.list_(pa.float32(), 3)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for count in rows:
            columns = [
                pa.array(range(count)),
                pa.array(["ab"] * count),
                pa.array([[1.0, 2.0, 3.0]] * count, schema.field("v").type),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    content = sink.getvalue()
    layout = layout_of(np.frombuffer(content, np.uint8))
    assert layout.rows == sum(rows)
    assert layout.starts.tolist() == [sum(rows[:place]) for place in range(len(rows))]
    with pa.ipc.open_file(content) as reader:
        for place in range(reader.num_record_batches):
            buffers = [buffer for column in reader.get_batch(place).columns for buffer in column.buffers()]
            for number, buffer in enumerate(buffers):
                if buffer is not None and buffer.size:
                    assert layout.offsets[number, place] == buffer.address - content.address


@given(data=st.data())
def test_a_damaged_file_is_refused_or_misread_and_never_read_outside_its_bytes(
    data: st.DataObject,
) -> None:
    table = pa.table(
        {
            "x": pa.array(range(20)),
            "s": [str(number) for number in range(20)],
            "v": pa.array([[1, 2]] * 20, pa.list_(pa.int8(), 2)),
        }
    )
    content = bytearray(arrow_file(table, 7))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(content), len(content), len(content) // 2, 5, 0]))
    try:
        shard = MappedShard(np.frombuffer(bytes(content[:end]), np.uint8), 20)
        columns = gather([shard], np.zeros(20, int), np.arange(20), table.schema)
    except (NotReadable, InvalidInput):
        return
    assert [len(column.values) for column in columns] == [20, 20, 20]


def test_a_compressed_file_and_one_with_other_rows_are_refused() -> None:
    table = pa.table({"x": pa.array(range(2000))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    with pytest.raises(NotReadable, match="it is compressed"):
        layout_of(np.frombuffer(sink.getvalue(), np.uint8))
    with pytest.raises(NotReadable, match="it has 2,000 rows, not 1,999"):
        MappedShard(np.frombuffer(arrow_file(table), np.uint8), 1_999)

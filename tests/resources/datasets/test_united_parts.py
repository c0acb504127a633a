"""Files with different types of a column are one dataset, whichever is first.

A leftover index is no column of it.
"""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import InvalidInput
from resources.backend import Backend
from resources.datasets import file_sources, text_files
from resources.datasets.snapshots import take_snapshot
from resources.datasets.sources import open_source
from resources.datasets.united_parts import read_parts, unite_columns
from resources.source_files.listing import SourceFile
from tests.resources.datasets.specs import read_rows, spec
from tests.resources.datasets.tables import ROWS, table_of


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["in order", "in reverse"])
@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.array([1]), pa.array([1.5]), pa.float64()),
        (pa.array([1], pa.int32()), pa.array([1.5], pa.float32()), pa.float64()),
        (pa.array([1], pa.int8()), pa.array([2**40]), pa.int64()),
        (pa.nulls(1), pa.array(["text"]), pa.string()),
        (pa.nulls(1), pa.array([10**6], pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC")),
        (pa.nulls(1), pa.array([True]), pa.bool_()),
        (pa.array([[]], pa.list_(pa.null())), pa.array([[1, None]]), pa.list_(pa.int64())),
        (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("us")), pa.timestamp("us")),
        (
            pa.array([1_774_746_000], pa.timestamp("s", "UTC")),
            pa.array([1_774_746_000_000_001], pa.timestamp("us", "Europe/Berlin")),
            pa.timestamp("us", "UTC"),
        ),
        (pa.array(["a"]), pa.array(["b"]).dictionary_encode(), pa.string()),
        (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.large_string()),
        (pa.array([{"a": 1, "b": "q"}]), pa.array([{"b": "r", "a": 0.5}]), None),
        (pa.array([150], pa.decimal128(10, 2)), pa.array([0.5]), pa.float64()),
        (pa.array([150], pa.decimal128(10, 2)), pa.array([7]), pa.float64()),
    ],
)
def test_parquet_files_of_other_types_are_one_dataset_whichever_is_first(
    raw: Path,
    backend: Backend,
    names: tuple[str, str],
    first: pa.Array,
    second: pa.Array,
    kind: pa.DataType | None,
) -> None:
    for offset, name, x in zip((0, ROWS), names, (first, second), strict=True):
        pq.write_table(table_of(offset, x), raw / f"{name}.parquet")
    rows = read_rows(backend, spec({"files": str(raw)}))
    values = [value.as_py() for value in (first[0], second[0])]
    assert rows["x"].to_pylist() == [values[0]] * ROWS + [values[1]] * ROWS
    assert kind is None or rows.schema.field("x").type == kind


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["in order", "in reverse"])
@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (
            pa.array([1]),
            pa.array(["1"]),
            r"the column 'x' is (int64|string) in .*/a.parquet and (int64|string) in .*/b.parquet; write it",
        ),
        (
            pa.array([True]),
            pa.array([1]),
            "the column 'x' is .* in .*/a.parquet and .* in .*/b.parquet; write it with one type",
        ),
        (
            pa.array([2**53 + 1]),
            pa.array([0.5]),
            "the column 'x' of .*parquet does not become double, .*: Integer value 9007199254740993",
        ),
        (
            pa.array([2**63], pa.uint64()),
            pa.array([-1]),
            "the column 'x' of .*parquet does not become uint64",
        ),
        (
            pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
            pa.array([[1]], pa.list_(pa.int64(), 1)),
            "fixed_size_list.*a.parquet.*fixed_size_list",
        ),
        (
            pa.array([1], pa.timestamp("us")),
            pa.array([1], pa.timestamp("us", "UTC")),
            "timestamp.*a.parquet and timestamp.*b.parquet",
        ),
        (pa.array([{"a": 1}]), pa.array([{"a": 1, "b": 2}]), "struct<.*a.parquet and struct<.*b.parquet"),
    ],
)
def test_parquet_files_that_do_not_go_together_are_refused(
    raw: Path, backend: Backend, names: tuple[str, str], first: pa.Array, second: pa.Array, says: str
) -> None:
    for offset, name, x in zip((0, ROWS), names, (first, second), strict=True):
        pq.write_table(table_of(offset, x), raw / f"{name}.parquet")
    with pytest.raises(InvalidInput, match=f"dataset.source.files is not accepted: .*{says}"):
        take_snapshot(backend.store, backend.catalog, spec({"files": str(raw)}))


def write_text(ending: str, path: Path, first: int, x: str) -> None:
    """Write some rows as CSV or JSON, in which ``x`` is this text."""
    if ending == "csv":
        lines = ["id,x,label", *(f"{first + row},{x},{row % 2}" for row in range(ROWS))]
    else:
        middle = f'"x": {x}, ' if x else ""
        lines = [f'{{"id": {first + row}, {middle}"label": {row % 2}}}' for row in range(ROWS)]
    path.with_suffix(f".{ending}").write_text("\n".join(lines))


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["in order", "in reverse"])
@pytest.mark.parametrize(
    ("ending", "first", "second", "right"),
    [
        ("csv", "1", "1.5", [1.0, 1.5]),
        ("csv", "1", "", [1, None]),
        ("csv", "NA", "2024-01-02", [None, datetime.date(2024, 1, 2)]),
        ("csv", "", "text", ["", "text"]),
        ("csv", "7", "12345678901234567890", [7, 12345678901234567890]),
        ("csv", "12345678901234567890", "12345678901234567891", [12345678901234567890, 12345678901234567891]),
        ("csv", "2024-01-02", "", [datetime.date(2024, 1, 2), None]),
        ("csv", "00501", "x", ["00501", "x"]),
        ("csv", "true", "NULL", [True, None]),
        ("csv", "10001", "00501", ["10001", "00501"]),
        ("csv", "1.50", "abc", ["1.50", "abc"]),
        ("jsonl", "1", "1.5", [1.0, 1.5]),
        ("jsonl", "1", "", [1, None]),
        ("jsonl", "null", '"text"', [None, "text"]),
        ("jsonl", "7", "12345678901234567890", [7, 12345678901234567890]),
        ("jsonl", "[]", "[1]", [[], [1]]),
        ("jsonl", '{"a": 1}', '{"b": 0.5}', [{"a": 1, "b": None}, {"a": None, "b": 0.5}]),
        ("jsonl", '{"a": null}', '{"a": [{"c": 3}]}', [{"a": None}, {"a": [{"c": 3}]}]),
    ],
)
def test_text_files_of_other_types_are_one_dataset_whichever_is_first(
    raw: Path,
    backend: Backend,
    names: tuple[str, str],
    ending: str,
    first: str,
    second: str,
    right: list[Any],
) -> None:
    for offset, name, x in zip((0, ROWS), names, (first, second), strict=True):
        write_text(ending, raw / name, offset, x)
    (raw / f"0.{ending}").touch()
    assert (
        read_rows(backend, spec({"files": str(raw)}))["x"].to_pylist()
        == [right[0]] * ROWS + [right[1]] * ROWS
    )


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["in order", "in reverse"])
@pytest.mark.parametrize(
    ("ending", "first", "second", "says"),
    [
        (
            "csv",
            "9007199254740993",
            "0.5",
            "the column 'x' has whole numbers beyond 2..53 in .* and fractions in .*; write whole numbers",
        ),
        ("csv", "12345678901234567890", "0.5", "the column 'x' has whole numbers beyond 2..53"),
        (
            "csv",
            "12345678901234567890",
            "-1",
            "its column 'x' does not become uint64, which it is with the other files: .* '-1'",
        ),
        (
            "jsonl",
            "1",
            '"1"',
            "the column 'x' is (int64|string) in .*/a.jsonl and (int64|string) in .*/b.jsonl",
        ),
        ("jsonl", "9007199254740993", "0.5", "the column 'x' has whole numbers beyond 2..53"),
        (
            "jsonl",
            "[9007199254740993]",
            "[0.5]",
            r"its column 'x\[\]' has the number 9007199254740993, which a column of doubles would round",
        ),
        (
            "jsonl",
            '{"a": 9007199254740993}',
            '{"a": 0.5}',
            "its column 'x.a' has the number 9007199254740993",
        ),
        (
            "jsonl",
            "12345678901234567890",
            "-1",
            "a value does not become what its column is with the other files: .*uint64.*-1",
        ),
    ],
)
def test_text_files_that_do_not_go_together_are_refused(
    raw: Path, backend: Backend, names: tuple[str, str], ending: str, first: str, second: str, says: str
) -> None:
    for offset, name, x in zip((0, ROWS), names, (first, second), strict=True):
        write_text(ending, raw / name, offset, x)
    with pytest.raises(InvalidInput, match=f"dataset.source.files.* is not accepted: .*{says}"):
        take_snapshot(backend.store, backend.catalog, spec({"files": str(raw)}))


def test_columns_may_be_in_any_order_and_none_may_be_missing(raw: Path, backend: Backend) -> None:
    pq.write_table(table_of(0, pa.array([1])), raw / "a.parquet")
    pq.write_table(table_of(ROWS, pa.array([2])).select(["label", "x", "id"]), raw / "b.parquet")
    # A file without rows has no say.
    pq.write_table(table_of(0, pa.array([1])).slice(0, 0).drop_columns(["x"]), raw / "c.parquet")
    rows = read_rows(backend, spec({"files": str(raw)}))
    assert rows.column_names == ["id", "x", "label"]
    assert rows["x"].to_pylist() == [1] * ROWS + [2] * ROWS
    for name in ("0", "z"):
        pq.write_table(
            table_of(2 * ROWS, pa.array([2])).append_column("y", pa.array([1] * ROWS)),
            raw / f"{name}.parquet",
        )
        with pytest.raises(InvalidInput, match=rf"a.parquet has no column 'y', which .*/{name}.parquet has"):
            take_snapshot(backend.store, backend.catalog, spec({"files": str(raw)}))
        (raw / f"{name}.parquet").unlink()


def test_labels_are_united_like_a_source(raw: Path) -> None:
    pq.write_table(table_of(0, pa.array([1])), raw / "a.parquet")
    pq.write_table(table_of(ROWS, pa.array([0.5])), raw / "b.parquet")
    parts = open_source(spec({"files": str(raw)})).parts
    columns = unite_columns("dataset.labels.files", parts)
    assert pa.Table.from_batches(read_parts(parts, columns))["x"].to_pylist() == [1.0] * ROWS + [0.5] * ROWS


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_text_files_are_united_too(raw: Path, backend: Backend, form: str) -> None:
    for number, value in enumerate((1, 0.5, None)):
        rows = [{"id": ROWS * number + row, "x": value, "label": row % 2} for row in range(ROWS)]
        if form == "csv":
            pd.DataFrame(rows).to_csv(raw / f"{number}.csv", index=False)
        else:
            (raw / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert (
        read_rows(backend, spec({"files": str(raw)}))["x"].to_pylist()
        == [1.0] * ROWS + [0.5] * ROWS + [None] * ROWS
    )


@pytest.mark.parametrize(
    ("of_folder", "own", "values"),
    [
        ("7", [None, 5], [7, 5]),
        ("7", [None, None], [7, 7]),
        ("7", [2.5, None], [2.5, 7.0]),
        ("de", ["fr", None], ["fr", "de"]),
        ("7", ["x", None], ["x", "7"]),
        ("12345678901234567890", [None, None], [12345678901234567890] * 2),
        ("__HIVE_DEFAULT_PARTITION__", [None, 5], [None, 5]),
    ],
)
@pytest.mark.parametrize("block", [64, 8 << 20])
@pytest.mark.parametrize("writes_null", [False, True])
def test_an_object_without_a_value_has_its_folders_whatever_others_beside_it_have(
    raw: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_folder: str,
    own: list[Any],
    values: list[Any],
    block: int,
    writes_null: bool,
) -> None:
    monkeypatch.setattr(text_files, "BLOCK", block)
    folder = raw / f"part={of_folder}"
    folder.mkdir()
    rows = [{"filler": "-" * 64, "part": value} for value in own]
    if not writes_null:
        rows = [{key: value for key, value in row.items() if value is not None} for row in rows]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parts = open_source(spec({"files": str(raw)})).parts
    read = pa.Table.from_batches(list(read_parts(parts, unite_columns("files", parts))))
    assert read["part"].to_pylist() == values


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose rows are read from now on."""
    names: list[str] = []
    read_file = file_sources._read_file

    def read(field: str, file: SourceFile, *options: Any) -> Iterator[pa.RecordBatch]:
        names.append(file.path.rpartition("/")[2])
        return read_file(field, file, *options)

    monkeypatch.setattr(file_sources, "_read_file", read)
    return names


def test_what_is_appended_is_brought_to_the_union_of_what_was_there(
    raw: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = spec({"files": str(raw)})
    names = counted_reads(monkeypatch)

    def append_file(name: str, x: pa.Array) -> list[str]:
        names.clear()
        pq.write_table(table_of(ROWS * len(list(raw.iterdir())), x), raw / name)
        assert read_rows(backend, source).num_rows == ROWS * len(list(raw.iterdir()))
        return sorted(names)

    assert append_file("a.parquet", pa.array([1])) == ["a.parquet"]
    assert append_file("b.parquet", pa.array([2])) == ["b.parquet"]
    assert append_file("c.parquet", pa.array([0.5])) == ["a.parquet", "b.parquet", "c.parquet"], (
        "which makes doubles of all"
    )
    assert append_file("d.parquet", pa.array([3])) == ["d.parquet"], "the union is the one that was there"
    assert append_file("e.parquet", pa.nulls(1)) == ["e.parquet"]
    assert (
        read_rows(backend, source)["x"].to_pylist()
        == [1.0] * ROWS + [2.0] * ROWS + [0.5] * ROWS + [3.0] * ROWS + [None] * ROWS
    )
    pq.write_table(table_of(0, pa.array(["x"])), raw / "f.parquet")
    with pytest.raises(
        InvalidInput, match=r"the column 'x' is double in .*/c.parquet and string in .*/f.parquet"
    ):
        take_snapshot(backend.store, backend.catalog, source)

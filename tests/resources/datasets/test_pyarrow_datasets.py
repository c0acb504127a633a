"""A ``pyarrow.dataset`` as the result of a function."""

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from halving import InvalidInput
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.specs import read_rows
from tests.resources.datasets.tables import ROWS, numbers, table_of, write


@pytest.mark.parametrize(
    ("change", "says"),
    [(Path.unlink, "changed"), (lambda path: write("parquet", path, numbers(7)), "changed")],
)
def test_files_of_a_pyarrow_dataset_that_change_while_they_are_read_are_named(
    tmp_path: Path,
    backend: Backend,
    provide: Callable[..., DatasetSource],
    change: Callable[[Path], None],
    says: str,
) -> None:
    for number in range(3):
        write("parquet", tmp_path / "raw" / f"{number}.parquet", numbers(50, first=50 * number))

    def alter(table: pa.Table) -> pa.Table:
        if path.exists() and table.num_rows:
            changes.append(change(path))
        return table

    path = tmp_path / "raw" / "0.parquet"
    changes: list[None] = []
    source = provide(lambda: dataset.dataset(tmp_path / "raw"), transform="provided_source:alter")
    sys.modules["provided_source"].alter = alter  # type: ignore[attr-defined]
    with pytest.raises(
        InvalidInput,
        match=(
            rf"dataset.source = 'provided_source:load' is not accepted: .*0.parquet'\] {says} while it was "
            r"read"
        ),
    ):
        take_snapshot(backend.store, backend.catalog, source)
    assert changes


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (
            {"x": pa.array([1])},
            {"x": pa.array([0.5])},
            r"the column 'x' is int64 in .*/a.parquet, whose .* double in .*/b.parquet; give",
        ),
        (
            {"x": pa.nulls(1)},
            {"x": pa.array(["q"])},
            r"the column 'x' is null in .*/a.parquet, whose .* string in .*/b.parquet; give",
        ),
        (
            {"x": pa.array(["q"])},
            {"x": pa.array([1])},
            r"the column 'x' is string in .*/a.parquet and int64 in .*/b.parquet",
        ),
        (
            {"x": pa.array([1])},
            {"x": pa.array([1]), "y": pa.array([1])},
            "a.parquet has no column 'y', which .*/b.parquet has",
        ),
        (
            {"x": pa.array([1]), "y": pa.array([1])},
            {"x": pa.array([1])},
            "b.parquet has no column 'y', which .*/a.parquet has",
        ),
        ({"x": pa.array([0.5])}, {"x": pa.array([1])}, None),
        ({"x": pa.array([1])}, {"x": pa.array([1], pa.int32()), "__index_level_0__": pa.array([5])}, None),
        ({"x": pa.array(["q"])}, {"x": pa.nulls(1)}, None),
    ],
)
@pytest.mark.parametrize("partitioning", [None, "hive"])
def test_a_pyarrow_dataset_of_files_that_differ_is_refused_without_its_own_schema(
    raw: Path,
    backend: Backend,
    provide: Callable[..., DatasetSource],
    first: dict[str, pa.Array],
    second: dict[str, pa.Array],
    says: str | None,
    partitioning: str | None,
) -> None:
    for offset, name, values in ((0, "a", first), (ROWS, "b", second)):
        rows = table_of(offset, pa.array([0])).drop_columns(["x"])
        for column, value in values.items():
            rows = rows.append_column(column, pa.concat_arrays([value] * ROWS))
        (raw / "day=1").mkdir(exist_ok=True)
        pq.write_table(rows, raw / "day=1" / f"{name}.parquet")
    source = provide(lambda: dataset.dataset(raw, partitioning=partitioning))
    if says is not None:
        with pytest.raises(
            InvalidInput, match=f"dataset.source = 'provided_source:load' is not accepted: .*{says}"
        ):
            take_snapshot(backend.store, backend.catalog, source)
    else:
        assert (
            read_rows(backend, source)["x"].to_pylist()
            == [first["x"][0].as_py()] * ROWS + [second["x"][0].as_py()] * ROWS
        )


def test_a_pyarrow_dataset_that_was_given_a_schema_has_its_columns(
    raw: Path, backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    pq.write_table(table_of(0, pa.array([1])), raw / "a.parquet")
    pq.write_table(
        table_of(ROWS, pa.array([0.5])).append_column("y", pa.array([1] * ROWS)), raw / "b.parquet"
    )
    schema = pa.schema({"id": pa.int64(), "x": pa.float64(), "label": pa.int64()})
    rows = read_rows(backend, provide(lambda: dataset.dataset(raw, schema=schema)))
    assert rows.column_names == schema.names
    assert rows["x"].to_pylist() == [1.0] * ROWS + [0.5] * ROWS

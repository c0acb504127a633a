"""Files in partitions: what the names of folders say becomes columns."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from halving import Dataset
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.datasets.sources import open_source
from resources.datasets.united_parts import read_parts, unite_columns
from tests.resources.datasets.specs import spec
from tests.resources.datasets.tables import numbers, write


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
@pytest.mark.parametrize("pattern", ["", "/**/*.*", "/*/*/*.*"], ids=["folder", "below", "levels"])
def test_the_names_of_partitions_are_columns_of_every_format(
    tmp_path: Path, backend: Backend, form: str, ending: str, pattern: str
) -> None:
    for number, country in enumerate(["de", "fr", "%C3%A9"]):
        write(
            form,
            tmp_path / "raw" / f"country={country}" / f"day=2024-01-0{number + 1}" / f"x.{ending}",
            numbers(40, first=40 * number),
        )
    (tmp_path / "raw" / "_SUCCESS").touch()
    snapshot = take_snapshot(backend.store, backend.catalog, spec({"files": f"{tmp_path}/raw{pattern}"}))
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    assert rows.column_names == ["id", "text", "label", "country", "day"]
    assert rows.select(["id", "text", "label"]).to_pydict() == numbers(120).to_pydict()
    assert rows["country"].to_pylist() == ["de"] * 40 + ["fr"] * 40 + ["é"] * 40
    assert rows["day"].to_pylist() == [date(2024, 1, day) for day in (1, 2, 3) for _ in range(40)]


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
def test_a_file_that_has_a_partitions_column_keeps_its_own(
    tmp_path: Path, backend: Backend, form: str, ending: str
) -> None:
    for number, country in enumerate(["de", "fr"]):
        table = numbers(40, first=40 * number).append_column("country", pa.array([f"own {country}"] * 40))
        write(form, tmp_path / "raw" / f"country={country}" / f"x.{ending}", table)
    snapshot = take_snapshot(backend.store, backend.catalog, spec({"files": str(tmp_path / "raw")}))
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    assert rows["country"].to_pylist() == ["own de"] * 40 + ["own fr"] * 40


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
def test_parts_in_partitions_are_brought_to_their_union(tmp_path: Path, form: str, ending: str) -> None:
    for number, country in enumerate(["1", "2.5", "x"]):
        value = None if country == "1" else float(number)
        table = pa.table({"id": [2 * number, 2 * number + 1], "value": pa.array([value, None], pa.float64())})
        write(form, tmp_path / "raw" / f"country={country}" / f"x.{ending}", table)
    if form != "parquet":
        (tmp_path / "raw" / "country=1" / f"a.{ending}").touch()
    parts = open_source(spec({"files": str(tmp_path / "raw")})).parts
    columns = unite_columns("files", parts)
    assert columns is not None
    assert columns.names == ["id", "value", "country"]
    rows = pa.Table.from_batches(read_parts(parts, columns)).to_pydict()
    assert rows["country"] == ["1", "1", "2.5", "2.5", "x", "x"]
    assert rows["value"] == [None, None, 1.0, None, 2.0, None]


@pytest.mark.parametrize(
    ("first", "later", "read"),
    [("1", "2", [1, 2]), ("de", "fr", ["de", "fr"]), ("1", "x", ["1", "x"]), ("1", "0.5", [1.0, 0.5])],
)
def test_a_partition_that_comes_later_is_appended_or_all_are_read_again(
    tmp_path: Path, backend: Backend, first: str, later: str, read: list[Any]
) -> None:
    source = spec({"files": str(tmp_path / "raw")}, group="id")
    for number, value in enumerate([first, later]):
        write("parquet", tmp_path / "raw" / f"n={value}" / "x.parquet", numbers(40, first=40 * number))
        snapshot = take_snapshot(backend.store, backend.catalog, source)
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    assert rows["n"].to_pylist() == [value for value in read for _ in range(40)]


@pytest.mark.parametrize(
    "values",
    [("1", "x"), ("x", "1"), ("1", "0.5"), ("0.5", "1"), ("01", "2"), ("__HIVE_DEFAULT_PARTITION__", "1")],
)
def test_the_type_of_a_partition_does_not_depend_on_which_file_is_first(
    tmp_path: Path, backend: Backend, values: tuple[str, str]
) -> None:
    kinds = {"x": str, "0.5": float, "01": str}
    kind = next((kinds[value] for value in values if value in kinds), int)
    for number, value in enumerate(values):
        write("parquet", tmp_path / "raw" / f"n={value}" / "x.parquet", numbers(40, first=40 * number))
    snapshot = take_snapshot(
        backend.store, backend.catalog, spec({"files": [f"{tmp_path}/raw/n={value}" for value in values]})
    )
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    read = [None if value.startswith("__") else kind(value) for value in values for _ in range(40)]
    assert rows["n"].to_pylist() == read

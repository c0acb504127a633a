"""Names of folders like ``country=de`` are columns, whose types all files decide together."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import dataset, fs

from halving import InvalidInput, Store
from resources.source_files.listing import SourceFile, find_files, find_files_of_all
from resources.source_files.partitions import NO_PARTITIONS, Partitions, find_partitions
from tests.properties import examples

NULL = "__HIVE_DEFAULT_PARTITION__"


def partitions_of(
    folder: Path, paths: list[str], patterns: list[str]
) -> tuple[Partitions, list[dict[str, Any]]]:
    """Make files; return their partitions, and the values of each file in the order of paths."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    files = find_files_of_all("files", [f"{folder}/{pattern}".rstrip("/") for pattern in patterns])
    partitions = find_partitions("files", files)
    return partitions, [partitions.values_in(file) for file in files]


@pytest.mark.parametrize(
    ("folders", "kinds", "values"),
    [
        (["country=de", "country=fr"], {"country": pa.string()}, [{"country": "de"}, {"country": "fr"}]),
        (
            ["c=de/y=2024", "c=fr/y=2023"],
            {"c": pa.string(), "y": pa.int64()},
            [{"c": "de", "y": 2024}, {"c": "fr", "y": 2023}],
        ),
        (["month=01", "month=10"], {"month": pa.string()}, [{"month": "01"}, {"month": "10"}]),
        (["month=1", "month=10"], {"month": pa.int64()}, [{"month": 1}, {"month": 10}]),
        (["d=2024-01-02"], {"d": pa.date32()}, [{"d": datetime.date(2024, 1, 2)}]),
        (
            ["h=2024-01-02 03%3A04%3A05"],
            {"h": pa.timestamp("s")},
            [{"h": datetime.datetime(2024, 1, 2, 3, 4, 5)}],
        ),
        (["n=1", "n=x"], {"n": pa.string()}, [{"n": "1"}, {"n": "x"}]),
        (["n=x", "n=1", "n=2"], {"n": pa.string()}, [{"n": "1"}, {"n": "2"}, {"n": "x"}]),
        (["rate=0.1", "rate=2"], {"rate": pa.float64()}, [{"rate": 0.1}, {"rate": 2.0}]),
        (["f=false", "f=true"], {"f": pa.bool_()}, [{"f": False}, {"f": True}]),
        (["t=a%20b", "t=x%2Fy"], {"t": pa.string()}, [{"t": "a b"}, {"t": "x/y"}]),
        (["a%20b=1"], {"a b": pa.int64()}, [{"a b": 1}]),
        (["t=a=b"], {"t": pa.string()}, [{"t": "a=b"}]),
        (["t=déjà vu"], {"t": pa.string()}, [{"t": "déjà vu"}]),
        ([f"n={NULL}", "n=1"], {"n": pa.int64()}, [{"n": 1}, {"n": None}]),
        ([f"t={NULL}", "t=x"], {"t": pa.string()}, [{"t": None}, {"t": "x"}]),
        ([f"t={NULL}"], {"t": pa.null()}, [{"t": None}]),
        (["country=NA"], {"country": pa.string()}, [{"country": "NA"}]),
        (["country=DE", "country=NA"], {"country": pa.string()}, [{"country": "DE"}, {"country": "NA"}]),
        (["t="], {"t": pa.string()}, [{"t": ""}]),
        (
            ["id=12345678901234567890", "id=12345678901234567891"],
            {"id": pa.uint64()},
            [{"id": 12345678901234567890 + n} for n in (0, 1)],
        ),
        (["id=123456789012345678901234"], {"id": pa.string()}, [{"id": "123456789012345678901234"}]),
        (["y=2024/raw", "y=2023/raw"], {"y": pa.int64()}, [{"y": 2023}, {"y": 2024}]),
        (["_y=2024", "_y=2023"], {"_y": pa.int64()}, [{"_y": 2023}, {"_y": 2024}]),
        (["a=1/b=2", "b=3/a=4"], {"a": pa.int64(), "b": pa.int64()}, [{"a": 1, "b": 2}, {"b": 3, "a": 4}]),
        (["=1", "plain"], {}, [{}, {}]),
        (
            ["release=1.1", "release=1.10"],
            {"release": pa.string()},
            [{"release": "1.1"}, {"release": "1.10"}],
        ),
        (["f=1", "f=true"], {"f": pa.string()}, [{"f": "1"}, {"f": "true"}]),
        (
            ["code=1", "code=NA", "code=null"],
            {"code": pa.string()},
            [{"code": "1"}, {"code": "NA"}, {"code": "null"}],
        ),
        (
            ["commit=1e400", "commit=2e400"],
            {"commit": pa.string()},
            [{"commit": "1e400"}, {"commit": "2e400"}],
        ),
        (
            ["day=2024-01-02", "day=2024-01-02 00%3A00%3A00"],
            {"day": pa.string()},
            [{"day": "2024-01-02 00:00:00"}, {"day": "2024-01-02"}],
        ),
    ],
)
@pytest.mark.parametrize("pattern", ["", "**/*.csv"])
def test_the_names_of_folders_are_columns(
    tmp_path: Path,
    folders: list[str],
    kinds: dict[str, pa.DataType],
    values: list[dict[str, Any]],
    pattern: str,
) -> None:
    partitions, columns = partitions_of(tmp_path, [f"{folder}/x.csv" for folder in folders], [pattern])
    assert partitions.types == pa.schema(list(kinds.items()))
    assert columns == values


@pytest.mark.parametrize(
    ("paths", "patterns", "values"),
    [
        (["sales/country=de/a.csv"], ["sales/country=de/*.csv"], [{"country": "de"}]),
        (["sales/country=de/a.csv"], ["sales/country=de/a.csv"], [{"country": "de"}]),
        (["sales/country=de/a.csv"], ["sales/country=de"], [{"country": "de"}]),
        (["sales/country=de/y=3/a.csv"], ["sales/country=de/*/*.csv"], [{"country": "de", "y": 3}]),
        (
            ["sales/country=de/a.csv", "sales/country=fr/a.csv"],
            [f"sales/country={c}/a.csv" for c in ("fr", "de")],
            [{"country": "fr"}, {"country": "de"}],
        ),
        (["run=5/sales/a.csv"], ["run=5/sales/*.csv"], [{}]),
        (["run=5/sales/a.csv"], ["run=5/sales/a.csv"], [{}]),
        (["run=5/sales/c=de/a.csv"], ["run=5/sales"], [{"c": "de"}]),
        (["x=1.csv", "x=2.csv"], ["*.csv"], [{}, {}]),
        (["a/c=1/x.csv", "b/c=2/x.csv"], ["*/*/*.csv"], [{"c": 1}, {"c": 2}]),
        (["a/c=1/x.csv", "b/c=x/x.csv"], ["a/**", "b/c=x/x.csv"], [{"c": "1"}, {"c": "x"}]),
    ],
)
def test_which_folders_count_goes_by_what_is_written_out(
    tmp_path: Path, paths: list[str], patterns: list[str], values: list[dict[str, Any]]
) -> None:
    assert partitions_of(tmp_path, paths, patterns)[1] == values


@pytest.mark.parametrize(
    ("paths", "first", "other"),
    [
        (["c=de/x.csv", "x.csv"], "c=de/x.csv is in folders of c=…, and", "/x.csv in those of no such name;"),
        (
            ["a.csv/x.csv", "c=de/x.csv"],
            "a.csv/x.csv is in folders of no such name, and",
            "c=de/x.csv in those of c=…;",
        ),
        (["c=de/x.csv", "d=de/x.csv"], "c=de/x.csv is in folders of c=…, and", "d=de/x.csv in those of d=…;"),
        (
            ["c=de/x.csv", "c=fr/y=1/x.csv"],
            "c=de/x.csv is in folders of c=…, and",
            "c=fr/y=1/x.csv in those of c=… and y=…;",
        ),
    ],
)
def test_files_in_folders_of_other_names_are_refused(
    tmp_path: Path, paths: list[str], first: str, other: str
) -> None:
    with pytest.raises(
        InvalidInput,
        match=rf"^files is not accepted: .*{first} .*{other} give files whose folders have the same names",
    ):
        partitions_of(tmp_path, paths, [""])


def test_two_folders_of_one_name_above_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"^files is not accepted: .*/x.csv is in 2 folders of c=…; give each its own name$",
    ):
        partitions_of(tmp_path, ["c=de/d=1/c=fr/x.csv"], [""])


def test_a_column_of_the_file_stays_as_it_is_and_others_come_behind_it(tmp_path: Path) -> None:
    (tmp_path / "c=de" / "y=2024").mkdir(parents=True)
    (tmp_path / "c=de" / "y=2024" / "x.csv").touch()
    (file,) = find_files("files", f"{tmp_path}/**/*.csv")
    partitions = find_partitions("files", [file])
    rows = pa.record_batch({"y": [7, 8], "x": [1.5, 2.5]})
    assert partitions.add_to(rows, file).to_pydict() == {"y": [7, 8], "x": [1.5, 2.5], "c": ["de", "de"]}
    assert partitions.added_types(rows.schema) == partitions.add_to(rows, file).schema
    assert NO_PARTITIONS.add_to(rows, file) == rows


def test_partitions_on_s3_are_those_of_a_folder(any_store: Store) -> None:
    for country in ("de", "fr"):
        any_store.create(f"sales/country={country}/x.csv", b"x\n1\n")
    base, mark, options = any_store.root.partition("?")
    for patterns in (["sales"], ["sales/*/*.csv"], ["sales/country=de/x.csv", "sales/country=fr/*"]):
        files = find_files_of_all("files", [f"{base}/{pattern}{mark}{options}" for pattern in patterns])
        partitions = find_partitions("files", files)
        assert [partitions.values_in(file) for file in files] == [{"country": "de"}, {"country": "fr"}]


@given(texts=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1, max_size=5))
@settings(max_examples=examples(50))
def test_what_arrow_writes_into_the_names_of_folders_is_read_again(texts: list[str]) -> None:
    texts = [f"{text}!" for text in texts]  # So it is no number, and no word that Arrow knows.
    files = []
    system = fs._MockFileSystem()
    dataset.write_dataset(
        pa.table({"text": texts, "x": range(len(texts))}),
        "out",
        format="parquet",
        filesystem=system,
        partitioning=dataset.partitioning(pa.schema([("text", pa.string())]), flavor="hive"),
        max_partitions=len(texts),
    )
    for info in system.get_file_info(fs.FileSelector("out", recursive=True)):
        if info.is_file:
            files.append(SourceFile(system, info.path, info.path, info.size, 0, "out"))
    partitions = find_partitions("files", files)
    assert {partitions.values_in(file)["text"] for file in files} == set(texts)

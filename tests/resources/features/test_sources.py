"""The sources of views: files, object stores, Delta tables and functions, read for a day."""

import secrets
import sys
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import InvalidInput, Store
from halving.errors import ExtraMissing, StoreUnavailable
from resources.features import source, staging
from resources.features.materialize import materialize_all, materialize_day
from tests.resources.features.histories import (
    DAY,
    FIRST,
    SECOND,
    SOURCE,
    Row,
    days,
    join,
    labels,
    refusal,
    table,
    view,
)
from tests.s3 import S3, Gate


def test_files_and_globs_are_read_for_the_day_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for number, minutes in enumerate((10, DAY + 10)):
        pq.write_table(table([Row(1, minutes, minutes, float(number))]), tmp_path / f"{number}.parquet")
    shape = view(source={"files": f"{tmp_path}/*.parquet"})
    assert materialize_day(store, shape, SECOND).partition.rows == 1
    assert [day.day for day in days(store, shape)] == [SECOND]
    assert not materialize_all(store, shape).failed
    assert join(store, labels([(1, 20), (1, 2 * DAY)]), ["clicks@1:value"], shape)["value"].to_pylist() == [
        0.0,
        1.0,
    ]


def test_files_are_read_wherever_they_are(any_store: Store, tmp_path: Path) -> None:
    kinds = (pa.null(), pa.float64(), pa.int64())
    for number, kind in enumerate(kinds):
        value = None if pa.types.is_null(kind) else number
        pq.write_table(
            table([Row(1, number * DAY + 10, number * DAY + 10, value)], kind), tmp_path / "rows.parquet"
        )
        any_store.create(f"raw/{number} [1].parquet", tmp_path / "rows.parquet")
    root, mark, options = any_store.root.partition("?")
    shape = view(source={"files": f"{root}/raw/*.parquet{mark}{options}"})
    assert materialize_day(any_store, shape, SECOND).partition.rows == 1
    assert not materialize_all(any_store, shape).failed
    assert [day.rows for day in days(any_store, shape)] == [1, 1, 1]
    label_rows = labels([(1, number * DAY + 20) for number in range(len(kinds))])
    assert join(any_store, label_rows, ["clicks@1:value"], shape)["value"].to_pylist() == [None, 1.0, 2.0]


def test_a_day_of_files_that_change_while_they_are_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    shape = view(source={"files": f"{tmp_path}/*.parquet"})
    pq.write_table(table([Row(1, 10, 12, 1.0)]), path)
    original = staging._column_types

    def changing(connection: Any) -> dict[str, str]:
        types = original(connection)
        pq.write_table(table([Row(1, 10, 12, 2.0), Row(2, 10, 12, 2.0)]), path)
        return types

    with monkeypatch.context() as patch:
        patch.setattr(staging, "_column_types", changing)
        with pytest.raises(
            InvalidInput, match=r"source.files is not accepted: .*rows.parquet'\] changed while it was read"
        ):
            materialize_day(Store(tmp_path / "store"), shape, FIRST)
    assert materialize_day(Store(tmp_path / "store"), shape, FIRST).partition.rows == 2


@pytest.mark.slow
@pytest.mark.parametrize("shut_at", ["the listing", "the schema", "the rows"])
def test_an_object_store_that_is_away_while_a_day_is_read_is_a_passing_fault(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shut_at: str
) -> None:
    gate = Gate((s3.host, s3.port))
    raw = Store(s3.root(secrets.token_hex(6)))
    pq.write_table(table([Row(1, 10, 12, 1.0)]), tmp_path / "rows.parquet")
    raw.create("raw/rows.parquet", tmp_path / "rows.parquet")
    root, mark, options = raw.root.replace(s3.endpoint, gate.endpoint).partition("?")
    shape = view(source={"files": f"{root}/raw/*.parquet{mark}{options}"})
    module, name = {
        "the listing": (source, "find_files"),
        "the schema": (source, "find_files"),
        "the rows": (staging, "_column_types"),
    }[shut_at]
    original = getattr(module, name)

    def shutting(*arguments: Any) -> Any:
        if shut_at == "the listing":
            gate.shut()
        answer = original(*arguments)
        gate.shut()
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(module, name, shutting)
        with pytest.raises(StoreUnavailable, match=r"source.files.* cannot be (read|listed): "):
            materialize_day(Store(tmp_path / "store"), shape, FIRST)
    gate.open()
    assert materialize_day(Store(tmp_path / "store"), shape, FIRST).partition.rows == 1


def test_a_delta_table_is_read_at_its_version(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    lake = str(tmp_path / "lake")
    for value in (1.0, 2.0):
        deltalake.write_deltalake(lake, table([Row(1, 10, 12, value)]), mode="overwrite")
    for version, expected in ((0, 1.0), (1, 2.0)):
        shape = view(source={"delta": lake, "version": version})
        assert materialize_day(store, shape, FIRST).partition.made["view"]["source"] == {
            "delta": lake,
            "version": version,
        }
        assert join(store, labels([(1, 20)]), ["clicks@1:value"], shape)["value"].to_pylist() == [expected]
    assert "with version = 9 is not accepted" in refusal(
        store, [], view(source={"delta": lake, "version": 9})
    )


def test_a_delta_table_without_its_package_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'halving-platform\[lake\]'"):
        materialize_day(Store(tmp_path), view(source={"delta": "lake", "version": 1}), FIRST)


def test_a_function_may_give_batches_and_ask_for_the_day(tmp_path: Path) -> None:
    store = Store(tmp_path)
    SOURCE["asked"] = []
    shape = view(source={"function": "tests.resources.features.test_sources:of_a_day"})
    assert materialize_day(store, shape, SECOND).partition.rows == 1
    assert sorted(materialize_all(store, shape, late=True).days) == [FIRST, SECOND]
    assert SOURCE["asked"] == [SECOND, None]


def of_a_day(day: date | None) -> pa.RecordBatchReader:
    SOURCE["asked"].append(day)
    rows = table([Row(1, 10, 12, 1.0), Row(1, DAY, DAY, 2.0)])
    return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=1))

"""A day of a view is whole or as it was: materialised once for the same content, refused with rows to look
at, safe from kills.
"""

import math
import multiprocessing
import os
import secrets
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import InvalidInput, Store
from halving.errors import ExtraMissing, StoreUnavailable
from halving.features import RequestTransform
from halving.maintenance.orphan_files import delete_orphan_file, find_orphan_files
from resources.features import partitions as partitions_module
from resources.features import source, staging
from resources.features.join import join_features
from resources.features.materialize import materialize_all, materialize_day
from resources.features.online import push
from resources.features.partitions import Partition, digest_of_partitions, partition, partitions
from resources.features.view import FeatureView
from tests.resources.features.histories import MICROS, SOURCE, Row, at, join, labels, materialize, table, view
from tests.s3 import S3, Gate

DAY = 1440.0
FIRST = date(2026, 3, 1)
SECOND = date(2026, 3, 2)
TRANSFORMS = "tests.resources.features.transforms"


def days(store: Store, shape: FeatureView) -> list[Partition]:
    return partitions(store, shape.name, shape.version)


def refusal(
    store: Store, rows: Any, shape: FeatureView | None = None, day: date = FIRST, late: bool = True
) -> str:
    """Why a day is refused; nothing is published then."""
    SOURCE["rows"] = rows if isinstance(rows, pa.Table) else table(rows)
    shape = shape or view()
    before = days(store, shape)
    with pytest.raises(InvalidInput) as refused:
        materialize_day(store, shape, day, late=late)
    assert days(store, shape) == before
    return str(refused.value)


def test_the_same_content_again_is_the_same_file_and_no_new_generation(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = [Row(2, 10, 12, 1.0), Row(1, 10, 12, 2.0), Row(1, DAY, DAY, 3.0)]
    shape = materialize(store, rows)
    before = days(store, shape)
    assert [(day.day, day.generation, day.rows) for day in before] == [(FIRST, 1, 2), (SECOND, 1, 1)]
    SOURCE["rows"] = table(reversed(rows))
    assert not any(done.new for done in materialize_all(store, shape).days.values())
    assert not materialize_day(store, shape, FIRST).new
    assert days(store, shape) == before
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_a_day_that_changed_is_a_new_file_that_counts_and_the_other_days_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 10, 12, 1.0), Row(1, DAY, DAY, 3.0)])
    before = days(store, shape)
    SOURCE["rows"] = table([Row(1, 10, 12, 1.5), Row(1, DAY, DAY, 3.5)])
    done = materialize_day(store, shape, FIRST)
    assert (done.new, done.partition.generation) == (True, 2)
    after = days(store, shape)
    assert (after[0], after[1]) == (done.partition, before[1])
    assert digest_of_partitions(after) != digest_of_partitions(before)
    # what was joined before is still there
    assert pq.read_table(store.path(before[0].name))["value"].to_pylist() == [1.0]
    materialize(store, [Row(1, 10, 12, 1.0)])
    assert [day.generation for day in days(store, shape)] == [3, 1]
    assert digest_of_partitions(days(store, shape)) == digest_of_partitions(before)


def test_a_day_without_rows_is_an_empty_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    SOURCE["rows"] = table([Row(1, 10, 12, 1.0)])
    assert materialize_day(store, view(), SECOND).partition.rows == 0
    assert join(store, labels([(1, 5 * DAY)]), ["clicks@1:value"], view())["value"].to_pylist() == [None]


def test_a_file_is_sorted_by_entity_and_time_with_its_checksum_as_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(
        store, [Row(2, 10, 12, 1.0), Row(1, 20, 22, 2.0), Row(1, 10, 30, 3.0), Row(1, 10, 20, 4.0)]
    )
    (day,) = days(store, shape)
    table = pq.read_table(store.path(day.name))
    assert table["value"].to_pylist() == [4.0, 3.0, 2.0, 1.0]
    assert table.column_names == ["user", "_event", "_known", "value"]
    assert table["_known"].type == MICROS
    assert (day.first, day.last, day.last_known) == tuple(
        int(at(minute).timestamp() * 1e6) for minute in (10, 20, 30)
    )


def test_rows_of_any_number_are_in_row_groups_of_one_size(tmp_path: Path) -> None:
    store = Store(tmp_path)
    count = 300_000
    times = pa.array([at(0)] * count, MICROS)
    rows = pa.table({"user": range(count), "ts": times, "loaded": times, "value": [1.0] * count})
    shape = materialize(store, rows)
    (day,) = days(store, shape)
    metadata = pq.read_metadata(store.path(day.name))
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [
        131_072,
        131_072,
        37_856,
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [Row(7, 10, 12, 1.0), Row(7, 10, 12, 2.0)],
            "(user, ts, loaded) is not unique, for example user = 7, _event = 2026-03-01 00:10",
        ),
        (
            [Row(7, 10, 9, 1.0)],
            (
                "1 rows of the feature view clicks@1 are not accepted: they were created (loaded) before "
                "their "
                "event (ts)"
            ),
        ),
        (
            [Row(None, 10, 12, 1.0), Row(1, 10, 12, 1.0)],
            "1 rows of the feature view clicks@1 are not accepted: they have no entity or no time",
        ),
    ],
)
def test_rows_that_a_join_cannot_use_are_refused_and_shown(
    rows: list[Row], message: str, tmp_path: Path
) -> None:
    assert message in refusal(Store(tmp_path), rows)


@pytest.mark.parametrize("kind", [MICROS, pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ns", "UTC")])
@pytest.mark.parametrize("name", ["ts", "loaded"])
@pytest.mark.parametrize("number", [2**63 - 1, 1 - 2**63])
def test_rows_of_infinite_times_are_of_no_day_and_refused(
    kind: pa.DataType, name: str, number: int, tmp_path: Path
) -> None:
    """As DuckDB writes them; they would be of its day of infinity, or of none."""
    rows = table([Row(1, 10, 12, 1.0)])
    rows = rows.set_column(rows.column_names.index(name), name, pa.array([number], pa.int64()).cast(kind))
    day_of_row = FIRST if name == "loaded" else SECOND
    says = refusal(Store(tmp_path), rows, view(timezone="Europe/Berlin"), day_of_row)
    assert "1 rows of the feature view clicks@1 are not accepted: they have an infinite time" in says
    assert "for example user = 1" in says


def test_an_infinite_time_is_refused_beside_a_delay_and_for_all_days(tmp_path: Path) -> None:
    SOURCE["rows"] = table([Row(1, 10, 12, 1.0)]).set_column(
        1, "ts", pa.array([2**63 - 1], pa.int64()).cast(MICROS)
    )
    with pytest.raises(InvalidInput, match="have an infinite time, which is of no day"):
        materialize_all(Store(tmp_path), view(created=None, delay="1h"))


def test_of_a_view_with_a_delay_an_entity_has_one_row_at_a_time(tmp_path: Path) -> None:
    delayed = view(created=None, delay="1h")
    assert "(user, ts) is not unique" in refusal(
        Store(tmp_path), [Row(7, 10, 12, 1.0), Row(7, 10, 13, 2.0)], delayed
    )
    # the column of created times is not looked at
    shape = materialize(Store(tmp_path), [Row(7, 10, 9, 1.0)], delayed)
    assert days(Store(tmp_path), shape)[0].last_known == int(at(70).timestamp() * 1e6)


def test_a_first_backfill_that_was_all_created_today_is_named_and_delay_proposed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = [Row(1, day * DAY, 40 * DAY, 1.0) for day in range(5)]
    SOURCE["rows"] = table(rows)
    message = (
        r"all 5 rows of the days from 2026-03-01 to 2026-03-05 were created on 2026-04-10.* Give delay in "
        r"place of created"
    )
    with pytest.raises(InvalidInput, match=message):
        materialize_all(store, view())
    # a backfill by Dagster
    assert "Give delay in place of created, for example delay: 1h" in refusal(
        store, rows, day=SECOND, late=False
    )
    assert not materialize_all(store, view(created=None, delay="1h", version=2)).failed
    assert not materialize_all(store, view(), late=True).failed  # they were known that late


def test_days_before_those_that_are_there_are_looked_at_as_the_first_ones_are(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = view()
    usual = [Row(1, day * DAY, day * DAY + 60, 1.0) for day in range(60, 63)]
    SOURCE["rows"] = table(usual)
    assert not materialize_all(store, shape).failed
    # loaded again, each row created when that was
    past = [Row(1, day * DAY, 63 * DAY, 1.0) for day in range(60)]
    SOURCE["rows"] = table([*usual, *past, Row(1, 63 * DAY, 63 * DAY + 60, 1.0)])
    with pytest.raises(
        InvalidInput,
        match=r"all 61 rows of the days from 2026-03-01 to 2026-05-03 were created on 2026-05-03.* --late",
    ):
        materialize_all(store, shape)
    assert "all 1 rows of the days from 2026-03-02 to 2026-03-02" in refusal(
        store, past, shape, SECOND, late=False
    )  # a backfill by Dagster
    assert [part.day for part in days(store, shape)] == [at(row.event).date() for row in usual]
    assert not materialize_all(store, shape, late=True).failed
    assert len(days(store, shape)) == 63
    SOURCE["rows"] = table([Row(1, row.event, 64 * DAY, 2.0) for row in past])
    # days that are there may become known later
    assert all(done.new for done in materialize_all(store, shape).days.values())


def test_days_of_a_source_that_always_loads_late_are_no_backfill(tmp_path: Path) -> None:
    """Once its first days were accepted."""
    store = Store(tmp_path)
    shape = view()
    for day in range(4):
        SOURCE["rows"] = table([Row(1, day * DAY + minute, (day + 3) * DAY + 60, 1.0) for minute in (0, 700)])
        assert materialize_day(store, shape, at(day * DAY).date(), late=day == 0).new
    SOURCE["rows"] = table([Row(1, 4 * DAY, 40 * DAY, 1.0)])
    with pytest.raises(
        InvalidInput, match="all 1 rows of the days from 2026-03-05 to 2026-03-05 were created on 2026-04-10"
    ):
        materialize_day(store, shape, at(4 * DAY).date())


def test_of_a_long_past_a_day_that_came_late_is_no_backfill(tmp_path: Path) -> None:
    rows = [Row(1, day * DAY, day * DAY + (5 * DAY if day == 3 else 60), 1.0) for day in range(10)]
    SOURCE["rows"] = table(rows)
    assert len(materialize_all(Store(tmp_path), view()).days) == 10


def test_a_view_of_which_the_rows_came_within_a_day_is_no_backfill(tmp_path: Path) -> None:
    SOURCE["rows"] = table([Row(1, 10, DAY + 120, 1.0), Row(2, DAY - 1, DAY + 120, 1.0)])
    assert materialize_day(Store(tmp_path), view(), FIRST).new


def test_a_transform_that_raises_for_one_day_leaves_the_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = view(transform=f"{TRANSFORMS}:raises_on_unlucky")
    SOURCE["rows"] = table([Row(1, 10, 12, 1.0), Row(1, DAY, DAY, 13.0), Row(1, 2 * DAY, 2 * DAY, 2.0)])
    done = materialize_all(store, shape, late=True)
    assert sorted(done.days) == [FIRST, date(2026, 3, 3)]
    assert list(done.failed) == [SECOND]
    assert "raises_on_unlucky of the feature view clicks@1 raised ZeroDivisionError at transforms.py:" in str(
        done.failed[SECOND]
    )
    before = days(store, shape)
    SOURCE["rows"] = table([Row(1, 10, 12, 13.0)])
    assert "unlucky" in refusal(store, SOURCE["rows"], shape)  # and a day that was there stays
    assert days(store, shape) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"transform": f"{TRANSFORMS}:centred"},
            "value of a row is 0.0 alone and -1.0 among 3; compute each row from that row alone",
        ),
        (
            {"transform": f"{TRANSFORMS}:drops"},
            "made 2 rows of 3; return one for each row, in the same order",
        ),
        ({"transform": f"{TRANSFORMS}:gives_names"}, "returned list; return a pyarrow.Table"),
        (
            {"transform": f"{TRANSFORMS}:renames"},
            "has no column 'value', which the schema declares; it has ['worth']",
        ),
        (
            {"transform": f"{TRANSFORMS}:as_text"},
            "gives value as string, which the schema declares as double",
        ),
        ({"transform": f"{TRANSFORMS}:nothing"}, "transforms has no function 'nothing'; it has ['as_text', "),
        ({"transform": "tests.nowhere:rate"}, "there is no module 'tests.nowhere'"),
        (
            {"schema": {"value": "float"}},
            (
                "the source of the feature view clicks@1 gives value as double, which the schema declares as "
                "float"
            ),
        ),
        ({"schema": {"value": "double", "more": "bool"}}, "has no column 'more', which the schema declares"),
        (
            {"entity": ["person"]},
            (
                "entity.0 = 'person' of the feature view clicks@1 is not accepted: the source has user, ts, "
                "loaded, value"
            ),
        ),
        (
            {"event_time": "when"},
            "event_time = 'when' of the feature view clicks@1 is not accepted: the source has",
        ),
        (
            {"created": "when"},
            "created = 'when' of the feature view clicks@1 is not accepted: the source has",
        ),
        (
            {"event_time": "user"},
            (
                "event_time = 'user' of the feature view clicks@1 is not accepted: it is BIGINT; give a "
                "column "
                "of timestamps"
            ),
        ),
        (
            {"entity": ["ts"], "schema": {"user": "int64"}},
            "it is timestamp[us, tz=UTC]; give a whole number below 2**63 or a text",
        ),
        (
            {"source": {"files": "/nowhere/*.parquet"}},
            "source.files = '/nowhere/*.parquet' is not accepted: there is no folder /nowhere",
        ),
        ({"source": {"function": f"{TRANSFORMS}:dies"}}, "raised TypeError"),
        (
            {"source": {"delta": "/nowhere", "version": 3}},
            "source.delta = '/nowhere' with version = 3 is not accepted",
        ),
    ],
)
def test_what_is_wrong_with_a_view_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    rows = [Row(1, 10, 12, 1.0), Row(2, 11, 12, 2.0), Row(3, 12, 12, 3.0)]
    assert message in refusal(Store(tmp_path), rows, view(**change))


def test_a_feature_that_must_not_be_null_is_refused_where_it_is(tmp_path: Path) -> None:
    rows = [Row(1, 10, 12, None), Row(2, 10, 12, 1.0), Row(3, 10, 12, math.nan)]
    message = refusal(Store(tmp_path), rows, view(schema={"value": "double not null"}))
    assert (
        "schema.value of the feature view clicks@1 is not null, but of 2026-03-01 it is null or NaN in 2 rows"
        in message
    )


def test_times_without_a_zone_are_refused_until_the_view_says_which(tmp_path: Path) -> None:
    store = Store(tmp_path)
    naive = pa.timestamp("ns")
    times = [datetime(2026, 3, 1, 0, 30), datetime(2026, 3, 1, 12), datetime(2026, 3, 2, 0, 30)]
    rows = pa.table(
        {
            "user": [1, 2, 3],
            "ts": pa.array(times, naive),
            "loaded": pa.array(times, naive),
            "value": [1.0, 2.0, 3.0],
        }
    )
    assert "its times have no time zone. Say which one they are in, for example timezone: UTC" in refusal(
        store, rows
    )
    shape = view(timezone="Europe/Berlin")
    SOURCE["rows"] = rows
    result = {
        day: materialize_day(store, shape, day).partition.rows for day in (date(2026, 2, 28), FIRST, SECOND)
    }
    assert list(result.values()) == [1, 2, 0]  # days are UTC's
    assert days(store, shape)[0].first == int(datetime(2026, 2, 28, 23, 30, tzinfo=UTC).timestamp() * 1e6)
    assert not any(done.new for done in materialize_all(store, shape).days.values())


def test_times_finer_than_microseconds_are_never_earlier_than_they_were(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kind = pa.timestamp("ns", "UTC")
    nanoseconds = int(at(10).timestamp()) * 10**9
    rows = pa.table(
        {
            "user": [1],
            "ts": pa.array([nanoseconds], kind),
            "loaded": pa.array([nanoseconds + 1], kind),
            "value": [1.0],
        }
    )
    shape = materialize(store, rows)
    assert days(store, shape)[0].last_known == nanoseconds // 1000 + 1


def test_the_entity_keeps_its_type_from_day_to_day(tmp_path: Path) -> None:
    store = Store(tmp_path)
    materialize(store, [Row(1, 10, 12, 1.0)])
    message = refusal(store, table([Row("1", DAY, DAY, 1.0)], user=pa.string()), day=SECOND)
    assert (
        "it is {'user': 'string'}, and was {'user': 'int64'} in the partition of 2026-03-01; give version: 2"
        in message
    )
    assert materialize(store, table([Row(1, DAY, DAY, 1.0)], user=pa.int16()))


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
    shape = view(source={"function": "tests.resources.features.test_materialize:of_a_day"})
    assert materialize_day(store, shape, SECOND).partition.rows == 1
    assert sorted(materialize_all(store, shape, late=True).days) == [FIRST, SECOND]
    assert SOURCE["asked"] == [SECOND, None]


def of_a_day(day: date | None) -> pa.RecordBatchReader:
    SOURCE["asked"].append(day)
    rows = table([Row(1, 10, 12, 1.0), Row(1, DAY, DAY, 2.0)])
    return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=1))


def test_a_request_gets_the_features_that_training_had_of_the_same_row(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = pa.table(
        {
            "user": [1, 2, 3],
            "ts": pa.array([at(0), at(600), at(1400)], MICROS),
            "loaded": pa.array([at(1), at(601), at(1401)], MICROS),
            "clicks": pa.array([1, 0, 5], pa.int32()),
            "seen": pa.array([3, 0, None], pa.int32()),
        }
    )
    shape = materialize(
        store, rows, view(transform=f"{TRANSFORMS}:rate", schema={"ctr": "double", "night": "bool"})
    )
    offline_rows = join(
        store, labels([(1, 1500), (2, 1500), (3, 1500)]), ["clicks@1:ctr", "clicks@1:night"], shape
    ).select(["ctr", "night"])
    answer = RequestTransform(days(store, shape)[0].definition)
    assert answer.definition.input_schema() == rows.schema.remove_metadata()
    for row, offline in zip(rows.to_pylist(), offline_rows.to_pylist(), strict=True):
        assert repr(answer({name: row[name] for name in ("ts", "clicks", "seen")})) == repr(offline)
    with pytest.raises(InvalidInput, match="seens is not accepted: the source of clicks@1 has"):
        answer({"seens": 1})
    with pytest.raises(InvalidInput, match="are not accepted by clicks@1"):
        answer({"clicks": "many"})


def killed_at_publishing(root: str, at_generation: bool) -> None:
    """A process that dies when it has written a day's file, before or after the file itself is in the
    store.
    """

    def die(store: Store, name: str, *arguments: Any, **more: Any) -> None:
        os._exit(9)

    if at_generation:
        Store.create = die  # type: ignore[method-assign]
    else:
        Store.take_over = die  # type: ignore[method-assign]
    SOURCE["rows"] = table([Row(1, 10, 12, 2.0)])
    materialize_day(Store(root), view(), FIRST)


@pytest.mark.slow
@pytest.mark.parametrize("at_generation", [False, True])
def test_a_process_that_is_killed_leaves_the_day_as_it_was(at_generation: bool, tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 10, 12, 1.0)])
    before = days(store, shape)
    process = multiprocessing.get_context("spawn").Process(
        target=killed_at_publishing, args=(str(tmp_path), at_generation)
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    assert days(store, shape) == before
    assert join(store, labels([(1, 20)]), ["clicks@1:value"], shape)["value"].to_pylist() == [1.0]
    in_a_week = datetime.now(UTC) + timedelta(days=8)
    orphans = list(find_orphan_files(store, (), in_a_week))
    assert len(orphans) == int(at_generation)
    for orphan in orphans:
        delete_orphan_file(store, orphan, in_a_week)
        assert not store.exists(orphan.name)
    materialize(store, [Row(1, 10, 12, 2.0)])
    assert join(store, labels([(1, 20)]), ["clicks@1:value"], shape)["value"].to_pylist() == [2.0]


def test_a_day_that_is_published_while_retention_is_about_to_delete_its_file_stays(tmp_path: Path) -> None:
    """The file was left by a killed process, and is old; then a process finds it there, when retention has
    listed it already.
    """
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 10, 12, 1.0)])
    [name] = [name for name, _, _ in store.files("features") if name.endswith(".parquet")]
    store.delete(f"features/clicks/1/day={FIRST}/generation-000001.json")
    os.utime(store.path(name), (time.time() - 864_000,) * 2)
    now = datetime.now(UTC)
    [orphan] = find_orphan_files(store, (), now)
    assert orphan.name == name
    materialize(store, [Row(1, 10, 12, 1.0)])
    delete_orphan_file(store, orphan, now)
    assert join(store, labels([(1, 20)]), ["clicks@1:value"], shape)["value"].to_pylist() == [1.0]


def test_of_two_processes_that_publish_a_day_at_once_one_comes_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    create = Store.create
    raced = []

    def race(self: Store, name: str, *arguments: Any, **more: Any) -> None:
        if "generation-" in name and not raced:
            raced.append(name)
            materialize(store, [Row(1, 10, 12, 7.0)])  # the other one, which is faster
        create(self, name, *arguments, **more)

    monkeypatch.setattr(Store, "create", race)
    shape = materialize(store, [Row(1, 10, 12, 8.0)])
    current = partition(store, shape.name, shape.version, FIRST)
    assert current is not None
    assert current.generation == 2
    assert len(store.names(f"features/clicks/1/day={FIRST}")) == 4
    monkeypatch.setattr(partitions_module, "_TRIES", 0)
    with pytest.raises(OSError, match=r"publish clicks@1 of 2026-03-01 again and again"):
        materialize(store, [Row(1, 10, 12, 9.0)])


def test_a_view_is_materialised_joined_and_pushed_on_any_store(any_store: Store, tmp_path: Path) -> None:
    rows = [
        Row(user, day * DAY + 5, day * DAY + 9, float(user + day)) for user in range(3) for day in range(3)
    ]
    shape = materialize(any_store, rows)
    with join_features(
        any_store, labels([(2, 5 * DAY), (1, DAY + 8)]), ["clicks@1:value"], {shape.key: shape}, time="when"
    ) as joined:
        assert joined.reader.read_all()["value"].to_pylist() == [4.0, 1.0]
    assert push(any_store, shape, str(tmp_path / "online.db")).taken == 3
    assert not any(done.new for done in materialize_all(any_store, shape, late=True).days.values())


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True], ids=["", "to a full disk"])
def test_a_day_larger_than_the_memory_it_may_take_is_spilled(tmp_path: Path, full: bool) -> None:
    count = 400_000
    pq.write_table(
        pa.table(
            {
                "user": pa.array(range(count, 0, -1)),
                "ts": pa.array([at(0)] * count, MICROS),
                "loaded": pa.array([at(0)] * count, MICROS),
                "value": pa.array([f"{number:0100}" for number in range(count)]),
            }
        ),
        tmp_path / "rows.parquet",
    )
    code = f"""
from resources.features.materialize import materialize_all
from halving import Store
from tests.resources.features.histories import view
given = view(source={{"files": {str(tmp_path / "rows.parquet")!r}}}, schema={{"value": "string"}})
done = materialize_all(Store({str(tmp_path / "store")!r}), given, memory="100MB")
assert not done.failed, done.failed
print([one.partition.rows for one in done.days.values()])
"""
    if full:
        code = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if full:
        assert "StoreError: materialising the feature view clicks@1 failed: " in done.stderr
        return
    assert (done.stdout.strip(), done.returncode) == (f"[{count}]", 0), done.stderr

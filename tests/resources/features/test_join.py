"""The point-in-time join gives each label what was known at its time, once and in order."""

import math
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import InvalidInput, NotFound, Store, StoreError
from halving.features import OnlineFeatures
from resources.features.join import join_features
from resources.features.online import push
from tests.properties import examples
from tests.resources.features.histories import (
    DAY,
    MICROS,
    Row,
    at,
    bits,
    histories,
    join,
    labels,
    latest_known,
    materialize,
    moments,
    view,
)

HOUR = 60.0


TTL = 60.0  # minutes, in the cases that have one


# rows, (user, minutes) of a label, what it gets without a ttl, and with one of an hour
CASES: dict[str, tuple[list[Row], tuple[Any, float], Any, Any]] = {
    "nothing is known before the first row": ([Row(1, 10, 12, 1.0)], (1, 9), None, None),
    "an event that happened but was not known yet": ([Row(1, 10, 12, 1.0)], (1, 11), None, None),
    "known at the very moment": ([Row(1, 10, 12, 1.0)], (1, 12), 1.0, 1.0),
    "one microsecond before it is known": ([Row(1, 10, 12, 1.0)], (1, 12 - 1 / 60e6), None, None),
    "the older row while the newer is on its way": (
        [Row(1, 10, 11, 1.0), Row(1, 20, 40, 2.0)],
        (1, 30),
        1.0,
        1.0,
    ),
    "the newer row once it is known": ([Row(1, 10, 11, 1.0), Row(1, 20, 40, 2.0)], (1, 40), 2.0, 2.0),
    "a row that was overtaken never counts": ([Row(1, 10, 30, 1.0), Row(1, 20, 21, 2.0)], (1, 31), 2.0, 2.0),
    "a row counts until it is overtaken": ([Row(1, 10, 15, 1.0), Row(1, 20, 21, 2.0)], (1, 20), 1.0, 1.0),
    "overtaken across days": (
        [Row(1, 10, 3 * DAY, 1.0), Row(1, DAY + 20, DAY + 21, 2.0)],
        (1, 3 * DAY + 1),
        2.0,
        None,
    ),
    "of equal events the one created last": ([Row(1, 10, 11, 1.0), Row(1, 10, 14, 2.0)], (1, 20), 2.0, 2.0),
    "of equal events the first one before its correction": (
        [Row(1, 10, 11, 1.0), Row(1, 10, 14, 2.0)],
        (1, 13),
        1.0,
        1.0,
    ),
    "known at once, the later event": (
        [Row(1, 10, 30, 1.0), Row(1, 20, 30, 2.0), Row(1, 15, 30, 3.0)],
        (1, 30),
        2.0,
        2.0,
    ),
    "a time to live from the event, to the last moment": ([Row(1, 0, 30, 1.0)], (1, TTL), 1.0, 1.0),
    "a time to live that is over by a microsecond": ([Row(1, 0, 30, 1.0)], (1, TTL + 1 / 60e6), 1.0, None),
    "nothing older steps in when the newest is too old": (
        [Row(1, 0, 1, 1.0), Row(1, 5, 6, 2.0)],
        (1, 70),
        2.0,
        None,
    ),
    "another entity's row": ([Row(2, 10, 12, 1.0)], (1, 20), None, None),
    "no entity": ([Row(1, 10, 12, 1.0)], (None, 20), None, None),
    "a value that is null is what is known": (
        [Row(1, 10, 12, 1.0), Row(1, 20, 22, None)],
        (1, 30),
        None,
        None,
    ),
    "midnight between event and label": ([Row(1, DAY - 1, DAY - 1, 1.0)], (1, DAY + 1), 1.0, 1.0),
    "NaN is a value": ([Row(1, 10, 12, math.nan)], (1, 20), math.nan, math.nan),
    "the sign of zero": ([Row(1, 10, 12, -0.0)], (1, 20), -0.0, -0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_label_gets_what_was_known(case: str, tmp_path: Path) -> None:
    rows, label, expected, within_ttl = CASES[case]
    store = Store(tmp_path)
    shapes = [materialize(store, rows), materialize(store, rows, view(name="short", ttl="1h"))]
    joined = join(store, labels([label]), ["clicks@1:value", "short@1:value as short"], *shapes)
    assert bits(joined["value"].to_pylist() + joined["short"].to_pylist()) == bits([expected, within_ttl])
    # so that the reference is right, too
    assert bits([latest_known(rows, *label), latest_known(rows, *label, TTL)]) == bits([expected, within_ttl])


@settings(max_examples=examples(30))
@given(
    histories(),
    histories(),
    st.lists(st.tuples(st.one_of(st.none(), st.integers(1, 4)), moments), max_size=20),
    st.sampled_from([15, 60, 24 * 60]),
)
def test_the_join_is_the_brute_force_reference(
    first: list[Row], second: list[Row], label_rows: list[tuple[int | None, float]], ttl: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        late = [
            Row(row.user, row.event, row.event + 30, row.value)
            for row in {(row.user, row.event): row for row in second}.values()
        ]
        shapes = [
            materialize(store, first),
            materialize(store, late, view(name="late", created=None, delay="30m", ttl=f"{ttl}m")),
        ]
        joined = join(store, labels(label_rows), ["clicks@1:value", "late@1:value as late"], *shapes)
        short = join(store, labels(label_rows), ["clicks@1:value"], view(ttl=f"{ttl}m"))
    assert joined["number"].to_pylist() == list(range(len(label_rows)))  # every label once, in order
    for column, rows, live in (
        (joined["value"], first, math.inf),
        (short["value"], first, ttl),
        (joined["late"], late, ttl),
    ):
        assert bits(column.to_pylist()) == bits(
            latest_known(rows, user, minutes, live) for user, minutes in label_rows
        )


def test_every_label_comes_back_once_in_order_with_its_columns_as_they_were(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(user, 10, 12, float(user)) for user in range(50)])
    label_rows = labels([(user % 60, 20.0 - user % 3) for user in range(1000, 0, -1)])
    colour = pa.array(["red", "blue"] * 500).dictionary_encode()
    label_rows = label_rows.append_column("colour", colour).append_column(
        "pair", pa.array([[1.0, 2.0]] * 1000, pa.list_(pa.float16(), 2))
    )
    given_labels = label_rows.replace_schema_metadata({"from": "tests"})
    joined = join(store, given_labels, ["clicks@1:value"], shape)
    assert joined.drop_columns(["value"]).equals(given_labels)
    assert joined.column_names[-1] == "value"
    again = join(
        store,
        pa.RecordBatchReader.from_batches(label_rows.schema, label_rows.to_batches(max_chunksize=7)),
        ["clicks@1:value"],
        shape,
    )
    assert again["value"].equals(joined["value"].cast(pa.float64()))


def test_more_labels_than_a_batch_keep_their_order(tmp_path: Path) -> None:
    store = Store(tmp_path)
    count = 150_000
    shape = materialize(store, [Row(user, 10, 12, float(user)) for user in range(100)])
    users = pa.array([number * 7919 % 100 for number in range(count)], pa.int64())
    label_rows = pa.table({"user": users, "when": pa.array([at(20)] * count, MICROS)})
    joined = join(store, label_rows, ["clicks@1:value"], shape)
    assert joined["value"].cast(pa.int64()).combine_chunks().equals(users)


def test_views_of_several_entities_are_joined_by_their_own_columns(tmp_path: Path) -> None:
    store = Store(tmp_path)
    users = materialize(store, [Row(1, 0, 0, 1.0), Row(2, 0, 0, 2.0)])
    pairs = pa.table(
        {
            "user": pa.array([1, 1], pa.int32()),
            "item": pa.array(["a", "b"]).dictionary_encode(),
            "ts": pa.array([at(0)] * 2, MICROS),
            "loaded": pa.array([at(1)] * 2, MICROS),
            "value": [0.5, 0.25],
        }
    )
    both = materialize(store, pairs, view(name="pairs", entity=["user", "item"]))
    label_rows = labels([(1, 5), (2, 5), (1, 5), (1, 5)]).append_column(
        "item", pa.array(["b", "a", None, "a"], pa.large_string())
    )
    joined = join(store, label_rows, ["pairs@1:value as pair", "clicks@1:value as user_value"], users, both)
    assert joined["pair"].to_pylist() == [0.25, None, None, 0.5]
    assert joined["user_value"].to_pylist() == [1.0, 2.0, 1.0, 1.0]
    assert joined.column_names == ["number", "user", "when", "item", "pair", "user_value"]


def test_no_labels_are_no_rows_with_all_columns(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 0, 0, 1.0)])
    joined = join(store, labels([]), ["clicks@1:value"], shape)
    assert (joined.num_rows, joined.column_names) == (
        0,
        ["number", "user", "when", "value"],
    )


def test_all_types_of_features_come_back_as_they_were(tmp_path: Path) -> None:
    store = Store(tmp_path)
    columns = {
        "binary": (pa.binary(), [b"\x00\xff", b""]),
        "bool": (pa.bool_(), [True, None]),
        "double": (pa.float64(), [0.1, -0.0]),
        "float": (pa.float32(), [0.5, math.inf]),
        "int32": (pa.int32(), [-(2**31), 7]),
        "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
        "string": (pa.string(), ["ä\x00b", ""]),
        "timestamp": (MICROS, [datetime(1900, 1, 1, 0, 0, 0, 1, UTC), None]),
    }
    rows = table_of_types = pa.table(
        {
            **{name: pa.array(given_values, kind) for name, (kind, given_values) in columns.items()},
            "user": pa.array([1, 2]),
            "ts": pa.array([at(0)] * 2, MICROS),
            "loaded": pa.array([at(0)] * 2, MICROS),
        }
    )
    shape = materialize(store, rows, view(schema={name: name for name in columns}))
    joined = join(store, labels([(2, 1), (1, 1)]), [f"clicks@1:{name}" for name in columns], shape)
    assert joined.select(list(columns)).equals(table_of_types.select(list(columns)).take([1, 0]))


def test_a_feature_that_came_later_is_null_in_days_made_before(tmp_path: Path) -> None:
    store = Store(tmp_path)
    materialize(store, [Row(1, 10, 12, 1.0), Row(2, 2 * DAY, 2 * DAY, 2.0)])
    wider = view(schema={"value": "double", "more": "string", "most": "bool"})
    label_rows = labels([(1, 20), (2, 3 * DAY)])
    features = ["clicks@1:more", "clicks@1:value", "clicks@1:most"]
    before = join(store, label_rows, features, wider)
    assert before["more"].to_pylist() == [None, None]
    assert before.schema.field("most").type == pa.bool_()
    rows = pa.table(
        {
            "user": [2],
            "ts": pa.array([at(2 * DAY)], MICROS),
            "loaded": pa.array([at(2 * DAY)], MICROS),
            "value": [2.0],
            "more": ["x"],
            "most": [True],
        }
    )
    materialize(store, rows, wider)
    after = join(store, label_rows, features, wider)
    assert after["more"].to_pylist() == [None, "x"]
    assert after["value"].to_pylist() == [1.0, 2.0]


def test_columns_of_any_name_are_joined_and_pushed(tmp_path: Path) -> None:
    """Names that are words of SQL, or of our own queries."""
    store = Store(tmp_path / "store")
    names = [
        "row",
        "time",
        "newest",
        "next_known",
        "filename",
        "generation",
        "day",
        "select",
        "feature_0",
        "key_0",
        "labels",
    ]
    entity = ["rows", 'user\'s "id"', "latest"]
    times = pa.array([at(10), at(2000)], MICROS)
    features = {name: [1.5, 2.5] for name in names}
    rows = pa.table(
        {
            "rows": [1, 2],
            'user\'s "id"': ["a", "b"],
            "latest": [3, 4],
            "ts": times,
            "loaded": times,
            **features,
        }
    )
    shape = materialize(store, rows, view(entity=entity, schema=dict.fromkeys(names, "double")))
    label_rows = rows.select(entity).append_column("when", pa.array([at(3000)] * 2, MICROS))
    joined = join(
        store,
        label_rows,
        [*(f"clicks@1:{name}" for name in names), "clicks@1:row as A", "clicks@1:time as a"],
        shape,
    )
    assert [joined[name].to_pylist() for name in [*names, "A", "a"]] == [[1.5, 2.5]] * 13
    push(store, shape, str(tmp_path / "online.db"))
    with OnlineFeatures(str(tmp_path / "online.db"), [f"clicks@1:{name}" for name in names]) as reader:
        assert reader.read(label_rows).to_pydict() == features
    earlier = rows.set_column(rows.column_names.index("ts"), "ts", pa.array([at(0), at(2000)], MICROS))
    assert push(store, materialize(store, earlier, shape), str(tmp_path / "online.db")).withdrawn == 1


def test_labels_at_the_ends_of_time_are_joined_like_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 0, 10, 1.0)], view(ttl="36525d"))
    label_rows = pa.table(
        {"user": [1, 1, 1], "when": pa.array([-(2**62), 2**62, int(at(10).timestamp() * 1e6)]).cast(MICROS)}
    )
    assert join(store, label_rows, ["clicks@1:value"], shape)["value"].to_pylist() == [None, None, 1.0]


def test_times_of_any_zone_and_unit_are_the_same_moments(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 0, 10, 1.0)])
    time = at(10)
    for kind in (
        pa.timestamp("s", "Asia/Tokyo"),
        pa.timestamp("ms", "UTC"),
        pa.timestamp("ns", "America/New_York"),
    ):
        label_rows = pa.table({"user": [1], "when": pa.array([time], MICROS).cast(kind)})
        assert join(store, label_rows, ["clicks@1:value"], shape)["value"].to_pylist() == [1.0]
    local = pa.table(
        {
            "user": [1, 1],
            "when": pa.array([datetime(2026, 3, 1, 1, 10), datetime(2026, 3, 1, 1, 9)], pa.timestamp("us")),
        }
    )
    joined = join(store, local, ["clicks@1:value"], shape, timezone="Europe/Berlin")
    assert joined["value"].to_pylist() == [1.0, None]
    just_before = pa.table(
        {"user": [1], "when": pa.array([int(time.timestamp()) * 10**9 - 1], pa.timestamp("ns", "UTC"))}
    )
    assert join(store, just_before, ["clicks@1:value"], shape)["value"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": ["clicks@1:rate"]}, "clicks@1 has no such feature; it has value"),
        ({"features": ["clicks@2:value"]}, "there is no feature view clicks@2, did you mean 'clicks@1'"),
        ({"features": ["clicks.value"]}, "give VIEW@VERSION:FEATURE"),
        ({"features": []}, "give at least one"),
        ({"features": ["clicks@1:value as user"]}, "a column of the labels is named 'user'"),
        ({"features": ["clicks@1:value", "clicks@1:value"]}, "give clicks@1:value as clicks_value"),
        ({"time": "user"}, "it is int64; give a column of timestamps"),
        ({"time": "date"}, "they have no column 'date'"),
        (
            {"labels": labels([(1, 5)]).rename_columns(["number", "person", "when"])},
            "no column 'user' (entity of clicks@1)",
        ),
        (
            {"labels": labels([("1", 5)], pa.string())},
            "is string, which is not accepted: in clicks@1 it is int64",
        ),
        ({"labels": pa.table({"user": [1], "when": pa.array([datetime(2026, 1, 1)])})}, "has no time zone"),
        (
            {"labels": pa.table({"user": [1, 1], "when": pa.array([at(1), None], MICROS)})},
            "label 1 is not accepted: its when is null",
        ),
    ],
)
def test_what_is_wrong_with_a_join_is_named_before_anything_is_read(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 0, 10, 1.0)])
    given_arguments: dict[str, Any] = {
        "labels": labels([(1, 5)]),
        "features": ["clicks@1:value"],
        "time": "when",
        **change,
    }
    with (
        pytest.raises(InvalidInput, match=r".") as refused,
        join_features(store, views={shape.key: shape}, **given_arguments),
    ):
        pass
    assert message in str(refused.value)


def test_a_view_that_was_never_materialised_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="clicks@1 has not been materialised"):
        join(Store(tmp_path), labels([(1, 5)]), ["clicks@1:value"], view())


@pytest.mark.folder
def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 0, 10, 1.0)])
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(StoreError, match=r"the join of features failed: IO Error: No files found .*parquet"):
        join(store, labels([(1, 15)]), ["clicks@1:value"], shape)


def test_a_join_reads_the_days_that_can_count_and_names_what_it_stood_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = [Row(1, day * DAY + 5, day * DAY + 6, float(day)) for day in range(6)]
    shapes: Sequence[Any] = [
        materialize(store, rows, view(ttl="1d")),
        materialize(store, rows, view(name="ever")),
    ]
    label_rows = labels([(1, 3 * DAY + 10), (1, 3 * DAY + 1)])
    with join_features(store, label_rows, ["clicks@1:value"], {"clicks@1": shapes[0]}, time="when") as joined:
        assert [(part.day - at(0).date()).days for part in joined.partitions] == [2, 3]
        digest = joined.digest
    with join_features(store, label_rows, ["ever@1:value"], {"ever@1": shapes[1]}, time="when") as joined:
        assert [(part.day - at(0).date()).days for part in joined.partitions] == [0, 1, 2, 3]
        assert joined.reader.read_all()["value"].to_pylist() == [3.0, 2.0]
        assert joined.digest != digest


@pytest.mark.slow
def test_a_join_of_more_rows_than_the_memory_it_may_take_is_spilled(tmp_path: Path) -> None:
    """Both sorts, of rows and of labels, go through the temporary disk; the answer is the same."""
    count = 1_000_000
    store = Store(tmp_path)
    source = np.random.default_rng(1)
    event = source.permutation(count * 4)[:count].astype("int64") * 20_000 + int(at(0).timestamp() * 1e6)
    late = source.integers(0, 600_000_000, count)
    times, loaded = (pa.array(numbers).cast(MICROS) for numbers in (event, event + late))
    rows = pa.table(
        {
            "user": source.integers(0, 1000, count),
            "ts": times,
            "loaded": loaded,
            "value": source.normal(size=count),
        }
    )
    shape = materialize(store, rows)
    label_rows = pa.table(
        {
            "user": rows["user"],
            "when": pa.array(event + 300_000_000).cast(MICROS),
            "text": [f"{n:0100}" for n in range(count)],
        }
    )
    joined = [
        join(store, label_rows, ["clicks@1:value"], shape, memory=memory, threads=2)["value"]
        for memory in ("2GB", "150MB")
    ]
    assert joined[0].equals(joined[1])
    assert joined[0].null_count < count / 10

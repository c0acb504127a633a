"""What is read online is what was computed offline, bit by bit: the latest row, for its time to live."""

import math
import multiprocessing
import random
import struct
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from halving import InvalidInput, NotFound, Store
from halving.features import OnlineFeatures
from resources.features.online import delete, open_writer, push
from resources.features.online_rows import pack_rows
from resources.features.view import FeatureView
from tests.properties import examples
from tests.resources.features.histories import (
    DAY,
    MICROS,
    START,
    Row,
    at,
    bits,
    histories,
    join,
    labels,
    latest_known,
    materialize,
    table,
    view,
)

TYPES = {
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "string": pa.string(),
    "timestamp": MICROS,
}


SIGNALLING = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_1234))[0]  # NaN with bits of its own


VALUES: dict[str, list[Any]] = {
    "binary": [b"\x00\xff", b"", None, b"x" * 300],
    "bool": [True, False, None, True],
    "double": [-0.0, SIGNALLING, None, 5e-324],
    "float": [-0.0, math.nan, None, 1.5],
    "int32": [-(2**31), 2**31 - 1, None, 0],
    "int64": [-(2**63), 2**63 - 1, None, 0],
    "string": ["ä\x00b", "", None, "z" * 1000],
    "timestamp": [
        datetime(1900, 1, 1, 0, 0, 0, 1, UTC),
        datetime(2200, 1, 1, tzinfo=UTC),
        None,
        datetime(1970, 1, 1, tzinfo=UTC),
    ],
}


def wide(users: list[Any], minutes: list[float], start: int = 0) -> pa.Table:
    """Rows with features of all types."""
    columns = {
        name: pa.array([VALUES[name][(start + n) % 4] for n in range(len(users))], TYPES[name])
        for name in TYPES
    }
    times = pa.array([at(minute) for minute in minutes], MICROS)
    return pa.table({"user": users, "ts": times, "loaded": times, **columns})


def wide_view(**changes: Any) -> FeatureView:
    return view(schema={name: name for name in TYPES}, **changes)


def test_each_type_is_read_online_bit_by_bit_as_it_was_computed(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    users = [3, 1, 4, -(2**63)]
    shape = materialize(store, wide(users, [0, 1, 2, 3]), wide_view())
    assert push(store, shape, online).taken == 4
    features = [f"clicks@1:{name}" for name in TYPES]
    offline = join(store, labels([(user, 10) for user in [*users, 99, None]]), features, shape).select(
        list(TYPES)
    )
    with OnlineFeatures(online, features) as reader:
        result = reader.read(pa.table({"user": pa.array([*users, 99, None], pa.int64())}))
        assert result.schema == offline.schema
        for name in TYPES:
            before = offline[name].combine_chunks()
            after = result[name].combine_chunks()
            assert before.is_valid().equals(after.is_valid())
            assert [exact(value) for value in before] == [exact(value) for value in after], name
        for user, row in zip(users, offline.slice(0, 4).to_pylist(), strict=True):
            assert bits(reader.get({"user": user, "more": 1}).values()) == bits(row.values())
        assert set(reader.get({"user": 99}).values()) == set(reader.get({"user": None}).values()) == {None}
        assert bits(reader.read([{"user": user} for user in users]).to_pylist()[0].values()) == bits(
            result.to_pylist()[0].values()
        )


def exact(value: pa.Scalar) -> Any:
    """The bits of a scalar."""
    if not value.is_valid:
        return None
    array = pa.array([value], value.type)
    if pa.types.is_boolean(value.type):
        return value.as_py()
    return [buffer and buffer.to_pybytes()[:1100] for buffer in array.buffers()[1:]]


def test_no_sign_of_a_zero_and_no_bit_of_a_number_is_lost_among_many_rows(
    tmp_path: Path, online: str
) -> None:
    """DuckDB, Parquet's dictionaries and numpy each have places where 0.0 and -0.0 are one value."""
    store = Store(tmp_path / "store")
    source = np.random.default_rng(3)
    count = 5_000
    double = np.where(source.random(count) < 0.5, -0.0, 0.0)
    double[::7] = source.normal(size=len(double[::7]))
    double[::11] = SIGNALLING
    numbers = {"double": double, "float": double.astype(np.float32)}
    times = pa.array([at(0)] * count, MICROS)
    users = np.arange(count)
    rows = pa.table({"user": users, "ts": times, "loaded": times, **numbers})
    shape = materialize(
        store, rows.take(source.permutation(count)), view(schema={"double": "double", "float": "float"})
    )
    push(store, shape, online)
    features = ["clicks@1:double", "clicks@1:float"]
    label_rows = pa.table({"user": users, "when": times})
    with OnlineFeatures(online, features) as reader:
        for result in (join(store, label_rows, features, shape), reader.read(label_rows)):
            assert result["double"].to_numpy().tobytes() == numbers["double"].tobytes()
            assert result["float"].to_numpy().tobytes() == numbers["float"].tobytes()


def test_texts_and_pairs_are_entities(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    rows = pa.table(
        {
            "user": ["a", "ab", "a"],
            "item": ["bc", "c", ""],
            "ts": pa.array([at(0)] * 3, MICROS),
            "loaded": pa.array([at(0)] * 3, MICROS),
            "value": [1.0, 2.0, 3.0],
        }
    )
    shape = materialize(store, rows, view(entity=["user", "item"]))
    push(store, shape, online)
    with OnlineFeatures(online, ["clicks@1:value"]) as reader:
        assert [reader.get(row)["value"] for row in rows.to_pylist()] == [1.0, 2.0, 3.0]
        assert reader.read(rows)["value"].to_pylist() == [1.0, 2.0, 3.0]
        assert reader.get({"user": "abc", "item": ""})["value"] is None
        with pytest.raises(InvalidInput, match="clicks@1 needs item"):
            reader.get({"user": "a"})
        with pytest.raises(InvalidInput, match="user = 1 is not accepted: the entity of clicks@1 is string"):
            reader.get({"user": 1, "item": "x"})


@pytest.mark.parametrize("ttl", [None, "1h", "1d"])
def test_a_replayed_history_is_read_online_as_it_is_joined_offline(
    tmp_path: Path, online: str, ttl: str | None
) -> None:
    """At each label's time what is known until then is pushed, and read."""
    store = Store(tmp_path / "store")
    source = random.Random(7)
    rows = {}
    for _ in range(150):
        event = source.randrange(0, 3 * 1440, 20)
        row = (source.randrange(6), event, event + source.choice([0, 5, 60, 1500]))
        rows[row] = row
    users, events, arrived = zip(*rows, strict=True)
    table = wide(list(users), list(events)).set_column(
        2, "loaded", pa.array([at(minute) for minute in arrived], MICROS)
    )
    shape = materialize(store, table, wide_view(ttl=ttl))
    label_rows = sorted(
        {(source.randrange(7), source.randrange(0, 5 * 1440, 10)) for _ in range(examples(100))},
        key=lambda label: label[1],
    )
    features = [f"clicks@1:{name}" for name in TYPES]
    offline = join(store, labels(label_rows), features, shape).select(list(TYPES))
    push(store, shape, online, until=at(-1))
    with OnlineFeatures(online, features) as reader:
        for number, (user, minutes) in enumerate(label_rows):
            push(store, shape, online, until=at(minutes))
            result = reader.read([{"user": user}], now=at(minutes))
            for name in TYPES:
                assert exact(result[name][0]) == exact(offline[name][number]), (user, minutes, name)
            assert bits(reader.get({"user": user}, now=at(minutes)).values()) == bits(
                offline.slice(number, 1).to_pylist()[0].values()
            )
    assert any(value is not None for value in offline["double"].to_pylist())


@settings(max_examples=examples(6))
@given(histories())
def test_pushes_in_any_order_end_with_the_latest_known(rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"{folder}/store")
        online = f"{folder}/online.db"
        shape = materialize(store, rows)
        days = sorted({at(row.event).date() for row in rows}, reverse=True)
        for day in [*days, *days]:
            push(store, shape, online, days=[day])
        with OnlineFeatures(online, ["clicks@1:value"]) as reader:
            for user in range(1, 4):
                assert bits(reader.get({"user": user}).values()) == bits([latest_known(rows, user, math.inf)])


def write_rows(online: str, shape: FeatureView, order: list[int]) -> None:
    """One writer of two: rows of users 0 to 9, each older or newer than the last one."""
    definition = shape.definition({"user": "int64"})
    with open_writer(online) as writer:
        from halving.features.packing import Layout

        layout = Layout(writer.define(definition).features)
        for minute in order:
            times = pa.array([at(minute)] * 10, MICROS)
            generations = pa.array([1] * 10, pa.uint32())
            rows = pa.table(
                {
                    "user": list(range(10)),
                    "_event": times,
                    "_known": times,
                    "_generation": generations,
                    "value": [float(minute)] * 10,
                }
            )
            writer.put(shape.key, pack_rows(definition, layout, rows), None)


@pytest.mark.slow
def test_of_two_writers_at_once_the_newer_row_wins(online: str) -> None:
    orders = [random.Random(seed).sample(range(200), 200) for seed in (1, 2)]
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_rows, args=(online, view(), order)) for order in orders]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    with OnlineFeatures(online, ["clicks@1:value"]) as reader:
        assert reader.read(pa.table({"user": list(range(10))}))["value"].to_pylist() == [199.0] * 10


def test_a_push_again_changes_nothing_and_a_day_made_again_replaces_its_values(
    tmp_path: Path, online: str
) -> None:
    store = Store(tmp_path / "store")
    shape = materialize(store, [Row(1, 10, 12, 1.0), Row(2, 10, 12, 2.0)])
    assert [push(store, shape, online).taken for _ in range(2)] == [2, 0]
    materialize(store, [Row(1, 10, 12, 1.0), Row(2, 10, 12, 2.5)])
    pushed = push(store, shape, online)
    assert (pushed.entities, pushed.taken) == (2, 2)  # of the new generation
    with OnlineFeatures(online, ["clicks@1:value"]) as reader:
        assert reader.read([{"user": 1}, {"user": 2}])["value"].to_pylist() == [1.0, 2.5]


def test_a_value_counts_for_its_time_to_live(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    shape = materialize(store, [Row(1, 10, 12, 1.0)], view(ttl="1h"))
    push(store, shape, online, until=at(20))
    with OnlineFeatures(online, ["clicks@1:value"]) as reader:
        assert reader.get({"user": 1}, now=at(70)) == {"value": 1.0}
        assert reader.get({"user": 1}, now=at(70 + 1 / 60e6)) == {"value": None}
        assert reader.read([{"user": 1}])["value"].to_pylist() == [None]
        with pytest.raises(InvalidInput, match="has no time zone"):
            reader.get({"user": 1}, now=datetime(2026, 1, 1))
    assert push(store, shape, online).entities == 0  # by now it is too old
    with pytest.raises(InvalidInput, match="has no time zone"):
        push(store, shape, online, until=datetime(2026, 1, 1))


def test_what_is_not_known_yet_is_not_pushed(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    shape = materialize(store, [Row(1, 10, 12, 1.0), Row(1, 20, 400, 2.0)])
    push(store, shape, online, until=at(399))
    with OnlineFeatures(online, ["clicks@1:value"]) as reader:
        assert reader.get({"user": 1}) == {"value": 1.0}
        push(store, shape, online, until=at(400), days=[date(2026, 3, 1)])
        assert reader.get({"user": 1}) == {"value": 2.0}


def test_a_feature_that_came_later_is_null_in_values_pushed_before(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    shape = materialize(store, [Row(1, 10, 12, 1.0), Row(2, 10, 12, 2.0)])
    push(store, shape, online)
    with OnlineFeatures(online, ["clicks@1:value"]) as old:
        rows = wide([2], [DAY]).append_column("value", pa.array([3.0]))
        wider = view(schema={"string": "string", "value": "double", "int64": "int64"})
        materialize(store, rows, wider)
        push(store, wider, online)
        assert old.read([{"user": 1}, {"user": 2}])["value"].to_pylist() == [1.0, 3.0]  # a reader from before
        with OnlineFeatures(
            online, ["clicks@1:value", "clicks@1:string", "clicks@1:int64 as number"]
        ) as reader:
            assert reader.get({"user": 1}) == {"value": 1.0, "string": None, "number": None}
            assert reader.get({"user": 2}) == {"value": 3.0, "string": "ä\x00b", "number": -(2**63)}
            both = reader.read([{"user": 1}, {"user": 3}, {"user": 2}])
            assert both.to_pydict() == {
                "value": [1.0, None, 3.0],
                "string": [None, None, "ä\x00b"],
                "number": [None, None, -(2**63)],
            }
        assert push(store, shape, online).taken == 0  # a writer from before
    with pytest.raises(InvalidInput, match=r"online it has the entity .* give it another version"):
        push(store, view(schema={"value": "string"}), online)


def test_a_deleted_entity_stays_away_until_something_new_happens(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    shape = view(entity=["user"], schema={"value": "string"}, created=None, delay="0s")
    kind = pa.string()
    secret = "what nobody may find " * 100
    materialize(store, table([Row(2, 0, 0, "another's")], kind), shape)
    push(store, shape, online)
    with OnlineFeatures(online, ["clicks@1:value"]) as reader:
        assert reader.get({"user": 1})["value"] is None
        materialize(store, table([Row(1, 0, 0, secret), Row(2, 0, 0, "another's")], kind), shape)
        push(store, shape, online)
        assert reader.get({"user": 1})["value"] == secret
        assert delete("clicks@1", {"user": 1}, online)
        assert [reader.get({"user": user})["value"] for user in (1, 2)] == [None, "another's"]
        if "://" not in online:  # nor in the log that SQLite keeps while there are readers
            kept = b"".join(path.read_bytes() for path in tmp_path.glob("online.db*"))
            assert b"another's" in kept
            assert b"nobody may find" not in kept
        assert not delete("clicks@1", {"user": 1}, online), "it is gone already"
        assert not delete("clicks@1", {"user": 7}, online)
        assert push(store, shape, online).taken == 0
        assert reader.read([{"user": user} for user in (2, 1, 7)])["value"].to_pylist() == [
            "another's",
            None,
            None,
        ]

    later = (datetime.now(UTC) - START).total_seconds() / 60 + 1
    materialize(store, table([Row(1, 0, 0, secret), Row(1, later, later, "new")], kind), shape)
    assert push(store, shape, online, until=at(later)).taken == 1
    with OnlineFeatures(online, ["clicks@1:value"]) as reader:
        assert reader.get({"user": 1}) == {"value": "new"}
    assert delete("clicks@1", {"user": 1}, online), "also what is yet to come"
    for wrong, says in (
        ({"user": "1"}, "the entity of clicks@1 is int64"),
        ({}, "clicks@1 needs user"),
        ({"user": None}, "is null"),
    ):
        with pytest.raises(InvalidInput, match=says):
            delete("clicks@1", wrong, online)
    with pytest.raises(NotFound, match="has no feature view clicks@2: it was never pushed there"):
        delete("clicks@2", {"user": 1}, online)


def test_views_that_differ_by_case_alone_have_each_its_own_values(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    names = ["Clicks", "clicks", "CLICKS", "cLicks", "clickS", "SQLite_x", "sqlite_x", "A", "a", "aA", "AA"]
    for number, name in enumerate(names):
        push(
            store,
            materialize(
                store, [Row(1, 10, 12, float(number)), Row(2, 10, 12, -float(number))], view(name=name)
            ),
            online,
        )
    with OnlineFeatures(
        online, [f"{name}@1:value as v{number}" for number, name in enumerate(names)]
    ) as reader:
        assert reader.get({"user": 1}) == {f"v{number}": float(number) for number in range(len(names))}
        assert delete("Clicks@1", {"user": 1}, online)
        materialize(store, [Row(1, 10, 12, 1.0)], view(name="clicks"))  # user 2 is in no day any more
        assert push(store, view(name="clicks"), online).withdrawn == 1
        assert reader.get({"user": 1}) == {
            f"v{number}": float(number) if number else None for number in range(len(names))
        }
        expected = {f"v{number}": -float(number) if number != 1 else None for number in range(len(names))}
        assert reader.read([{"user": 2}, {"user": 1}]).to_pylist()[0] == expected

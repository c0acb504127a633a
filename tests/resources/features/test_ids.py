"""Ids of entities are whole numbers, in whichever type labels, views and requests have them."""

import math
import tempfile
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import InvalidInput, Store
from halving.features import OnlineFeatures
from resources.features.materialize import materialize_day
from resources.features.online import push
from tests.properties import examples
from tests.resources.features.histories import (
    MICROS,
    SOURCE,
    Row,
    at,
    join,
    labels,
    materialize,
    table,
)

IDS: list[tuple[pa.DataType, Any]] = [
    (pa.int8(), 7),
    (pa.uint32(), 7),
    (pa.uint64(), 7),
    (pa.float16(), 7),
    (pa.float32(), 2**24 - 1),
    (pa.float64(), 7),
    (pa.float64(), -(2**53) + 1),
    (pa.float64(), -0.0),
    (pa.decimal128(20, 0), 7),
    (pa.decimal128(22, 2), 2**53 + 1),
    (pa.decimal256(40, 3), -(2**63)),
    (pa.dictionary(pa.int8(), pa.int64()), 7),
]


NO_IDS: list[tuple[pa.DataType, Any]] = [
    (pa.float64(), 2.5),
    (pa.float64(), 2.0**53),  # 2**53 + 1 is this double, too
    (pa.float64(), math.inf),
    (pa.float64(), -math.inf),
    (pa.float32(), 2.0**24),
    (pa.float32(), 0.1),
    (pa.uint64(), 2**63),
    (pa.decimal128(20, 1), Decimal("7.5")),
    (pa.decimal128(38, 0), 10**20),
]


def ids(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Ids of a type, as a cast of them makes them."""
    numbers = pa.array(values, pa.float64() if pa.types.is_floating(kind) else None)
    if pa.types.is_dictionary(kind):
        return numbers.dictionary_encode()
    return numbers.cast(kind)


def of_users(users: pa.Array) -> pa.Table:
    """A row of each of these users, with the number of the row as its value."""
    rows = table([Row(None, 0, 0, float(number)) for number in range(len(users))])
    return rows.set_column(0, "user", users)


@pytest.mark.parametrize(("kind", "user"), IDS)
def test_ids_are_whole_numbers_whatever_type_labels_have_them_in(
    kind: pa.DataType, user: Any, tmp_path: Path
) -> None:
    shape = materialize(Store(tmp_path), [Row(int(user), 0, 0, 1.0)])
    label_rows = pa.table({"user": ids(kind, [user, None, user]), "when": pa.array([at(1)] * 3, MICROS)})
    joined = join(Store(tmp_path), label_rows, ["clicks@1:value"], shape)
    assert joined["value"].to_pylist() == [1.0, None, 1.0]
    assert joined.select(["user"]).equals(label_rows.select(["user"]))  # a label keeps its own


# DuckDB reads no float16 and no decimal256 of Arrow's.
@pytest.mark.parametrize(
    ("kind", "user"), [(kind, user) for kind, user in IDS if kind not in (pa.float16(), pa.decimal256(40, 3))]
)
def test_ids_are_whole_numbers_whatever_type_a_view_has_them_in(
    kind: pa.DataType, user: Any, tmp_path: Path
) -> None:
    shape = materialize(Store(tmp_path), of_users(ids(kind, [user])))
    assert join(Store(tmp_path), labels([(int(user), 1)]), ["clicks@1:value"], shape)[
        "value"
    ].to_pylist() == [0.0]
    (file,) = tmp_path.rglob("*.parquet")
    assert pq.read_schema(file).field("user").type == pa.int64()


@pytest.mark.parametrize(("kind", "user"), NO_IDS)
def test_what_is_no_id_is_refused_with_its_value(kind: pa.DataType, user: Any, tmp_path: Path) -> None:
    shape = materialize(Store(tmp_path), [Row(1, 0, 0, 1.0)])
    users = pa.array([user], kind)
    label_rows = pa.table({"user": users, "when": pa.array([at(1)], MICROS)})
    with pytest.raises(
        InvalidInput,
        match=r"'user' of clicks@1 has .*, which is no whole number below 2\*\*.*pandas: dtype='Int64'",
    ) as refused:
        join(Store(tmp_path), label_rows, ["clicks@1:value"], shape)
    assert str(users[0].as_py()) in str(refused.value)
    SOURCE["rows"] = of_users(users)
    with pytest.raises(
        InvalidInput,
        match=r"1 rows .* have a user that is no whole number below 2\*\*.*dtype='Int64'.* user = ",
    ) as refused:
        materialize_day(Store(tmp_path), shape, date(2026, 3, 1))
    assert str(users[0].as_py()) in str(refused.value)


def test_nan_is_no_id(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 0, 0, 1.0), Row(2, 0, 0, 2.0)])
    for users in (pa.array([1.0, math.nan, None, 2.0]), pa.array([1.0, math.nan, None, 2.0], pa.float32())):
        label_rows = pa.table({"user": users, "when": pa.array([at(1)] * 4, MICROS)})
        assert join(store, label_rows, ["clicks@1:value"], shape)["value"].to_pylist() == [
            1.0,
            None,
            None,
            2.0,
        ]
    nobody = pa.table({"user": pa.nulls(1), "when": pa.array([at(1)], MICROS)})
    assert join(store, nobody, ["clicks@1:value"], shape)["value"].to_pylist() == [None]
    SOURCE["rows"] = of_users(pa.array([1.0, math.nan]))
    with pytest.raises(
        InvalidInput, match="1 rows of the feature view clicks@1 are not accepted: they have no entity"
    ):
        materialize_day(store, shape, date(2026, 3, 1))


def test_an_entity_is_looked_up_by_the_same_ids(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    address = str(tmp_path / "online.db")
    shape = materialize(store, [Row(2, 0, 0, 1.0)])
    push(store, shape, address)
    with OnlineFeatures(address, ["clicks@1:value"]) as online:
        user: Any
        for user in (
            2,
            2.0,
            np.float64(2),
            np.float32(2),
            np.float16(2),
            np.int8(2),
            Decimal("2.00"),
            Fraction(2),
        ):
            assert online.get({"user": user}) == {"value": 1.0}, repr(user)
        for user in (None, math.nan, np.float32("nan"), Decimal("NaN"), 3.0):
            assert online.get({"user": user}) == {"value": None}, repr(user)
        for user in (
            2.5,
            2.0**53,
            math.inf,
            np.float32(2**24),
            Decimal("2.5"),
            Decimal(2**63),
            Decimal("Infinity"),
        ):
            with pytest.raises(
                InvalidInput, match=r"user of clicks@1 has .*, which is no whole number below 2\*\*"
            ):
                online.get({"user": user})
        for user in (True, "2", b"2", 2**63, datetime(2026, 1, 1)):
            with pytest.raises(
                InvalidInput, match=r"user = .* is not accepted: the entity of clicks@1 is int64"
            ):
                online.get({"user": user})
        assert online.read(pa.table({"user": [2.0, math.nan, None, 3.0]}))["value"].to_pylist() == [
            1.0,
            None,
            None,
            None,
        ]


@settings(max_examples=examples(20))
@given(
    st.lists(st.integers(-(2**53) + 1, 2**53 - 1), min_size=1, max_size=8, unique=True),
    st.sampled_from([pa.int64(), pa.float64(), pa.decimal128(22, 2)]),
    st.sampled_from([pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(20, 0)]),
)
def test_labels_and_views_agree_on_ids_of_any_types(
    users: list[int], of_view: pa.DataType, of_labels: pa.DataType
) -> None:
    limit = 2**24 if of_labels == pa.float32() else 2**53
    label_rows = [user for user in users if abs(user) < limit and (user >= 0 or of_labels != pa.uint64())]
    with tempfile.TemporaryDirectory() as folder:
        shape = materialize(Store(folder), of_users(ids(of_view, users)))
        table_of_labels = pa.table(
            {"user": ids(of_labels, label_rows), "when": pa.array([at(1)] * len(label_rows), MICROS)}
        )
        joined = join(Store(folder), table_of_labels, ["clicks@1:value"], shape)
    assert joined["value"].to_pylist() == [float(users.index(user)) for user in label_rows]

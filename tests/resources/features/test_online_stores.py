"""Online stores: their tables, several writers and readers, and what is missing or away."""

import random
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from halving import InvalidInput, NotFound, Store, StoreError
from halving.errors import ExtraMissing, StoreUnavailable
from halving.features import OnlineFeatures
from halving.features.online_values import table_of
from halving.features.reference import IDENTIFIER
from resources.features import sqlite_writer
from resources.features.online import delete, push
from tests.properties import examples
from tests.redis_server import Redis
from tests.resources.features.histories import (
    Row,
    materialize,
    view,
)

VIEWS = st.builds("{}@{}".format, st.from_regex(IDENTIFIER, fullmatch=True), st.integers(1, 3))


@settings(max_examples=examples(200))
@given(VIEWS, VIEWS, st.randoms())
@example("sqlite_x@1", "SQLite_x@1", random.Random(0))
def test_no_two_views_have_one_table(first: str, other: str, by_chance: random.Random) -> None:
    swapped = "".join(by_chance.choice((letter.upper(), letter.lower())) for letter in first)
    for view_, another in ((first, other), (first, swapped)):
        assert (table_of(view_).lower() == table_of(another).lower()) == (view_ == another)
        assert not table_of(view_).lower().startswith("sqlite_")


def test_old_tables_are_renamed_and_what_two_views_shared_is_pushed_again(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "store")
    online = str(tmp_path / "online.db")
    shapes = {name: view(name=name) for name in ("Clicks", "clicks", "Alone", "plain")}
    for number, shape in enumerate(shapes.values()):
        push(store, materialize(store, [Row(1, 10, 12, float(number)), Row(2, 10, 12, 5.0)], shape), online)
    assert delete("Clicks@1", {"user": 2}, online)
    with closing(sqlite3.connect(online, isolation_level=None)) as earlier:
        # both in one table, whose name is that of the first
        earlier.execute('INSERT OR REPLACE INTO "^clicks@1" SELECT * FROM "clicks@1"')
        earlier.execute('DROP TABLE "clicks@1"')
        earlier.execute('ALTER TABLE "^clicks@1" RENAME TO "Clicks@1"')
        earlier.execute('ALTER TABLE "^alone@1" RENAME TO "Alone@1"')

    features = [f"{name}@1:value as {name}_value" for name in shapes]
    with (
        OnlineFeatures(online, features) as reader,
        pytest.raises(StoreError, match="from an earlier version: push it again"),
    ):
        reader.get({"user": 1})
    push(store, shapes["plain"], online)
    with OnlineFeatures(online, features) as reader:
        assert reader.get({"user": 1}) == {
            "Clicks_value": None,
            "clicks_value": None,
            "Alone_value": 2.0,
            "plain_value": 3.0,
        }
        for shape in shapes.values():
            push(store, shape, online)
        assert reader.get({"user": 1}) == {
            "Clicks_value": 0.0,
            "clicks_value": 1.0,
            "Alone_value": 2.0,
            "plain_value": 3.0,
        }
        assert reader.get({"user": 2}) == {
            "Clicks_value": None,
            "clicks_value": 5.0,
            "Alone_value": 5.0,
            "plain_value": 5.0,
        }, "deleted"


def test_threads_share_a_reader(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    push(store, materialize(store, [Row(user, 10, 12, float(user)) for user in range(50)]), online)
    wrong: list[Any] = []
    with OnlineFeatures(online, ["clicks@1:value"]) as reader:

        def ask() -> None:
            for user in range(50):
                if (features := reader.get({"user": user})) != {"value": float(user)}:
                    wrong.append(features)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_what_is_missing_online_is_named(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    shape = view()
    with pytest.raises(NotFound, match="clicks@1 has not been materialised"):
        push(store, shape, online)
    materialize(store, [Row(1, 10, 12, 1.0)])
    push(store, shape, online)
    with pytest.raises(NotFound, match="has no feature view other@1: push it there first"):
        OnlineFeatures(online, ["other@1:value"])
    with pytest.raises(InvalidInput, match="clicks@1 has value"):
        OnlineFeatures(online, ["clicks@1:rate"])


def test_no_online_store_and_a_damaged_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"there is no online store .* push features there first"):
        OnlineFeatures(str(tmp_path / "online.db"), ["clicks@1:value"])
    (tmp_path / "online.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match=r"is damaged: .* delete it and push the features again"):
        OnlineFeatures(str(tmp_path / "online.db"), ["clicks@1:value"])
    with pytest.raises(InvalidInput, match=r"give redis://HOST:PORT/NUMBER, or the path of a file"):
        OnlineFeatures("postgres://me:secret@host/db", ["clicks@1:value"])


def test_a_missing_client_and_a_file_that_cannot_be_written_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    shape = materialize(store, [Row(1, 10, 12, 1.0)])
    with pytest.raises(StoreError, match="cannot write the online store"):
        push(store, shape, str(tmp_path))  # a folder
    monkeypatch.setitem(sys.modules, "redis", None)
    for use in (
        lambda: push(store, shape, "redis://127.0.0.1"),
        lambda: OnlineFeatures("redis://127.0.0.1", ["clicks@1:value"]),
    ):
        with pytest.raises(ExtraMissing, match=r"pip install 'halving\[online\]'"):
            use()


def test_a_writer_waits_for_another_one_and_readers_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    address = str(tmp_path / "online.db")
    push(store, materialize(store, [Row(1, 10, 12, 1.0)]), address)
    newer = materialize(store, [Row(1, 20, 22, 2.0)])
    monkeypatch.setattr(sqlite_writer, "WAIT", 0.1)
    with (
        closing(sqlite3.connect(address, isolation_level=None)) as other,
        OnlineFeatures(address, ["clicks@1:value"]) as reader,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="database is locked"):
            push(store, newer, address)
        assert reader.get({"user": 1}) == {"value": 1.0}
        other.execute("ROLLBACK")
        push(store, newer, address)
        assert reader.get({"user": 1}) == {"value": 2.0}


def test_redis_that_is_away_is_unavailable_and_its_password_is_not_shown(
    tmp_path: Path, redis: Redis
) -> None:
    server = type(redis)(tmp_path)
    store = Store(tmp_path / "store")
    shape = materialize(store, [Row(1, 10, 12, 1.0)])
    address = server.address()
    push(store, shape, address)
    reader = OnlineFeatures(address, ["clicks@1:value"], timeout=0.2)
    server.stop()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        reader.get({"user": 1})
    secret = address.replace("://", "://me:secret@")
    with pytest.raises(StoreUnavailable, match="does not answer") as refused:
        OnlineFeatures(secret, ["clicks@1:value"], timeout=0.2)
    assert "secret" not in str(refused.value)
    server.start()
    push(store, shape, address)
    assert reader.get({"user": 1}) == {"value": 1.0}
    reader.close()
    server.stop()

"""Writing the online store in a file of SQLite's.

It has a table for each view, and those of definitions, deletions and settled days.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from halving.errors import HalvingError, StoreError, StoreUnavailable
from halving.features.definition import Definition
from halving.features.online_values import table_of
from halving.features.packing import HEADER, OFFSET, TIMES, count_of
from halving.store.backoff import backoff
from resources.features.engine import identifier
from resources.features.online_writer import WAIT, Withdrawal, deleted_value, unless_deleted

_AT_ONCE = 1_000  # values that are read


class SqliteWriter:
    """A file of SQLite's; its readers are not held up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._faults():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
            self._write_ahead()
            # after a power cut the last pushes may be missing: push again
            self._connection.execute("PRAGMA synchronous = normal")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS definitions (view TEXT PRIMARY KEY, definition TEXT NOT NULL)"
            )
            for table, columns in (
                ("settled", "day TEXT, generation INTEGER NOT NULL"),
                ("deletions", "entity BLOB, gone BLOB NOT NULL"),
            ):
                key = f"PRIMARY KEY (view, {columns.partition(' ')[0]})"
                self._connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {table} (view TEXT, {columns}, {key}) WITHOUT ROWID"
                )
        if self._find_misnamed():
            with self._transaction():
                # Looked up again, because another writer may have been first.
                self._rename_tables(self._find_misnamed())

    def _write_ahead(self) -> None:
        end = time.monotonic() + WAIT
        pauses = backoff(0.01, 0.5)
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = wal")
                return
            except sqlite3.OperationalError as error:
                # SQLite does not wait here where another writer makes the file
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
            time.sleep(next(pauses))

    def _find_misnamed(self) -> dict[str, list[str]]:
        """The views whose tables have the names of earlier versions, by table.

        There views that differ by case alone shared a table.
        """
        with self._faults():
            tables = {
                name
                for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            views = [
                view for (view,) in self._connection.execute("SELECT view FROM definitions ORDER BY view")
            ]
        old = {view.lower() for view in views if table_of(view) not in tables}
        sharing: dict[str, list[str]] = {}
        for view in views:
            if view.lower() in old:
                sharing.setdefault(view.lower(), []).append(view)
        return sharing

    def _rename_tables(self, misnamed: Mapping[str, Sequence[str]]) -> None:
        """Give each view a table of its own.

        Nobody knows whose the values of a shared one are: these views are pushed again.
        """
        for shared, views in misnamed.items():
            if len(views) == 1:
                self._connection.execute(f"ALTER TABLE {identifier(shared)} RENAME TO {_table(views[0])}")
                continue
            self._connection.execute(f"DROP TABLE {identifier(shared)}")
            for view in views:
                self._create_table(view)
                # What was deleted must not come back with the next push.
                self._connection.execute(
                    f"INSERT INTO {_table(view)} SELECT entity, gone FROM deletions WHERE view = ?", (view,)
                )

    def _create_table(self, view: str) -> None:
        columns = "(entity BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {_table(view)} {columns}")

    def define(self, definition: Definition) -> Definition:
        with self._transaction():
            row = self._connection.execute(
                "SELECT definition FROM definitions WHERE view = ?", (definition.key,)
            ).fetchone()
            merged = definition
            if row is not None:
                merged = definition.merged_into(Definition.from_json(row[0]))
            self._connection.execute(
                "INSERT OR REPLACE INTO definitions VALUES (?, ?)", (merged.key, merged.to_json())
            )
            self._create_table(merged.key)
        return merged

    def put(self, view: str, values: Sequence[tuple[bytes, bytes]], ttl: int | None) -> int:
        before = self._connection.total_changes
        with self._transaction():
            self._connection.executemany(
                f"INSERT INTO {_table(view)} VALUES (?, ?) ON CONFLICT (entity) DO UPDATE SET value = "
                "excluded.value "
                f"WHERE substr(excluded.value, 1, {HEADER.size}) > substr(value, 1, {HEADER.size})",
                sorted(values),  # in the order of the table's pages
            )
        return self._connection.total_changes - before

    def withdraw(self, view: str, withdrawals: Sequence[Withdrawal], ttl: int | None) -> int:
        before = self._connection.total_changes
        of_row = (
            f"WHERE entity = ? AND substr(value, 1, {TIMES.size}) = ? AND substr(value, {TIMES.size + 1}, "
            "4) < ?"
        )
        with self._transaction():
            for row in withdrawals:
                (marker,) = self._connection.execute(
                    "SELECT gone FROM deletions WHERE view = ? AND entity = ?", (view, row.key)
                ).fetchone() or (None,)
                value = unless_deleted(row.value, marker)
                place = (row.key, row.times, row.generation.to_bytes(4, "big"))
                if value is None:
                    self._connection.execute(f"DELETE FROM {_table(view)} {of_row}", place)
                else:
                    self._connection.execute(f"UPDATE {_table(view)} SET value = ? {of_row}", (value, *place))
        return self._connection.total_changes - before

    def values_of(
        self, view: str, first: int, end: int, generation: int
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        query = f"""
            SELECT entity, substr(value, 1, {HEADER.size}) FROM {_table(view)}
            WHERE value >= ? AND value < ? AND substr(value, {TIMES.size + 1}, 4) < ?"""
        bounds = (TIMES.pack(first + OFFSET, 0), TIMES.pack(end + OFFSET, 0), generation.to_bytes(4, "big"))
        with self._faults():
            rows = self._connection.execute(query, bounds)
            while some := rows.fetchmany(_AT_ONCE):
                yield some

    def has(self, view: str) -> bool:
        with self._faults():
            return (
                self._connection.execute("SELECT 1 FROM definitions WHERE view = ?", (view,)).fetchone()
                is not None
            )

    def settled_generations(self, view: str) -> dict[date, int]:
        with self._faults():
            rows = self._connection.execute(
                "SELECT day, generation FROM settled WHERE view = ?", (view,)
            ).fetchall()
        return {date.fromisoformat(day): generation for day, generation in rows}

    def settle(self, view: str, generations: Mapping[date, int]) -> None:
        with self._transaction():
            self._connection.executemany(
                "INSERT INTO settled VALUES (?, ?, ?) "
                "ON CONFLICT (view, day) DO UPDATE SET generation = max(generation, excluded.generation)",
                [(view, day.isoformat(), generation) for day, generation in generations.items()],
            )

    def delete(self, view: str, key: bytes, deleted_at: int, ttl: int | None) -> bool:
        self._connection.execute("PRAGMA secure_delete = on")  # so that no byte of it stays in the file
        with self._transaction():
            (value,) = self._connection.execute(
                f"SELECT value FROM {_table(view)} WHERE entity = ?", (key,)
            ).fetchone() or (None,)
            gone = deleted_value(value, deleted_at)
            self._connection.execute(f"INSERT OR REPLACE INTO {_table(view)} VALUES (?, ?)", (key, gone))
            self._connection.execute("INSERT OR REPLACE INTO deletions VALUES (?, ?, ?)", (view, key, gone))
        with self._faults():
            # Nor does it stay in the log, once nobody reads the state before.
            self._connection.execute("PRAGMA wal_checkpoint(truncate)").fetchall()
        return value is not None and count_of(value) > 0

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._faults():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            kind: type[HalvingError] = StoreError
            if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                kind = StoreUnavailable
            raise kind(f"cannot write the online store {self._path}: {error}") from error


def _table(view: str) -> str:
    return identifier(table_of(view))

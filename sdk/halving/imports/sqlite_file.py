"""Another tool's SQLite database, read without writing to it, also while the tool works on it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from halving.imports.foreign_run import SourceUnreadable

_ROWS = 10_000
_ALONE = "mode=ro&immutable=1"
_NO_PLACE = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY_DIRECTORY})  # for files beside it


class SqliteFile:
    """A SQLite database of another tool.

    Each query opens it anew and closes it before it returns rows, so that nobody who writes to it waits for
    the reader.

    Args:
        tool: its name, with ``'s``, for errors.
    """

    def __init__(self, path: Path, tool: str) -> None:
        self.path = path
        self._tool = tool

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Run a query and return its rows.

        Raises:
            SourceUnreadable: it is no database of the tool's.
        """
        try:
            return self._query("mode=ro", query, values)
        except sqlite3.Error as error:
            raise SourceUnreadable(
                f"{self.path} is not a database of {self._tool} that can be read: {error}"
            ) from None

    def columns(self, table: str) -> frozenset[str]:
        """The names of a table's columns; none where there is no such table."""
        return frozenset(row[0] for row in self.rows("select name from pragma_table_info(?)", table))

    def after(self, table: str, columns: str, where: str, value: Any, first: int, last: int) -> Iterator[Any]:
        """The rows of a table whose number (``rowid``) is from ``first`` to ``last``, in that order.

        Each begins with its number, followed by ``columns``.
        """
        # Only the rowid is used: with an index for `where` all of its rows would be sorted for each part.
        query = (
            f"select rowid, {columns} from {table} not indexed where rowid between ? and ? and {where} "
            f"order by rowid limit {_ROWS}"
        )
        while rows := self.rows(query, first, last, value):
            yield from rows
            first = rows[-1][0] + 1

    def _query(self, options: str, query: str, values: tuple[Any, ...]) -> list[Any]:
        try:
            with closing(
                sqlite3.connect(f"file:{quote(str(self.path))}?{options}", uri=True, timeout=60.0)
            ) as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:
            # Reading a database in WAL mode needs files beside it, which cannot be made in a folder that is
            # read-only. Where there are none, nobody writes to it, and the database's file has everything.
            if (
                getattr(error, "sqlite_errorcode", 0) not in _NO_PLACE
                or options == _ALONE
                or Path(f"{self.path}-wal").exists()
            ):
                raise
            return self._query(_ALONE, query, values)

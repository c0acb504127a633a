"""A tiny writer of trackio's databases, in the tables that its versions have had."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from tests.sdk.imports.copies import points

STARTED = 1_700_000_000
_RUN = {"with ids": "run_id text not null, ", "without ids": ""}


def at(seconds: float) -> str:
    """A time after the start, as trackio writes it."""
    return datetime.fromtimestamp(STARTED + seconds, UTC).isoformat()


class Database:
    """A project's database; ``kind`` is ``with ids`` or, as before trackio 0.24, ``without ids``.

    Args:
        tables: what there is beside ``metrics``, which the first version had alone.
    """

    def __init__(
        self, path: Path, kind: str = "with ids", tables: tuple[str, ...] = ("configs", "system_metrics")
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._ids = kind == "with ids"
        run = _RUN[kind]
        row = f"id integer primary key autoincrement, {run}timestamp text not null, run_name text not null"
        self.do(f"create table if not exists metrics ({row}, step integer not null, metrics text not null)")
        if "system_metrics" in tables:
            self.do(f"create table if not exists system_metrics ({row}, metrics text not null)")
        if "configs" in tables:
            self.do(
                f"create table if not exists configs (id integer primary key, {run}run_name text, config "
                "text, created_at text)"
            )

    def do(self, statement: str, *values: Any) -> Self:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(statement, values)
        return self

    def log(
        self, run: str, step: Any, values: Any, *, id: str | None = None, time: str | None = None
    ) -> Self:
        """A row of metrics; ``values`` are bytes where they are to be written as they are."""
        return self._row(
            "metrics", run, id, timestamp=at(0) if time is None else time, step=step, metrics=values
        )

    def log_system(self, run: str, seconds: float, values: Any, *, id: str | None = None) -> Self:
        return self._row("system_metrics", run, id, timestamp=at(seconds), metrics=values)

    def configure(self, run: str, config: Any, *, id: str | None = None) -> Self:
        return self._row("configs", run, id, config=config, created_at=at(0))

    def _row(self, table: str, run: str, id: str | None, **fields: Any) -> Self:
        cells = dict(fields)
        for name in cells.keys() & {"metrics", "config"}:
            if not isinstance(cells[name], bytes):
                cells[name] = json.dumps(cells[name]).encode()
        cells["run_name"] = run
        if self._ids:
            cells["run_id"] = id or f"id of {run}"
        return self.do(
            f"insert into {table} ({', '.join(cells)}) values ({', '.join('?' * len(cells))})",
            *cells.values(),
        )


def values(root: str) -> list[tuple[str, int, float]]:
    return [(key, step, value) for _, key, step, value, _ in points(root)]


def record_of(root: str) -> dict[str, Any]:
    """The only run's record."""
    (path,) = Path(root).glob("runs/*/*/record.json")
    record: dict[str, Any] = json.loads(path.read_text())
    return record

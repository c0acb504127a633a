"""trackio's folder, with a SQLite database ``PROJECT.db`` for each project and a folder ``media``.

trackio adds columns and tables over time, so each database is asked for those that it has.
"""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from halving.errors import HalvingError, InvalidInput
from halving.identifiers import sanitize_name
from halving.imports.foreign_run import (
    ForeignRun,
    Piece,
    PieceBuilder,
    Position,
    Skipped,
    SourceUnreadable,
    iso,
    run_name,
)
from halving.imports.reading import Unreadable, files_below, is_left_behind, readable, reading
from halving.imports.sqlite_file import SqliteFile
from halving.imports.step_values import NUMBERS, LogPosition, parse_json
from halving.imports.trackio_values import TrackioValues
from halving.query.liveness import RECENT_SECONDS

_ACCEPTED = "give trackio's folder or one of its databases (PROJECT.db)"
# What trackio adds to a config, and the tag that it becomes here.
_OWN = {"_Username": "user", "_Group": "group", "_Created": None}
_TABLES = ("metrics", "system_metrics")
_LEFT_OUT = {"alerts": "alerts", "traces": "traces", "artifact_versions": "versions of artifacts"}


class _Rows(NamedTuple):
    """A run's rows in a table: the first row's run name, and the first and last row's number and time."""

    name: str
    first: int
    began: str
    last: int
    ended: str


class _Project(NamedTuple):
    """A database of trackio.

    Attributes:
        tables: those of ``metrics``, ``system_metrics`` and ``configs`` that it has.
        key: the column that identifies runs: ``run_id``, or ``run_name`` if not all tables have that.
    """

    database: SqliteFile
    tables: frozenset[str]
    key: str

    @property
    def name(self) -> str:
        """The project's name in trackio."""
        return self.database.path.stem


def read_runs(source: str, project: str | None, skipped: Skipped) -> Iterator[ForeignRun | Unreadable]:
    """The runs of all databases in a folder, or of one.

    Args:
        source: a folder, as ``TRACKIO_DIR`` names it, or a database in it.
        project: where they go (default: their project in trackio).

    Raises:
        InvalidInput: nothing is there that trackio wrote.
    """
    top = Path(source).expanduser().resolve()
    paths: list[Path] = []
    if top.is_file():
        paths = [top]
    elif top.is_dir():
        with reading(top):
            paths = sorted(
                path
                for path in top.iterdir()
                if path.suffix == ".db" and path.is_file() and not is_left_behind(path.name)
            )
    if not paths:
        raise InvalidInput(f"source {source!r} is not accepted: {_ACCEPTED}")
    for path in paths:
        try:
            database = _project(path)
            if database is not None:
                yield from _runs(database, project, skipped)
                _count_left_out(database, skipped)
                continue
        except HalvingError as error:
            if top == path:
                raise InvalidInput(f"source {source!r} is not accepted: {error}; {_ACCEPTED}") from None
            yield Unreadable(path.stem, str(error))
            continue
        if top == path:
            raise InvalidInput(f"source {source!r} is not accepted: it has no table metrics; {_ACCEPTED}")
        skipped.add(f"databases without a table metrics, such as {path.name}")
    waiting = [path for path in files_below(paths[0].parent / "inbox") if path.suffix == ".jsonl"]
    if waiting:
        skipped.add(
            "files in trackio's inbox, which its dashboard puts into a database: open it, and import again",
            len(waiting),
        )


def _project(path: Path) -> _Project | None:
    """Open a database of trackio; None if it has no table of metrics (yet).

    Raises:
        SourceUnreadable: it cannot be read, or is of a trackio that had one database for all projects.
    """
    database = SqliteFile(path, "trackio's")
    columns = {table: names for table in (*_TABLES, "configs") if (names := database.columns(table))}
    if "metrics" not in columns:
        return None
    if "project_name" in columns["metrics"]:
        raise SourceUnreadable(
            f"{path} is of a trackio that kept all projects in one database (project_name), which is not "
            "read here"
        )
    key = "run_name"
    if all("run_id" in names for names in columns.values()):
        key = "run_id"
    return _Project(database, frozenset(columns), key)


def _runs(project: _Project, into: str | None, skipped: Skipped) -> Iterator[ForeignRun | Unreadable]:
    runs: dict[str, dict[str, _Rows]] = {}
    for table in _TABLES:
        if table in project.tables:
            for key, *rows in project.database.rows(_ROWS_OF_RUNS.format(table=table, key=project.key)):
                runs.setdefault(key, {})[table] = _Rows(*rows)
    for key, tables in runs.items():
        if "metrics" not in tables and _goes_on(project, tables):
            # The first row of metrics identifies a run.
            skipped.add("runs that have not logged a metric yet")
            continue
        yield readable(
            next(iter(tables.values())).name, partial(_foreign_run, project, key, tables, into, skipped)
        )
    if "configs" in project.tables:
        configs = project.database.rows(f"select distinct {project.key} from configs")
        skipped_configs = len({key for (key,) in configs} - runs.keys())
        if skipped_configs:
            skipped.add("configs of runs that have logged nothing", skipped_configs)


_ROWS_OF_RUNS = """
    select spans.run, a.run_name, a.rowid, a.timestamp, b.rowid, b.timestamp
    from (select {key} as run, min(rowid) as first, max(rowid) as last from {table} group by {key}) as spans
    join {table} as a on a.rowid = spans.first join {table} as b on b.rowid = spans.last order by spans.first
"""


def _foreign_run(
    project: _Project, key: str, tables: Mapping[str, _Rows], into: str | None, skipped: Skipped
) -> ForeignRun:
    # A run is identified by its first row, because trackio gave new ids to the runs that were there
    # before it had some.
    table, own = next(iter(tables.items()))
    config = _config(project, key, skipped)
    began = [time_ms for rows in tables.values() if (time_ms := _milliseconds(rows.began)) is not None]
    started = min([*began, *filter(None, [_milliseconds(config.get("_Created"))])], default=0)
    own_tags = {tag: str(config[field]) for field, tag in _OWN.items() if tag and config.get(field)}
    status: str | None = "finished"
    if _goes_on(project, tables):
        status = None
    return ForeignRun(
        project=into or sanitize_name(project.name, otherwise="trackio"),
        run=run_name(own.name, f"{project.name}\n{table}\n{own.first}\n{own.began}"),
        origin={"tool": "trackio", "run": f"{project.name}/{own.name}", "path": str(project.database.path)},
        params={name: _as_logged(value) for name, value in config.items() if name not in _OWN},
        tags={"name": own.name} | own_tags,
        started=iso(started),
        ended=iso(max((_milliseconds(rows.ended) or started for rows in tables.values()), default=started)),
        status=status,
        pieces=partial(_pieces, project, key, tables, min(began, default=0), skipped),
    )


def _config(project: _Project, key: str, skipped: Skipped) -> dict[str, Any]:
    if "configs" not in project.tables:
        return {}
    rows = project.database.rows(
        f"select config from configs where {project.key} = ? order by rowid desc limit 1", key
    )
    if not rows:
        return {}
    config = parse_json(rows[0][0])
    if isinstance(config, dict):
        return config
    skipped.add("configs that are not JSON")
    return {}


def _as_logged(value: Any) -> Any:
    """Restore a config's value: trackio writes NaN and infinity as texts."""
    if isinstance(value, dict):
        return {name: _as_logged(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_logged(inner) for inner in value]
    if isinstance(value, str):
        return NUMBERS.get(value, value)
    return value


def _goes_on(project: _Project, tables: Mapping[str, _Rows]) -> bool:
    """Whether a run may still go on: it has logged and its file was written just now.

    trackio does not say how a run ended.
    """
    path = project.database.path
    now = time.time()
    journal = Path(f"{path}-wal")
    written = [file.stat().st_mtime for file in (path, journal) if file.exists() and file.stat().st_size]
    logged = max(_milliseconds(rows.ended) or 0 for rows in tables.values()) / 1000
    return now - max(written, default=0) < RECENT_SECONDS and now - logged < RECENT_SECONDS


def _pieces(
    project: _Project, key: str, tables: Mapping[str, _Rows], began: int, skipped: Skipped, position: Position
) -> Iterator[Piece]:
    """Read what a run has after a position, which is ``[0, number of a row]`` for each table.

    Metrics of the machine are given by whole seconds.
    """
    builder = PieceBuilder(skipped, position)
    files = project.database.path.parent / "media"
    for table, rows in tables.items():
        is_system = table == "system_metrics"
        prefix = "system/" if is_system else ""
        columns = "timestamp, metrics, step"
        if is_system:
            columns = "timestamp, metrics, null"
        time_ms = _milliseconds(rows.began) or began
        first = max(rows.first, position.get(table, [0, 0])[1] + 1)
        for number, timestamp, content, step in project.database.after(
            table, columns, f"{project.key} = ?", key, first, rows.last
        ):
            time_ms = _milliseconds(timestamp) or time_ms
            values = parse_json(content)
            if is_system:
                step = max(0, (time_ms - began) // 1000)
            if not isinstance(values, dict):
                skipped.add("rows that are not JSON")
            elif not isinstance(step, int):
                skipped.add("values with a step that is no whole number", len(values))
            else:
                place = LogPosition(f"{table.replace('_', '-')}-{number:012d}", step, time_ms)
                TrackioValues(builder, place, files, skipped).add(values, prefix)
            builder.position[table] = [0, number]
            if builder.full:
                yield builder.take()
    if len(builder):
        yield builder.take()


def _milliseconds(timestamp: Any) -> int | None:
    """Convert a time to ms since 1970; None if it is none.

    One without a time zone, as earlier versions wrote, is taken in this machine's.
    """
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return None


def _count_left_out(project: _Project, skipped: Skipped) -> None:
    for table, reason in _LEFT_OUT.items():
        if project.database.columns(table) and (
            count := project.database.rows(f"select count(*) from {table}")[0][0]
        ):
            skipped.add(reason, count)
    if files := files_below(project.database.path.parent / "media" / project.name / "files"):
        skipped.add("files of a project, which trackio keeps with no run", len(files))

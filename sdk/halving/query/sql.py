"""The store as SQL views: one SELECT at a time, run by DuckDB, which can read the store and nothing else.

- ``metrics``: ``project, run, key, step, wall_time, value``, stitched: at each step the value that the
  highest attempt logged last.
- ``points``: ``project, run, attempt, key, step, wall_time, value``, all that was logged.
- ``runs``: ``project, run, status, started, ended, seconds, attempts, epoch, seed, sweep, trial, git_commit,
  git_dirty, lifecycle, tags, parent, summary``. It has active, archived and deleted runs; the last three
  columns are JSON.
- ``params``: ``project, run, name, value, number``. Nested names are ``optimizer/lr``; ``value`` is the exact
  text, ``number`` the nearest double or null.
- ``media``: ``project, run, key, step, wall_time, attempt, kind, digest, bytes, media_type``.

Only the views that the query names are made, and making them opens no file of points. How many points are
read depends on ``key``, ``run`` and ``step`` in the query's WHERE, so give a key there. Points that retention
has dropped are in no view.
"""

import json
import re
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa

from halving.errors import InvalidInput, StoreError
from halving.metrics.manifest import project_folder, projects_of, run_files, runs_of
from halving.query.curve_table import as_text, is_number
from halving.query.duckdb_paths import PROTOCOL, duckdb_paths
from halving.query.runs import list_names, list_runs, read_all
from halving.query.tail import tail
from halving.store.store import Store

_LISTINGS = 10  # tries while compactions delete the files that were listed
_COLUMNS = {
    "runs": (
        "project run status started ended seconds attempts epoch seed sweep trial git_commit git_dirty "
        "lifecycle tags parent summary"
    ),
    "params": "project run name value number",
    "media": "project run key step wall_time attempt kind digest bytes media_type",
}
_KINDS = {  # of columns that are not text
    **dict.fromkeys(("attempts", "epoch", "seed", "trial", "step", "attempt", "bytes"), pa.int64()),
    **dict.fromkeys(("started", "ended", "wall_time"), pa.timestamp("ms", tz="UTC")),
    **dict.fromkeys(("seconds", "number"), pa.float64()),
    "git_dirty": pa.bool_(),
}
_NO_POINTS = """
    SELECT NULL::VARCHAR AS project, NULL::VARCHAR AS run, NULL::INTEGER AS attempt, NULL::VARCHAR AS key,
        NULL::BIGINT AS step, NULL::TIMESTAMPTZ AS wall_time, NULL::DOUBLE AS value,
        0::BIGINT AS place, 0::BIGINT AS line
    WHERE false"""


def ask(store: Store, query: str) -> pa.Table:
    """Run a query and return its result.

    Raises:
        InvalidInput: it is not one SELECT, or DuckDB does not accept it; the message is DuckDB's.
        StoreError: the store cannot be read.
    """
    for tries_left in reversed(range(_LISTINGS)):
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            # A progress bar on the standard output would be amid the rows.
            connection.execute("SET enable_progress_bar_print = false")
            # A name in the query must never mean one of our variables.
            connection.execute("SET python_enable_replacements = false")
            _check(connection, query)
            try:
                _make_views(connection, store, {word.lower() for word in re.findall(r"\w+", query)})
                _lock(connection, store)
                return connection.sql(query).to_arrow_table()
            except (FileNotFoundError, duckdb.IOException) as error:
                if tries_left and _is_gone(error):
                    continue  # Files were compacted since they were listed.
                raise StoreError(f"cannot read {store.root}: {error}") from error
            except duckdb.Error as error:
                raise InvalidInput(f"the query is not accepted: {error}") from None
    raise AssertionError("unreachable")


def _check(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise InvalidInput(f"the query is not accepted: {error}") from None
    kinds = [statement.type for statement in statements]
    if kinds not in ([duckdb.StatementType.SELECT], [duckdb.StatementType.EXPLAIN]):
        raise InvalidInput(
            f"the query {query!r:.80} is not accepted: give one SELECT; the store is only read"
        )


def _lock(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Restrict the connection to reading the store, so that the query cannot change that."""
    folder = store.path("")
    if store.folder is None:
        folder = f"{PROTOCOL}://{folder}"
    connection.execute(f"SET allowed_directories = [{_text(folder.rstrip('/') + '/')}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _is_gone(error: Exception) -> bool:
    return (
        isinstance(error, FileNotFoundError) or "No such file" in str(error) or "No files found" in str(error)
    )


def _make_views(connection: duckdb.DuckDBPyConnection, store: Store, words: set[str]) -> None:
    if words & {"metrics", "points"}:
        _make_points(connection, store)
    if words & {"runs", "params"}:
        _make_runs(connection, store)
    if "media" in words:
        _make_media(connection, store)


def _make_points(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Make the views of points.

    Among points of equal attempt and step, the one that is last in the order of the run's files (``place``)
    and of the rows in a file (``line``) counts.
    """
    named: list[tuple[str, str, str, int]] = []
    tails = []
    for project in projects_of(store):
        for run in runs_of(store, project):
            files = run_files(store, project, run)
            if files.manifest.full:
                named.append((f"{project_folder(project)}/{files.manifest.full}", project, run, 0))
            named += [(name, project, run, place) for place, name in enumerate(files.segments, 1)]
            unwritten = tail(store, project, run, files)
            if unwritten is not None:
                place = pa.array([len(files.segments) + 1] * len(unwritten), pa.int64())
                tails.append(
                    unwritten.replace_schema_metadata(None)
                    .append_column("project", pa.array([project] * len(unwritten), pa.string()))
                    .append_column("place", place)
                    .append_column("line", pa.array(range(len(unwritten)), pa.int64()))
                )
    parts = [_NO_POINTS]
    if named:
        paths = duckdb_paths(connection, store, [name for name, *_ in named])
        listing = {"filename": paths, "project": [row[1] for row in named], "run": [row[2] for row in named]}
        connection.register(
            "_listing", pa.table({**listing, "place": pa.array([row[3] for row in named], pa.int64())})
        )
        parts.append(f"""
    SELECT l.project, l.run, f.attempt, f.key, f.step, f.wall_time, f.value,
        l.place, f.file_row_number AS line
    FROM read_parquet(
        [{", ".join(map(_text, paths))}],
        hive_partitioning = false, filename = true, file_row_number = true
    ) f
    JOIN _listing l ON f.filename = l.filename""")
    if tails:
        connection.register(
            "_tail",
            pa.concat_tables([part.unify_dictionaries() for part in tails], promote_options="permissive"),
        )
        parts.append(
            "SELECT project, run::VARCHAR, attempt, key::VARCHAR, step, wall_time, value, place, line FROM "
            "_tail"
        )
    connection.execute(f"CREATE VIEW _points AS {' UNION ALL '.join(parts)}")
    connection.execute(
        "CREATE VIEW points AS SELECT project, run, attempt, key, step, wall_time, value FROM _points"
    )
    connection.execute(
        """CREATE VIEW metrics AS SELECT project, run, key, step, wall_time, value FROM _points
        QUALIFY row_number() OVER (
            PARTITION BY project, run, key, step ORDER BY attempt DESC, place DESC, line DESC
        ) = 1"""
    )


def _make_runs(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    runs: list[dict[str, Any]] = []
    params: list[dict[str, Any]] = []
    for info in list_runs(store):
        git = info.provenance.get("git") or {}
        newest = info.attempts[-1]
        runs.append(
            {
                "project": info.project,
                "run": info.run,
                "status": info.status,
                "started": _parse_time(info.started),
                "ended": _parse_time(newest.ended),
                "seconds": info.seconds,
                "attempts": len(info.attempts),
                "epoch": newest.epoch,
                "seed": info.seed,
                "sweep": info.parent.get("sweep"),
                "trial": info.parent.get("trial"),
                "git_commit": git.get("commit"),
                "git_dirty": git.get("dirty"),
                "lifecycle": info.lifecycle,
                **{
                    name: json.dumps(getattr(info, name), sort_keys=True)
                    for name in ("tags", "parent", "summary")
                },
            }
        )
        for name, value in info.flat_params.items():
            number = None
            if is_number(value) and not (isinstance(value, int) and abs(value) >= 2**1023):
                number = float(value)
            params.append(
                {
                    "project": info.project,
                    "run": info.run,
                    "name": name,
                    "value": as_text(value),
                    "number": number,
                }
            )
    _register(connection, "runs", runs)
    _register(connection, "params", params)


def _make_media(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    rows = [
        {**file, "project": project, "run": run, "wall_time": _parse_time(file.get("wall_time"))}
        for project, run in list_names(store)
        for file in read_all(store, f"runs/project={project}/{run}/media")
    ]
    _register(connection, "media", rows)


def _register(connection: duckdb.DuckDBPyConnection, view: str, rows: list[dict[str, Any]]) -> None:
    """Make a view of rows with the columns of ``_COLUMNS``; a column that a row lacks is null."""
    schema = pa.schema([(name, _KINDS.get(name, pa.string())) for name in _COLUMNS[view].split()])
    connection.register(view, pa.Table.from_pylist(rows, schema=schema))


def _parse_time(written: str | None) -> datetime | None:
    return datetime.fromisoformat(written) if written else None


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

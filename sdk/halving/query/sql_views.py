"""The views of a store's runs and points, made in a connection to DuckDB.

What each view has is described in :mod:`halving.query.sql`, which alone knows DuckDB.
"""

import json
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from halving.errors import Damaged, NotFound
from halving.metrics.manifest import project_folder, projects_of, run_files, runs_of
from halving.query.curve_table import as_text, is_number
from halving.query.duckdb_paths import duckdb_paths
from halving.query.runs import RunInfo, in_threads, list_names, list_runs, read_all, read_run
from halving.query.tail import tail
from halving.records.redaction import HIDDEN, is_secret_name, text_without_secrets
from halving.store.store import Store

VIEWS = ("metrics", "points", "runs", "params", "media")
_AT_ONCE = 256  # runs whose records are read between two looks at the clock
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


class TookTooLong(Exception):
    """The deadline has passed while views were made."""


def make_views(
    connection: Any,
    store: Store,
    words: set[str],
    projects: Collection[str] | None = None,
    deadline: float | None = None,
) -> list[str]:
    """Make the views that words name, of some projects; returns the paths of the files that they read."""
    paths: list[str] = []
    if words & {"metrics", "points"}:
        paths = _make_points(connection, store, projects, deadline)
    if words & {"runs", "params"}:
        _make_runs(connection, store, projects, deadline)
    if "media" in words:
        _make_media(connection, store, projects, deadline)
    return paths


def _sees(projects: Collection[str] | None, project: str) -> bool:
    return projects is None or project in projects


def _check_time(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise TookTooLong


def _make_points(
    connection: Any,
    store: Store,
    projects: Collection[str] | None,
    deadline: float | None,
) -> list[str]:
    """Make the views of points; returns the paths of the files that they read.

    Among points of equal attempt and step, the one that is last in the order of the run's files (``place``)
    and of the rows in a file (``line``) counts.
    """
    named: list[tuple[str, str, str, int]] = []
    tails = []
    paths: list[str] = []
    for project in projects_of(store):
        if not _sees(projects, project):
            continue
        for run in runs_of(store, project):
            _check_time(deadline)
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
        paths += duckdb_paths(connection, store, [name for name, *_ in named])
        listing = {"filename": paths, "project": [row[1] for row in named], "run": [row[2] for row in named]}
        connection.register(
            "_listing", pa.table({**listing, "place": pa.array([row[3] for row in named], pa.int64())})
        )
        parts.append(f"""
    SELECT l.project, l.run, f.attempt, f.key, f.step, f.wall_time, f.value,
        l.place, f.file_row_number AS line
    FROM read_parquet(
        [{", ".join(map(quoted, paths))}],
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
    return paths


def _make_runs(
    connection: Any,
    store: Store,
    projects: Collection[str] | None,
    deadline: float | None,
) -> None:
    runs: list[dict[str, Any]] = []
    params: list[dict[str, Any]] = []
    hides = deadline is not None  # from whoever asks confined
    for info in _infos_of(store, projects, deadline):
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
                    name: json.dumps(_without_secrets(getattr(info, name), hides), sort_keys=True)
                    for name in ("tags", "parent", "summary")
                },
            }
        )
        for name, value in _without_secrets(info.flat_params, hides).items():
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


def _without_secrets(values: dict[str, Any], hides: bool) -> dict[str, Any]:
    """The values, without texts that are secrets by their names or look like one, where that is wanted."""
    if not hides:
        return values
    safe = {}
    for name, value in values.items():
        safe[name] = value
        if isinstance(value, str):
            safe[name] = text_without_secrets(value)
            if is_secret_name(name.rpartition("/")[2]):
                safe[name] = HIDDEN
    return safe


def _infos_of(store: Store, projects: Collection[str] | None, deadline: float | None) -> list[RunInfo]:
    if projects is None and deadline is None:
        return list_runs(store)
    names = [pair for pair in list_names(store) if _sees(projects, pair[0])]
    infos: list[RunInfo] = []
    for place in range(0, len(names), _AT_ONCE):
        _check_time(deadline)
        infos += filter(None, in_threads(partial(_info_or_none, store), names[place : place + _AT_ONCE]))
    return infos


def _info_or_none(store: Store, name: tuple[str, str]) -> RunInfo | None:
    """A run; None if its records are damaged, or not there yet because it only begins."""
    with suppress(NotFound, Damaged):
        return read_run(store, *name)
    return None


def _make_media(
    connection: Any,
    store: Store,
    projects: Collection[str] | None,
    deadline: float | None,
) -> None:
    rows = []
    for project, run in list_names(store):
        _check_time(deadline)
        if _sees(projects, project):
            rows += [
                {**file, "project": project, "run": run, "wall_time": _parse_time(file.get("wall_time"))}
                for file in read_all(store, f"runs/project={project}/{run}/media")
            ]
    _register(connection, "media", rows)


def _register(connection: Any, view: str, rows: list[dict[str, Any]]) -> None:
    """Make a view of rows with the columns of ``_COLUMNS``; a column that a row lacks is null."""
    schema = pa.schema([(name, _KINDS.get(name, pa.string())) for name in _COLUMNS[view].split()])
    connection.register(view, pa.Table.from_pylist(rows, schema=schema))


def _parse_time(written: str | None) -> datetime | None:
    return datetime.fromisoformat(written) if written else None


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

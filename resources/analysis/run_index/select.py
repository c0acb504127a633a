"""Queries of the index: a page of the runs that a filter selects, and their names.

A page takes a few statements, each over the rows of the names that it needs: which runs, how many in all,
then the columns of the page's runs.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from halving.query.run_filter import Field, RunFilter
from resources.analysis.run_index.conditions import Names, Sources, is_among, names_of, order_by, where
from resources.analysis.run_index.exact_numbers import value_of
from resources.analysis.run_index.leading import MAX_LEADING, are_many, leading_of, leading_of_all
from resources.analysis.run_index.reading import IN_PARALLEL, SIDE_BY_SIDE, without
from resources.catalog import ModelVersionRow, RunIndexRow, RunNameRow, RunRow, RunValueRow
from resources.catalog.index_tables import BOOL, NUMBER
from resources.catalog.models import version_of_runs

_RUNS = RunRow.__table__
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = ((datetime(*day, tzinfo=UTC) - _EPOCH).total_seconds() for day in ((1, 1, 1), (9999, 12, 31)))
_COLUMNS = (
    "status",
    "lifecycle",
    "seconds",
    "epoch",
    "attempt",
    "sweep",
    "trial",
    "dataset",
    "snapshot",
    "commit",
    "seed",
)
_OWN_COLUMNS = ("id", "project", "run", "started", "ended", *_COLUMNS)


class IndexState(NamedTuple):
    """The state that all answers of the index depend on.

    Attributes:
        revision: counts the changes of the index.
        refreshed_at: when it was last complete.
        versions: a digest of the registry's versions and stages, which queries join to runs.
    """

    revision: int
    refreshed_at: datetime | None
    versions: str


@dataclass(frozen=True)
class RunPage:
    """Some of the runs that a filter selects.

    Attributes:
        total: the number of all runs that it selects.
        runs: the page's runs as dicts: ``id, project, run, status, lifecycle, started, ended, seconds,
            epoch, attempt, sweep, trial, dataset, snapshot, commit, seed, model, version, stage`` and
            ``values``, which has the columns by the fields' texts. NaN and infinities are floats, times are
            in UTC.
    """

    total: int
    runs: list[dict[str, Any]]


def select_page(
    session: Session,
    chosen: RunFilter,
    *,
    columns: Sequence[Field] = (),
    projects: Collection[str] | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> RunPage:
    """A page of the runs that a filter selects, in its order.

    Args:
        columns: the fields that each run has in ``values``.
        projects: the projects whose runs are given; None for all.
        limit: the number of runs, at most; None for all.
        offset: the number of runs before the page.
    """
    names = names_of(session, [*chosen.fields, *columns])
    ids, total = _select_ids(session, chosen, names, projects, limit, offset)
    if chosen.limit is not None:
        total = min(total, chosen.limit)
    return RunPage(total, _rows(session, ids, columns, names))


def select_names(
    session: Session, chosen: RunFilter, *, projects: Collection[str] | None = None, limit: int | None = None
) -> list[tuple[str, str]]:
    """``(project, run)`` of the runs that a filter selects, in its order."""
    statement = choose(session, chosen, names_of(session, chosen.fields), projects, limit)
    pairs = session.execute(statement.with_only_columns(RunRow.project, RunRow.run))
    return [(project, run) for project, run in pairs]


def select_run(session: Session, project: str, run: str) -> dict[str, Any] | None:
    """One run's row, as a page without columns has it; None if the index does not have the run."""
    run_id = session.scalar(select(_RUNS.c.id).where(_RUNS.c.project == project, _RUNS.c.run == run))
    if run_id is None:
        return None
    return _rows(session, [run_id], [], {})[0]


def values_of(session: Session, project: str, run: str) -> dict[str, dict[str, Any]]:
    """A run's ``params`` (nested ones as ``optimizer/lr``), ``tags`` and ``metrics`` by name.

    A metric has its ``last``, ``min`` and ``max``.
    """
    values: dict[str, dict[str, Any]] = {"params": {}, "metrics": {}, "tags": {}}
    statement = (
        select(RunNameRow.kind, RunNameRow.name, RunValueRow.__table__)
        .join(RunNameRow, RunNameRow.id == RunValueRow.name_id)
        .join(RunRow, RunRow.id == RunValueRow.run_id)
        .where(RunRow.project == project, RunRow.run == run)
        .order_by(RunNameRow.name)
    )
    for row in session.execute(statement):
        value: Any = value_of_row(row.type, row.number, row.text)
        if row.kind == "metrics":
            value = {"last": value, "min": row.min, "max": row.max}
        values[row.kind][row.name] = value
    return values


def choose(
    session: Session,
    chosen: RunFilter,
    names: Names,
    projects: Collection[str] | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> Select[Any]:
    """The statement for the ids of the runs that a filter selects, in its order.

    The filter's own limit bounds ``limit``.
    """
    sources = Sources(session, names)
    conditions = where(chosen, projects, sources)
    order = order_by(chosen.order, sources)
    statement = sources.join(select(_RUNS.c.id)).where(*conditions).order_by(*order)
    if chosen.limit is not None:
        left = max(chosen.limit - offset, 0)
        if limit is None or limit > left:
            limit = left
    if limit is not None:
        statement = statement.limit(limit)
    if offset:
        statement = statement.offset(offset)
    return statement


def _select_ids(
    session: Session,
    chosen: RunFilter,
    names: Names,
    projects: Collection[str] | None,
    limit: int | None,
    offset: int,
) -> tuple[list[int], int]:
    """The ids of a page's runs, and the number of all runs that the filter selects.

    If possible, only the runs with leading values in the first column of the order are ordered in full.
    """
    statement = choose(session, chosen, names, projects, limit, offset)
    many = 0  # 0: the page has no end
    if limit is not None:
        many = offset + limit
    is_postgres = _is_postgres(session)
    # A database's index has the runs in this order. With a condition Postgres may use another index, as it
    # expects few runs where there are many.
    if many and not chosen.order and (chosen.where is None or not is_postgres):
        return list(session.scalars(statement)), _count(session, chosen, names, projects)
    if many and chosen.where is None:
        ids: list[int] = []
        with without(session, IN_PARALLEL):
            few = leading_of_all(session, chosen.order[0], names, many)
            if few is not None:
                ids = list(session.scalars(statement.where(_RUNS.c.id.in_(few))))
        end = many
        if chosen.limit is not None:
            end = min(chosen.limit, many)
        if len(ids) == end - offset:
            return ids, _count(session, chosen, names, projects)
    is_wide = not is_postgres or are_many(session, chosen, projects)
    with without(session, SIDE_BY_SIDE if is_wide else ()):
        leading = None
        if is_wide and 0 < many <= MAX_LEADING:
            leading = leading_of(session, chosen, names, projects, many)
        if leading is None:
            # Selects and counts in one pass.
            rows = session.execute(statement.add_columns(func.count().over())).all()
            if not rows:
                return [], _count(session, chosen, names, projects)
            return [row[0] for row in rows], rows[0][1]
    total, leading_ids = leading
    is_leading = is_among(_RUNS.c.id, leading_ids, is_postgres=is_postgres)
    return list(session.scalars(statement.where(is_leading))), total


def _is_postgres(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def state_of(session: Session) -> IndexState:
    """The current state of the index."""
    revision, refreshed_at = session.execute(select(RunIndexRow.revision, RunIndexRow.refreshed_at)).one()
    columns = (
        ModelVersionRow.model,
        ModelVersionRow.version,
        ModelVersionRow.stage,
        ModelVersionRow.project,
        ModelVersionRow.run,
    )
    rows = [tuple(row) for row in session.execute(select(*columns).order_by(*columns[:2]))]
    return IndexState(revision, time_of(refreshed_at), sha256(repr(rows).encode()).hexdigest()[:16])


def _count(session: Session, chosen: RunFilter, names: Names, projects: Collection[str] | None) -> int:
    sources = Sources(session, names)
    conditions = where(chosen, projects, sources)
    return session.scalar(sources.join(select(func.count())).where(*conditions)) or 0


def _rows(
    session: Session, ids: Sequence[int], columns: Sequence[Field], names: Names
) -> list[dict[str, Any]]:
    """Runs as plain data, in the order of their ids."""
    if not ids:
        return []
    versions = version_of_runs()
    own_columns = [_RUNS.c[name] for name in _OWN_COLUMNS]
    statement = (
        select(*own_columns, versions.c.model, versions.c.version, versions.c.stage)
        .join_from(
            _RUNS,
            versions,
            (versions.c.run == _RUNS.c.run) & (versions.c.project == _RUNS.c.project),
            isouter=True,
        )
        .where(is_among(_RUNS.c.id, ids, is_postgres=_is_postgres(session)))
    )
    rows = {row.id: row for row in session.connection().execute(statement)}
    values = _values(session, ids, columns, names)
    return [_as_dict(rows[run_id], values.get(run_id, {})) for run_id in ids]


def _values(
    session: Session, ids: Sequence[int], columns: Sequence[Field], names: Names
) -> dict[int, dict[str, Any]]:
    """The values of runs in the columns, by run and text of the field."""
    parts = sorted({field.part for field in columns} - {"last"})
    # The text of a field and the place of its column in the statement, 0 for the value itself.
    by_name: dict[int, list[tuple[str, int]]] = {}
    for field in columns:
        if (name_id := names.get((field.kind, field.name))) is not None:
            place = 0
            if field.part != "last":
                place = 5 + parts.index(field.part)
            by_name.setdefault(name_id, []).append((str(field), place))
    if not by_name:
        return {}
    values = RunValueRow.__table__.c
    statement = select(
        values.run_id,
        values.name_id,
        values.type,
        values.number,
        values.text,
        *(values[part] for part in parts),
    )
    statement = statement.where(
        values.name_id.in_(by_name), is_among(values.run_id, ids, is_postgres=_is_postgres(session))
    )
    values_by_run: dict[int, dict[str, Any]] = {run_id: {} for run_id in ids}
    # By the connection, because the session would go through each of thousands of rows once more.
    for row in session.connection().execute(statement).all():
        run_values = values_by_run[row[0]]
        for name, place in by_name[row[1]]:
            value = row[place] if place else value_of_row(row[2], row[3], row[4])
            if value is not None:
                run_values[name] = value
    return values_by_run


def value_of_row(kind: int, number: float | None, text: str | None) -> int | float | str | bool:
    """The value of a row of ``run_values``, by its type."""
    if kind == BOOL:
        return bool(number)
    if kind != NUMBER:
        return str(text)
    if number is None:
        return math.nan
    return value_of(float(number), text)


def _as_dict(row: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{row.project}/{row.run}",
        "project": row.project,
        "run": row.run,
        "started": time_of(row.started),
        "ended": time_of(row.ended),
        **{name: getattr(row, name) for name in _COLUMNS},
        "model": row.model,
        "version": row.version,
        "stage": row.stage,
        "values": values,
    }


def time_of(seconds: float | None) -> datetime | None:
    """A time of the index as a datetime, moved into the calendar if it lies outside.

    So a run with an absurd time does not prevent others from being listed.
    """
    if seconds is None:
        return None
    return _EPOCH + timedelta(seconds=min(max(seconds, _FIRST), _LAST))

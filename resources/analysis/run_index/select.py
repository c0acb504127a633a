"""Asking the index: a page of the runs that a filter chooses, and their names.

A page takes a few statements, each over the rows of the names that it needs: which runs, how many in all,
then the shown runs' columns.
"""

import math
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from halving.query.run_filter import Field, RunFilter
from resources.analysis.run_index.conditions import Names, Sources, is_among, names_of, order_by, where
from resources.analysis.run_index.exact_numbers import value_of
from resources.analysis.run_index.leading import MOST_LEADING, are_many, leading_of, leading_of_all
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
_SHOWN = ("id", "project", "run", "started", "ended", *_COLUMNS)


class IndexState(NamedTuple):
    """What the answers to all questions depend on.

    Attributes:
        revision: counts the changes of the index.
        refreshed_at: when it was last complete.
        versions: a digest of the registry's versions and stages, which are joined to runs when they are asked
            for.
    """

    revision: int
    refreshed_at: datetime | None
    versions: str


@dataclass(frozen=True)
class RunPage:
    """Some of the runs that a filter chooses.

    Attributes:
        total: how many it chooses.
        runs: those asked for, as plain data: ``id, project, run, status, lifecycle, started, ended, seconds,
            epoch, attempt, sweep, trial, dataset, snapshot, commit, seed, model, version, stage`` and
            ``values``, which has what was asked for by the fields' texts. NaN and infinities are floats,
            times are in UTC.
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
    """A page of the runs that a filter chooses, in its order.

    Args:
        columns: what is wanted of each run beside the fields that every run has.
        projects: only runs of these; None is all.
    """
    names = names_of(session, [*chosen.fields, *columns])
    ids, total = _begin(session, chosen, names, projects, limit, offset)
    return RunPage(
        total if chosen.limit is None else min(total, chosen.limit), _rows(session, ids, columns, names)
    )


def select_names(
    session: Session, chosen: RunFilter, *, projects: Collection[str] | None = None, limit: int | None = None
) -> list[tuple[str, str]]:
    """``(project, run)`` of the runs that a filter chooses, in its order."""
    statement = choose(session, chosen, names_of(session, chosen.fields), projects, limit).with_only_columns(
        RunRow.project, RunRow.run
    )
    return [(project, run) for project, run in session.execute(statement)]


def select_run(session: Session, project: str, run: str) -> dict[str, Any] | None:
    """One run's row, as a page has it without columns; None if the index has it not."""
    found = session.scalar(select(_RUNS.c.id).where(_RUNS.c.project == project, _RUNS.c.run == run))
    return None if found is None else _rows(session, [found], [], {})[0]


def values_of(session: Session, project: str, run: str) -> dict[str, dict[str, Any]]:
    """What the index has of a run by name: ``params`` (nested ones as ``optimizer/lr``) and ``tags``, and
    ``metrics``, each with its ``last``, ``min`` and ``max``.
    """
    found: dict[str, dict[str, Any]] = {"params": {}, "metrics": {}, "tags": {}}
    asked = (
        select(RunNameRow.kind, RunNameRow.name, RunValueRow.__table__)
        .join(RunNameRow, RunNameRow.id == RunValueRow.name_id)
        .join(RunRow, RunRow.id == RunValueRow.run_id)
        .where(RunRow.project == project, RunRow.run == run)
        .order_by(RunNameRow.name)
    )
    for row in session.execute(asked):
        value = plain(row.type, row.number, row.text)
        found[row.kind][row.name] = (
            {"last": value, "min": row.min, "max": row.max} if row.kind == "metrics" else value
        )
    return found


def choose(
    session: Session,
    chosen: RunFilter,
    names: Names,
    projects: Collection[str] | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> Select[Any]:
    """The statement for the ids of the runs that a filter chooses, in its order; its own limit bounds
    ``limit``.
    """
    sources = Sources(session, names)
    conditions = where(chosen, projects, sources)
    order = order_by(chosen.order, sources)
    statement = sources.joined(select(_RUNS.c.id)).where(*conditions).order_by(*order)
    if chosen.limit is not None:
        left = max(chosen.limit - offset, 0)
        limit = left if limit is None else min(limit, left)
    statement = statement.limit(limit) if limit is not None else statement
    return statement.offset(offset) if offset else statement


def _begin(
    session: Session,
    chosen: RunFilter,
    names: Names,
    projects: Collection[str] | None,
    limit: int | None,
    offset: int,
) -> tuple[list[int], int]:
    """The runs of a page, and how many there are in all.

    Only the few that reach the value that so many runs reach, in the first column of the order, are ordered
    in full.
    """
    statement = choose(session, chosen, names, projects, limit, offset)
    many = 0 if limit is None else offset + limit
    is_postgres = _is_postgres(session)
    # An index has them in their order. With a condition Postgres may take another, as it expects few runs
    # where there are many.
    if many and not chosen.order and (chosen.where is None or not is_postgres):
        return list(session.scalars(statement)), _count(session, chosen, names, projects)
    if many and chosen.where is None:
        with without(session, IN_PARALLEL) if is_postgres else nullcontext():
            few = leading_of_all(session, chosen.order[0], names, many)
            ids = [] if few is None else list(session.scalars(statement.where(_RUNS.c.id.in_(few))))
        if len(ids) == (many if chosen.limit is None else min(chosen.limit, many)) - offset:
            return ids, _count(session, chosen, names, projects)
    is_wide = not is_postgres or are_many(session, chosen, projects)
    with without(session, SIDE_BY_SIDE) if is_postgres and is_wide else nullcontext():
        leading = (
            leading_of(session, chosen, names, projects, many)
            if is_wide and 0 < many <= MOST_LEADING
            else None
        )
        if leading is None:  # counted in the same pass
            found = session.execute(statement.add_columns(func.count().over())).all()
            return [row[0] for row in found], found[0][1] if found else _count(
                session, chosen, names, projects
            )
    total, those = leading
    return list(session.scalars(statement.where(is_among(_RUNS.c.id, those, is_postgres=is_postgres)))), total


def _is_postgres(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def state_of(session: Session) -> IndexState:
    """What the index is now."""
    revision, refreshed_at = session.execute(select(RunIndexRow.revision, RunIndexRow.refreshed_at)).one()
    shown = (
        ModelVersionRow.model,
        ModelVersionRow.version,
        ModelVersionRow.stage,
        ModelVersionRow.project,
        ModelVersionRow.run,
    )
    rows = [tuple(row) for row in session.execute(select(*shown).order_by(*shown[:2]))]
    return IndexState(revision, moment_of(refreshed_at), sha256(repr(rows).encode()).hexdigest()[:16])


def _count(session: Session, chosen: RunFilter, names: Names, projects: Collection[str] | None) -> int:
    sources = Sources(session, names)
    conditions = where(chosen, projects, sources)
    return session.scalar(sources.joined(select(func.count())).where(*conditions)) or 0


def _rows(
    session: Session, ids: Sequence[int], columns: Sequence[Field], names: Names
) -> list[dict[str, Any]]:
    """Runs as plain data, in the order of their ids."""
    if not ids:
        return []
    versions = version_of_runs()
    asked = (
        select(*(_RUNS.c[name] for name in _SHOWN), versions.c.model, versions.c.version, versions.c.stage)
        .join_from(
            _RUNS,
            versions,
            (versions.c.run == _RUNS.c.run) & (versions.c.project == _RUNS.c.project),
            isouter=True,
        )
        .where(is_among(_RUNS.c.id, ids, is_postgres=_is_postgres(session)))
    )
    found = {row.id: row for row in session.connection().execute(asked)}
    values = _values(session, ids, columns, names)
    return [_as_dict(found[place], values.get(place, {})) for place in ids]


def _values(
    session: Session, ids: Sequence[int], columns: Sequence[Field], names: Names
) -> dict[int, dict[str, Any]]:
    """What runs have of the columns, by run and text of the field."""
    parts = sorted({field.part for field in columns} - {"last"})
    # the text of a field and the place of its column below, 0 for the value itself
    by_name: dict[int, list[tuple[str, int]]] = {}
    for field in columns:
        if (name_id := names.get((field.kind, field.name))) is not None:
            place = 0 if field.part == "last" else 5 + parts.index(field.part)
            by_name.setdefault(name_id, []).append((str(field), place))
    if not by_name:
        return {}
    values = RunValueRow.__table__.c
    asked = select(
        values.run_id,
        values.name_id,
        values.type,
        values.number,
        values.text,
        *(values[part] for part in parts),
    )
    asked = asked.where(
        values.name_id.in_(by_name), is_among(values.run_id, ids, is_postgres=_is_postgres(session))
    )
    found: dict[int, dict[str, Any]] = {place: {} for place in ids}
    # Not by the session, which would go through each row once more: there are thousands.
    for row in session.connection().execute(asked).all():
        own = found[row[0]]
        for name, place in by_name[row[1]]:
            value = row[place] if place else plain(row[2], row[3], row[4])
            if value is not None:
                own[name] = value
    return found


def plain(kind: int, number: float | None, text: str | None) -> int | float | str | bool:
    """The value of a row of ``run_values``, by its type."""
    if kind == NUMBER:
        return math.nan if number is None else value_of(float(number), text)
    return bool(number) if kind == BOOL else str(text)


def _as_dict(row: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{row.project}/{row.run}",
        "project": row.project,
        "run": row.run,
        "started": moment_of(row.started),
        "ended": moment_of(row.ended),
        **{name: getattr(row, name) for name in _COLUMNS},
        "model": row.model,
        "version": row.version,
        "stage": row.stage,
        "values": values,
    }


def moment_of(seconds: float | None) -> datetime | None:
    """A time of the index; where the calendar has no such day, the nearest that it has: no run keeps the
    others from being listed.
    """
    return None if seconds is None else _EPOCH + timedelta(seconds=min(max(seconds, _FIRST), _LAST))

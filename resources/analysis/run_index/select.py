"""Asking the index: a page of the runs that a filter chooses, and their names.

A page takes a few statements, each over the rows of the names that it needs: which runs, how many in all, then the shown runs' columns.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from halving.query.run_filter import Field, RunFilter
from resources.analysis.run_index.conditions import Sources, order_by, truth
from resources.catalog import ModelVersionRow, RunIndexRow, RunNameRow, RunRow, RunValueRow
from resources.catalog.index_tables import BOOL, NUMBER
from resources.catalog.models import version_of_runs

_RUNS = RunRow.__table__
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = ((datetime(*day, tzinfo=UTC) - _EPOCH).total_seconds() for day in ((1, 1, 1), (9999, 12, 31)))
_COLUMNS = ("status", "seconds", "epoch", "attempt", "sweep", "trial", "dataset", "snapshot", "commit", "seed")


class IndexState(NamedTuple):
    """What the answers to all questions depend on.

    Attributes:
        revision: counts the changes of the index.
        refreshed_at: when it was last complete.
        versions: a digest of the registry's versions and stages, which are joined to runs when they are asked for.
    """

    revision: int
    refreshed_at: datetime | None
    versions: str


@dataclass(frozen=True)
class RunPage:
    """Some of the runs that a filter chooses.

    Attributes:
        total: how many it chooses.
        runs: those asked for, as plain data: ``id, project, run, status, started, ended, seconds, epoch, attempt, sweep, trial, dataset,
            snapshot, commit, seed, model, version, stage`` and ``values``, which has what was asked for by the fields' texts. NaN and
            infinities are floats, times are in UTC.
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
    statement = choose(session, chosen, projects, limit, offset)
    if chosen.where is None or not chosen.order:  # the newest are found without looking at all
        ids, total = list(session.scalars(statement)), None
    else:  # counted in the same pass
        found = session.execute(statement.add_columns(func.count().over())).all()
        ids, total = [row[0] for row in found], found[0][1] if found else None
    if total is None:
        total = _count(session, chosen, projects)
    return RunPage(total if chosen.limit is None else min(total, chosen.limit), _rows(session, ids, columns))


def select_names(
    session: Session, chosen: RunFilter, *, projects: Collection[str] | None = None, limit: int | None = None
) -> list[tuple[str, str]]:
    """``(project, run)`` of the runs that a filter chooses, in its order."""
    statement = choose(session, chosen, projects, limit).with_only_columns(RunRow.project, RunRow.run)
    return [(project, run) for project, run in session.execute(statement)]


def select_run(session: Session, project: str, run: str) -> dict[str, Any] | None:
    """One run's row, as a page has it without columns; None if the index has it not."""
    found = session.scalar(select(_RUNS.c.id).where(_RUNS.c.project == project, _RUNS.c.run == run))
    return None if found is None else _rows(session, [found], [])[0]


def values_of(session: Session, project: str, run: str) -> dict[str, dict[str, Any]]:
    """What the index has of a run by name: ``params`` (nested ones as ``optimizer/lr``) and ``tags``, and ``metrics``, each with its
    ``last``, ``min`` and ``max``."""
    found: dict[str, dict[str, Any]] = {"params": {}, "metrics": {}, "tags": {}}
    asked = (
        select(RunNameRow.kind, RunNameRow.name, RunValueRow.__table__)
        .join(RunNameRow, RunNameRow.id == RunValueRow.name_id)
        .join(RunRow, RunRow.id == RunValueRow.run_id)
        .where(RunRow.project == project, RunRow.run == run)
        .order_by(RunNameRow.name)
    )
    for row in session.execute(asked):
        value = plain(row)
        found[row.kind][row.name] = {"last": value, "min": row.min, "max": row.max} if row.kind == "metrics" else value
    return found


def choose(
    session: Session, chosen: RunFilter, projects: Collection[str] | None = None, limit: int | None = None, offset: int = 0
) -> Select[Any]:
    """The statement for the ids of the runs that a filter chooses, in its order; its own limit bounds ``limit``."""
    sources = Sources(session, chosen.fields)
    conditions = where(chosen, projects, sources)
    order = order_by(chosen.order, sources)
    statement = sources.joined(select(_RUNS.c.id)).where(*conditions).order_by(*order)
    if chosen.limit is not None:
        left = max(chosen.limit - offset, 0)
        limit = left if limit is None else min(limit, left)
    statement = statement.limit(limit) if limit is not None else statement
    return statement.offset(offset) if offset else statement


def state_of(session: Session) -> IndexState:
    """What the index is now."""
    revision, refreshed_at = session.execute(select(RunIndexRow.revision, RunIndexRow.refreshed_at)).one()
    shown = (ModelVersionRow.model, ModelVersionRow.version, ModelVersionRow.stage, ModelVersionRow.project, ModelVersionRow.run)
    rows = [tuple(row) for row in session.execute(select(*shown).order_by(*shown[:2]))]
    return IndexState(revision, moment_of(refreshed_at), sha256(repr(rows).encode()).hexdigest()[:16])


def where(chosen: RunFilter, projects: Collection[str] | None, sources: Sources) -> list[Any]:
    """The conditions that choose the runs; to be made before the tables of ``sources`` are joined."""
    found = [] if projects is None else [_RUNS.c.project.in_(sorted(projects))]
    return [*found, truth(chosen.where, sources)] if chosen.where else found


def _count(session: Session, chosen: RunFilter, projects: Collection[str] | None) -> int:
    sources = Sources(session, chosen.fields)
    conditions = where(chosen, projects, sources)
    return session.scalar(sources.joined(select(func.count())).where(*conditions)) or 0


def _rows(session: Session, ids: Sequence[int], columns: Sequence[Field]) -> list[dict[str, Any]]:
    """Runs as plain data, in the order of their ids."""
    if not ids:
        return []
    versions = version_of_runs()
    asked = (
        select(_RUNS, versions.c.model, versions.c.version, versions.c.stage)
        .join_from(_RUNS, versions, (versions.c.run == _RUNS.c.run) & (versions.c.project == _RUNS.c.project), isouter=True)
        .where(_RUNS.c.id.in_(ids))
    )
    found = {row.id: row for row in session.execute(asked)}
    values = _values(session, ids, columns)
    return [_as_dict(found[place], values.get(place, {})) for place in ids]


def _values(session: Session, ids: Sequence[int], columns: Sequence[Field]) -> dict[int, dict[str, Any]]:
    """What runs have of the columns, by run and text of the field."""
    sources = Sources(session, columns)
    by_name: dict[int, list[Field]] = {}
    for field in columns:
        if (name_id := sources.name_id(field)) is not None:
            by_name.setdefault(name_id, []).append(field)
    if not by_name:
        return {}
    found: dict[int, dict[str, Any]] = {}
    for row in session.execute(select(RunValueRow.__table__).where(RunValueRow.name_id.in_(by_name), RunValueRow.run_id.in_(ids))):
        own = found.setdefault(row.run_id, {})
        for field in by_name[row.name_id]:
            value = plain(row) if field.part == "last" else getattr(row, field.part)
            if value is not None:
                own[str(field)] = value
    return found


def plain(row: Any) -> float | str | bool:
    """The value of a row of ``run_values``."""
    if row.type == BOOL:
        return bool(row.number)
    if row.type == NUMBER:
        return float("nan") if row.number is None else float(row.number)
    return str(row.text)


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
    """A time of the index; where the calendar has no such day, the nearest that it has: no run keeps the others from being listed."""
    return None if seconds is None else _EPOCH + timedelta(seconds=min(max(seconds, _FIRST), _LAST))

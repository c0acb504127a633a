"""The first runs of a long answer, without ordering all of it.

The first step finds the value that the wanted number of runs reach in the first column of the order. Only the
few runs that reach it, ties included, are then ordered by all columns.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from halving.query.run_filter import And, Between, Comparison, Condition, Field, In, Like, Order, RunFilter
from resources.analysis.run_index.conditions import Clause, Names, Sources, leading_key, truth, where
from resources.catalog import RunRow, RunValueRow

_RUNS = RunRow.__table__
_MANY = 5_000  # With fewer runs, looking up their values in an index is faster than scanning all runs.
MAX_LEADING = 5_000
"""The number of runs up to which this is done.

For more it is faster to order all. Also, each run is a parameter of a statement, and databases limit those.
"""
_MAX_TIES = 1_000


def are_many(session: Session, chosen: RunFilter, projects: Collection[str] | None) -> bool:
    """Whether many runs meet the filter's conditions on fields of runs; its other conditions are ignored."""
    own = tuple(
        part for part in _parts(chosen) if all(field.kind == "run" for field in RunFilter(part).fields)
    )
    of_runs = RunFilter(None)
    if own:
        of_runs = RunFilter(And(own))
    sources = Sources(session, {})
    conditions = where(of_runs, projects, sources)
    some = sources.join(select(_RUNS.c.id)).where(*conditions).limit(_MANY).subquery()
    return session.scalar(select(func.count()).select_from(some)) == _MANY


def leading_of(
    session: Session, chosen: RunFilter, names: Names, projects: Collection[str] | None, many: int
) -> tuple[int, list[int]] | None:
    """The number of runs that a filter selects, and the ids of the first ones, at least ``many``.

    None if these can only be found by ordering all runs in full.
    """
    sources = Sources(session, names)
    conditions = where(chosen, projects, sources)
    sources.end_conditions()
    leading = leading_key(chosen.order, sources)
    if leading is None:
        return None
    column, descends = leading
    first = None
    if projects is None and column is not _RUNS.c.started:
        first = _needed_value(chosen, names)
    key = column.label("key")
    if first is not None and chosen.where is not None:
        every = sources.of_values(first, key).where(truth(chosen.where, sources)).cte("chosen")
    else:
        every = sources.join(select(_RUNS.c.id, key)).where(*conditions).cte("chosen")
    total = select(func.count().label("total")).select_from(every).subquery("counted")
    last = _last(every.c.key, many, descends=descends).scalar_subquery()
    leads = _reaches(every.c.key, last, descends=descends)
    statement = select(total.c.total, every.c.id).outerjoin_from(total, every, leads)
    rows = session.execute(statement.limit(many + _MAX_TIES)).all()
    if (rows[0].total and rows[0].id is None) or len(rows) == many + _MAX_TIES:
        return None  # too few runs have a value there, or too many have the same
    return rows[0].total, [row.id for row in rows if row.id is not None]


def _parts(chosen: RunFilter) -> Sequence[Condition]:
    """The conditions that must all be true."""
    if isinstance(chosen.where, And):
        return chosen.where.parts
    if chosen.where:
        return [chosen.where]
    return []


def _needed_value(chosen: RunFilter, names: Names) -> Field | None:
    """A name of which every selected run has a value.

    None if there may be none, or if a condition is on fields of runs themselves.
    """
    if any(field.kind == "run" for field in chosen.fields):
        return None
    needed = (part.field for part in _parts(chosen) if isinstance(part, (Comparison, Between, In, Like)))
    return next((field for field in needed if (field.kind, field.name) in names), None)


def leading_of_all(session: Session, first: Order, names: Names, many: int) -> Select[tuple[int]] | None:
    """Select the ids of the runs that have the leading values of a metric, among all runs.

    None where ``first`` is no metric, or fewer than ``many`` runs have it. Only values are read, which lie
    together, and no rows of runs.
    """
    if first.field.kind != "metrics":
        return None
    name_id = names.get(("metrics", first.field.name))
    if name_id is None:
        return None
    values = RunValueRow.__table__.c
    value = values.number
    if first.field.part != "last":
        value = values[first.field.part]
    last = session.scalar(_last(value, many, descends=first.descending).where(values.name_id == name_id))
    if last is None:
        return None
    leads = _reaches(value, last, descends=first.descending)
    return select(values.run_id).where(values.name_id == name_id, leads)


def _reaches(key: Clause, last: Any, *, descends: bool) -> Clause:
    """SQL for: the key is the last one or comes before it."""
    if descends:
        return key >= last
    return key <= last


def _last(key: Clause, many: int, *, descends: bool) -> Select[Any]:
    """Select the last key of a table's first ``many`` rows; nothing if fewer rows have a key."""
    order = key
    if descends:
        order = key.desc()
    return select(key).where(key.is_not(None)).order_by(order).offset(many - 1).limit(1)

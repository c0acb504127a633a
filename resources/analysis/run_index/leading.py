"""The first runs of a long answer, without ordering all of it.

First it is determined which value the wanted number of runs reach in the column that the order begins with.
Only the few runs that reach it, ties included, are then ordered by all columns.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from halving.query.run_filter import And, Between, Comparison, Condition, Field, In, Like, Order, RunFilter
from resources.analysis.run_index.conditions import Clause, Names, Sources, leading_key, truth, where
from resources.catalog import RunRow, RunValueRow

_RUNS = RunRow.__table__
_MANY = 5_000  # runs; the values of fewer are looked up in an index sooner than all runs are scanned
MAX_LEADING = 5_000
"""Runs that are ordered this way.

For more it is quicker to order all. Each is a parameter of a statement as well, and databases limit those.
"""
_MAX_TIES = 1_000


def are_many(session: Session, chosen: RunFilter, projects: Collection[str] | None) -> bool:
    """Whether many runs satisfy the conditions on runs themselves, leaving those on their values aside."""
    own = tuple(
        part for part in _parts(chosen) if all(field.kind == "run" for field in RunFilter(part).fields)
    )
    of_runs = RunFilter(And(own) if own else None)
    sources = Sources(session, {})
    conditions = where(of_runs, projects, sources)
    some = sources.join(select(_RUNS.c.id)).where(*conditions).limit(_MANY).subquery()
    return session.scalar(select(func.count()).select_from(some)) == _MANY


def leading_of(
    session: Session, chosen: RunFilter, names: Names, projects: Collection[str] | None, many: int
) -> tuple[int, list[int]] | None:
    """How many runs a filter selects, and the ids of the first ones of its order, at least ``many``.

    None where only ordering all of them in full can tell.
    """
    sources = Sources(session, names)
    conditions = where(chosen, projects, sources)
    sources.end_conditions()
    leading = leading_key(chosen.order, sources)
    if leading is None:
        return None
    column, descends = leading
    first = _needed_value(chosen, names) if projects is None and column is not _RUNS.c.started else None
    key = column.label("key")
    if first is not None and chosen.where is not None:
        every = sources.of_values(first, key).where(truth(chosen.where, sources)).cte("chosen")
    else:
        every = sources.join(select(_RUNS.c.id, key)).where(*conditions).cte("chosen")
    total = select(func.count().label("total")).select_from(every).subquery("counted")
    last = _last(every.c.key, many, descends=descends).scalar_subquery()
    leads = every.c.key >= last if descends else every.c.key <= last
    statement = select(total.c.total, every.c.id).outerjoin_from(total, every, leads)
    rows = session.execute(statement.limit(many + _MAX_TIES)).all()
    if (rows[0].total and rows[0].id is None) or len(rows) == many + _MAX_TIES:
        return None  # too few runs have a value there, or too many have the same
    return rows[0].total, [row.id for row in rows if row.id is not None]


def _parts(chosen: RunFilter) -> Sequence[Condition]:
    """The conditions that must all be true."""
    if isinstance(chosen.where, And):
        return chosen.where.parts
    return [chosen.where] if chosen.where else []


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
    name_id = names.get(("metrics", first.field.name)) if first.field.kind == "metrics" else None
    if name_id is None:
        return None
    values = RunValueRow.__table__.c
    value = values.number if first.field.part == "last" else values[first.field.part]
    last = session.scalar(_last(value, many, descends=first.descending).where(values.name_id == name_id))
    if last is None:
        return None
    leads = value >= last if first.descending else value <= last
    return select(values.run_id).where(values.name_id == name_id, leads)


def _last(key: Clause, many: int, *, descends: bool) -> Select[Any]:
    """Select the last key of a table's first ``many`` rows; nothing where fewer rows have a key."""
    return (
        select(key)
        .where(key.is_not(None))
        .order_by(key.desc() if descends else key)
        .offset(many - 1)
        .limit(1)
    )

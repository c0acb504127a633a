"""The runs that a long answer begins with, found without ordering all of it in full.

It is first found out which value so many runs reach, in the column that the order begins with. Only the few
that reach it, ties among them, are then ordered by all columns.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from halving.query.run_filter import And, Between, Comparison, Condition, Field, In, Like, Order, RunFilter
from resources.analysis.run_index.conditions import Clause, Names, Sources, leading_key, truth, where
from resources.catalog import RunRow, RunValueRow

_RUNS = RunRow.__table__
_MANY = 5_000  # runs; an index finds the values of fewer sooner than all runs are looked through
MOST_LEADING = 5_000
"""Of more it is quicker to order all; and each is a parameter of a statement, of which no database takes more
than it has room for.
"""
_MOST_TIES = 1_000


def are_many(session: Session, chosen: RunFilter, projects: Collection[str] | None) -> bool:
    """Whether many runs are left by what is asked of runs themselves, whatever is asked of their values."""
    own = tuple(
        part for part in _parts(chosen) if all(field.kind == "run" for field in RunFilter(part).fields)
    )
    of_runs = RunFilter(And(own) if own else None)
    sources = Sources(session, {})
    conditions = where(of_runs, projects, sources)
    some = sources.joined(select(_RUNS.c.id)).where(*conditions).limit(_MANY).subquery()
    return session.scalar(select(func.count()).select_from(some)) == _MANY


def leading_of(
    session: Session, chosen: RunFilter, names: Names, projects: Collection[str] | None, many: int
) -> tuple[int, list[int]] | None:
    """How many runs a filter chooses, and the ids of those that its order begins with, at least ``many``;
    None where that has to be found out in full.
    """
    sources = Sources(session, names)
    conditions = where(chosen, projects, sources)
    sources.only_shown()
    found = leading_key(chosen.order, sources)
    if found is None:
        return None
    column, descends = found
    first = _needed_value(chosen, names) if projects is None and column is not _RUNS.c.started else None
    if first is not None and chosen.where is not None:
        every = (
            sources.of_values(first, column.label("key")).where(truth(chosen.where, sources)).cte("chosen")
        )
    else:
        every = sources.joined(select(_RUNS.c.id, column.label("key"))).where(*conditions).cte("chosen")
    total = select(func.count().label("total")).select_from(every).subquery("counted")
    last = _last(every.c.key, many, descends=descends).scalar_subquery()
    asked = select(total.c.total, every.c.id).outerjoin_from(
        total, every, every.c.key >= last if descends else every.c.key <= last
    )
    rows = session.execute(asked.limit(many + _MOST_TIES)).all()
    if (rows[0].total and rows[0].id is None) or len(rows) == many + _MOST_TIES:
        return None  # fewer have a value there, or many more the same
    return rows[0].total, [row.id for row in rows if row.id is not None]


def _parts(chosen: RunFilter) -> Sequence[Condition]:
    """What must all be true."""
    return chosen.where.parts if isinstance(chosen.where, And) else [chosen.where] if chosen.where else []


def _needed_value(chosen: RunFilter, names: Names) -> Field | None:
    """A name of which each run that is chosen has a value; None where there may be none, or where something
    is asked of runs themselves.
    """
    if any(field.kind == "run" for field in chosen.fields):
        return None
    needed = (part.field for part in _parts(chosen) if isinstance(part, (Comparison, Between, In, Like)))
    return next((field for field in needed if (field.kind, field.name) in names), None)


def leading_of_all(session: Session, first: Order, names: Names, many: int) -> Select[tuple[int]] | None:
    """The ids of the runs that have the leading values of a metric, of all runs there are; None where
    ``first`` is none or fewer have it.

    The values alone lie together, so no run is looked at.
    """
    name_id = names.get(("metrics", first.field.name)) if first.field.kind == "metrics" else None
    if name_id is None:
        return None
    values = RunValueRow.__table__.c
    value = values.number if first.field.part == "last" else values[first.field.part]
    last = session.scalar(_last(value, many, descends=first.descending).where(values.name_id == name_id))
    if last is None:
        return None
    return select(values.run_id).where(
        values.name_id == name_id, value >= last if first.descending else value <= last
    )


def _last(key: Clause, many: int, *, descends: bool) -> Select[Any]:
    """The key that the leading ``many`` of a table's rows have, or one before it; nothing where fewer have a
    key.
    """
    return (
        select(key)
        .where(key.is_not(None))
        .order_by(key.desc() if descends else key)
        .offset(many - 1)
        .limit(1)
    )

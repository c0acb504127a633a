"""Groups of runs that are equal in some fields, with mean and standard deviation of others."""

import math
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Double, case, cast, func, select
from sqlalchemy.orm import Session

from halving.query.run_filter import Field, RunFilter
from resources.analysis.run_index.conditions import Clause, Names, Operand, Sources, names_of, where
from resources.analysis.run_index.select import choose, moment_of, plain
from resources.catalog import RunRow
from resources.catalog.index_tables import NUMBER, TEXT

_GREATEST = 1e150
"""Values beyond it, infinities too, are left out of means: their squares are no numbers of a database."""


def select_groups(
    session: Session,
    chosen: RunFilter,
    by: Sequence[Field],
    *,
    columns: Sequence[Field] = (),
    projects: Collection[str] | None = None,
    limit: int = 1_000,
) -> list[dict[str, Any]]:
    """The groups of the runs that a filter chooses, the largest first.

    Args:
        by: what the runs of a group are equal in; those without a value make a group too. NaN is a param's
            value, and a metric's is none.
        columns: what to give mean and standard deviation of, as far as runs have finite numbers there.
        projects: only runs of these; None is all.
        limit: how many groups at most.

    Returns:
        ``{"key": {field: value or None}, "count": runs, "values": {field: {"mean", "std", "count"}}}`` of
        each; fields are the texts of ``by`` and ``columns``, ``count`` is how many runs have the value, and
        ``std`` that of a sample, None of fewer than two.
    """
    names = names_of(session, [*chosen.fields, *by, *columns])
    sources = Sources(session, names)
    keys = {f"key{place}": key for place, field in enumerate(by) for key in [_key(sources.operand(field))]}
    parts = {f"{name}_{place}": part for name, key in keys.items() for place, part in enumerate(key)}
    numbers = {
        str(field): number for field in columns if (number := _number(sources.operand(field))) is not None
    }
    means = _means(session, chosen, names, projects, columns)
    sums: list[Clause] = []
    for place, (name, number) in enumerate(numbers.items()):
        # About the mean of all, which is near those of the groups: a sum of squares about zero would lose the
        # digits of what differs.
        part = number - means[name]
        sums += [
            func.count(number).label(f"n{place}"),
            func.sum(part).label(f"sum{place}"),
            func.sum(part * part).label(f"squares{place}"),
        ]
    labelled = [part.label(name) for name, part in parts.items()]
    grouped: Any = select(func.count().label("runs"), *labelled, *sums).group_by(*parts.values())
    grouped = grouped.order_by(
        func.count().desc(), *(part.asc().nulls_last() for part in parts.values())
    ).limit(limit)
    found = []
    for row in session.execute(_of_chosen(session, grouped, chosen, names, projects, sources)).mappings():
        if not row["runs"]:
            # no run has any of the fields, so that there is nothing to group by, and one row whatever is
            # found
            continue
        key = {
            str(field): _plain(field, [row[f"{name}_{place}"] for place in range(len(keys[name]))])
            for name, field in zip(keys, by, strict=True)
        }
        values = {
            name: statistics
            for place, name in enumerate(numbers)
            if (
                statistics := _statistics(
                    row[f"n{place}"], means[name], row[f"sum{place}"], row[f"squares{place}"]
                )
            )
        }
        found.append({"key": key, "count": row["runs"], "values": values})
    return found


def _means(
    session: Session,
    chosen: RunFilter,
    names: Names,
    projects: Collection[str] | None,
    columns: Sequence[Field],
) -> dict[str, float]:
    """The mean of each number over all runs; 0 where there is none."""
    sources = Sources(session, names)
    numbers = {
        str(field): number for field in columns if (number := _number(sources.operand(field))) is not None
    }
    if not numbers:
        return {}
    asked = select(*(func.avg(number) for number in numbers.values()))
    row = session.execute(_of_chosen(session, asked, chosen, names, projects, sources)).one()
    return {name: float(mean or 0.0) for name, mean in zip(numbers, row, strict=True)}


def _of_chosen(
    session: Session,
    statement: Any,
    chosen: RunFilter,
    names: Names,
    projects: Collection[str] | None,
    sources: Sources,
) -> Any:
    if chosen.limit is not None:
        return sources.joined(statement).where(
            RunRow.id.in_(choose(session, chosen, names, projects).correlate(None))
        )
    conditions = where(chosen, projects, sources)  # before the tables are joined: it may ask for more of them
    return sources.joined(statement).where(*conditions)


def _key(operand: Operand | None) -> list[Clause]:
    """What is equal where values are."""
    if operand is None:
        return []
    if operand.type is not None:
        return [operand.type, operand.number, operand.text]
    return [operand.text if TEXT in operand.of_type else operand.number]


def _plain(field: Field, cells: list[Any]) -> Any:
    """The value that a group has in a field."""
    if len(cells) == 3:
        kind, number, text = cells
        return None if kind is None else plain(kind, number, text)
    found = cells[0] if cells else None
    if found is not None and field.type == "time":
        return moment_of(found)
    return found


def _number(operand: Operand | None) -> Clause | None:
    """The value where it is a number that means can be made of."""
    if operand is None or NUMBER not in operand.of_type:
        return None
    number = cast(operand.number, Double) if operand.is_whole else operand.number
    return case((operand.is_of(NUMBER, number.between(-_GREATEST, _GREATEST)), number))


def _statistics(
    count: int, shift: float, total: float | None, squares: float | None
) -> dict[str, Any] | None:
    if not count or total is None or squares is None:
        return None
    variance = max(squares - total * total / count, 0.0) / (count - 1) if count > 1 else None
    return {
        "mean": shift + total / count,
        "std": None if variance is None else math.sqrt(variance),
        "count": count,
    }

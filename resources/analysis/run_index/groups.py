"""Groups of runs that are equal in some fields, with mean and standard deviation of others."""

import math
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Double, case, cast, func, select
from sqlalchemy.orm import Session

from halving.query.run_filter import Field, RunFilter
from resources.analysis.run_index.conditions import Clause, Names, Operand, Sources, names_of, where
from resources.analysis.run_index.select import choose, time_of, value_of_row
from resources.catalog import RunRow
from resources.catalog.index_tables import NUMBER

_GREATEST = 1e150
"""The greatest value that counts in means; a database cannot represent the squares of greater ones."""


def select_groups(
    session: Session,
    chosen: RunFilter,
    by: Sequence[Field],
    *,
    columns: Sequence[Field] = (),
    projects: Collection[str] | None = None,
    limit: int = 1_000,
) -> list[dict[str, Any]]:
    """The groups of the runs that a filter selects, the largest first.

    Args:
        by: the fields in which the runs of a group are equal. Runs without a value form a group too. NaN is
            a value of a param, but not of a metric.
        columns: the fields whose mean and standard deviation are computed, over runs with a finite number.
        projects: the projects whose runs count; None for all.
        limit: the number of groups, at most.

    Returns:
        ``{"key": {field: value or None}, "count": runs, "values": {field: {"mean", "std", "count"}}}`` for
        each group. Fields are the texts of ``by`` and ``columns``. The ``count`` of a value is the number of
        runs that have it; ``std`` is that of a sample, and None for fewer than two runs.
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
        # Sums are about the mean of all runs, which is near the groups' means. Sums about zero would lose the
        # digits in which the groups differ.
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
    groups = []
    for row in session.execute(_where_chosen(session, grouped, chosen, names, projects, sources)).mappings():
        if not row["runs"]:
            # No run has any of the fields: there is nothing to group by, and SQL gives one row of no runs.
            continue
        key = {
            str(field): _key_value(field, [row[f"{name}_{place}"] for place in range(len(keys[name]))])
            for name, field in zip(keys, by, strict=True)
        }
        values = {}
        for place, name in enumerate(numbers):
            count = row[f"n{place}"]
            if count:
                values[name] = _statistics(count, means[name], row[f"sum{place}"], row[f"squares{place}"])
        groups.append({"key": key, "count": row["runs"], "values": values})
    return groups


def _means(
    session: Session,
    chosen: RunFilter,
    names: Names,
    projects: Collection[str] | None,
    columns: Sequence[Field],
) -> dict[str, float]:
    """The mean of each number over all runs; 0 where no run has it."""
    sources = Sources(session, names)
    numbers = {
        str(field): number for field in columns if (number := _number(sources.operand(field))) is not None
    }
    if not numbers:
        return {}
    averages = select(*(func.avg(number) for number in numbers.values()))
    row = session.execute(_where_chosen(session, averages, chosen, names, projects, sources)).one()
    return {name: float(mean or 0.0) for name, mean in zip(numbers, row, strict=True)}


def _where_chosen(
    session: Session,
    statement: Any,
    chosen: RunFilter,
    names: Names,
    projects: Collection[str] | None,
    sources: Sources,
) -> Any:
    if chosen.limit is not None:
        ids = choose(session, chosen, names, projects).correlate(None)
        return sources.join(statement).where(RunRow.id.in_(ids))
    conditions = where(chosen, projects, sources)  # before the join: conditions may need more tables
    return sources.join(statement).where(*conditions)


def _key(operand: Operand | None) -> list[Clause]:
    """The columns that are equal for equal values, and only for those."""
    if operand is None:
        return []
    if operand.type is not None:
        return [operand.type, operand.number, operand.text]
    return [operand.key]


def _key_value(field: Field, cells: list[Any]) -> Any:
    """The value that a group's runs share in a field."""
    if len(cells) == 3:
        kind, number, text = cells
        if kind is None:
            return None
        return value_of_row(kind, number, text)
    if not cells:
        return None
    if field.type == "time":
        return time_of(cells[0])
    return cells[0]


def _number(operand: Operand | None) -> Clause | None:
    """SQL for the value as a number; null if it cannot be averaged. None if the field is no number."""
    if operand is None or NUMBER not in operand.of_type:
        return None
    number = operand.number
    if operand.is_whole:
        number = cast(number, Double)
    return case((operand.is_of(NUMBER, number.between(-_GREATEST, _GREATEST)), number))


def _statistics(count: int, shift: float, total: float, squares: float) -> dict[str, Any]:
    std = None
    if count > 1:
        std = math.sqrt(max(squares - total * total / count, 0.0) / (count - 1))
    return {"mean": shift + total / count, "std": std, "count": count}

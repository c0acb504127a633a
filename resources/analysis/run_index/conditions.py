"""A filter's conditions as SQL over the index's tables.

A condition is true, false or unknown (:mod:`halving.query.run_filter`). ``not`` is taken to the single
comparisons, each of which has SQL for "it is true" and SQL for "it is false"; where it is unknown neither
holds. So SQL's own third value is never needed, and a database may choose any order of joins.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    FromClause,
    Select,
    and_,
    any_,
    case,
    false,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.orm import Session

from halving.query.run_filter import (
    And,
    Between,
    Comparison,
    Condition,
    Field,
    In,
    InvalidFilter,
    IsNull,
    Like,
    Not,
    Or,
    Order,
    RunFilter,
    Value,
)
from halving.query.runs import seconds_of
from halving.records.amendments import ACTIVE, ARCHIVED, DELETED, REMOVED
from resources.analysis.run_index.exact_numbers import OPERATORS, Clause, compare, compare_whole
from resources.analysis.run_index.write import find_names
from resources.catalog import RunRow, RunValueRow
from resources.catalog.index_tables import BOOL, NUMBER, TEXT
from resources.catalog.models import version_of_runs

MOST_TABLES = 50
"""In a statement; SQLite joins at most 64 tables."""
Names = Mapping[tuple[str, str], int]
"""Ids by kind and name."""
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def names_of(session: Session, fields: Iterable[Field]) -> Names:
    """The ids of those names of fields that the index has; a name that it has not no run has."""
    return find_names(session, {(field.kind, field.name) for field in fields if field.kind != "run"})


@dataclass(frozen=True)
class Operand:
    """A field as SQL: which type its value has, and the value.

    Attributes:
        present: whether the run has a value; NaN is one.
        type: which type the value has; None where it can have but one.
        of_type: by each type that it can have, whether it has that. None where it can have no other: a
            comparison says enough.
        number: null where the value is NaN.
        can_be_nan: whether a number can be that.
        is_time: whether the number is a time, which literals have as text.
        is_whole: whether the number is an integer of 64 bits.
    """

    present: Clause
    type: Clause | None
    of_type: Mapping[int, Clause | None]
    number: Clause
    text: Clause
    can_be_nan: bool = False
    is_time: bool = False
    is_whole: bool = False

    def is_of(self, kind: int, found: Clause) -> Clause:
        """A condition on the value, if it is of this type."""
        if kind not in self.of_type:
            return false()
        known = self.of_type[kind]
        return found if known is None else and_(known, found)

    @property
    def is_nan(self) -> Clause:
        """Of a value of the type number."""
        if not self.can_be_nan:
            return false()
        return self.number.is_(None) if self.type is not None else and_(self.present, self.number.is_(None))


class Sources:
    """The tables that a statement about runs reads, beside ``runs`` itself one for each name that is asked
    for.

    Args:
        names: of all that will be asked for, as :func:`names_of` gives them.

    Raises:
        InvalidFilter: from its methods: there are more names than a statement may have tables.
    """

    def __init__(self, session: Session, names: Names) -> None:
        self.is_postgres = session.get_bind().dialect.name == "postgresql"
        self._names = names
        self._values: dict[tuple[str, str], tuple[Any, Clause]] = {}
        self._models: Any = None
        self._decisive = True

    def only_shown(self) -> None:
        """From here on no condition is asked for: a run without a value of the names to come is kept."""
        self._decisive = False

    def joined(self, statement: Select[Any]) -> Select[Any]:
        """The statement, from all tables that were asked for so far."""
        source: FromClause = RunRow.__table__
        for table, is_that_name in self._values.values():
            source = source.outerjoin(table, and_(is_that_name, table.c.run_id == RunRow.id))
        if self._models is not None:
            source = source.outerjoin(
                self._models, and_(self._models.c.run == RunRow.run, self._models.c.project == RunRow.project)
            )
        return statement.select_from(source)

    def of_values(self, first: Field, key: Clause) -> Select[Any]:
        """Ids of active runs that have a value of ``first``, and ``key``, from the values alone: only the few
        runs that are not active are looked up.

        Nothing may have been asked of runs themselves.
        """
        begin, is_first = self._values[first.kind, first.name]
        source: FromClause = begin
        for table, is_that_name in self._values.values():
            if table is not begin:
                source = source.outerjoin(table, and_(is_that_name, table.c.run_id == begin.c.run_id))
        others = select(RunRow.id).where(RunRow.lifecycle.in_((ARCHIVED, DELETED, REMOVED)))
        return (
            select(begin.c.run_id.label("id"), key)
            .select_from(source)
            .where(is_first, begin.c.run_id.not_in(others))
        )

    def operand(self, field: Field) -> Operand | None:
        """A field; None if no run has it."""
        if field.kind == "run":
            return self._of_run(field)
        key = (field.kind, field.name)
        if key not in self._names:
            return None
        if key not in self._values:
            if len(self._values) == MOST_TABLES:
                reason = (
                    f"{field} is not accepted: the catalog is asked for at most {MOST_TABLES} different "
                    "params, metrics and tags at once"
                )
                raise InvalidFilter(reason, field.column)
            self._values[key] = self._values_of(self._names[key])
        columns = self._values[key][0].c
        if field.part != "last":
            column = columns[field.part]
            return Operand(column.is_not(None), None, {NUMBER: None}, column, columns.text)
        present = columns.run_id.is_not(None)
        values = (columns.number, columns.text)
        if field.kind == "params":
            return Operand(
                present,
                columns.type,
                {kind: columns.type == kind for kind in (NUMBER, TEXT, BOOL)},
                *values,
                can_be_nan=True,
            )
        is_metric = field.kind == "metrics"
        return Operand(present, None, {NUMBER if is_metric else TEXT: None}, *values, can_be_nan=is_metric)

    def _values_of(self, name_id: int) -> tuple[Any, Clause]:
        """A table that has the values of a name, and the condition that chooses them in it."""
        values = RunValueRow.__table__
        alias = f"value_{len(self._values)}"
        if self._decisive or not self.is_postgres:
            table = values.alias(alias)
            return table, table.c.name_id == name_id
        # Postgres does not see that what is joined to runs that may lack it comes in their order, and would
        # sort it, unless it is told so.
        return select(values).where(values.c.name_id == name_id).order_by(values.c.run_id).offset(0).subquery(
            alias
        ), true()

    def _of_run(self, field: Field) -> Operand:
        if field.name in ("model", "stage"):
            if self._models is None:
                self._models = version_of_runs()
            column = self._models.c[field.name]
            column = column.collate("C") if self.is_postgres else column  # as the index's own texts
        else:
            column = RunRow.__table__.c[field.name]
        kind = TEXT if field.type == "text" else NUMBER
        is_whole = isinstance(column.type, BigInteger)
        return Operand(
            column.is_not(None),
            None,
            {kind: None},
            column,
            column,
            is_time=field.type == "time",
            is_whole=is_whole,
        )


def where(chosen: RunFilter, projects: Collection[str] | None, sources: Sources) -> list[Any]:
    """The conditions that choose the runs; to be made before the tables of ``sources`` are joined."""
    found: list[Any] = [] if projects is None else [RunRow.project.in_(sorted(projects))]
    found += [RunRow.lifecycle == ACTIVE] if chosen.active_alone else []
    return [*found, truth(chosen.where, sources)] if chosen.where else found


def truth(condition: Condition, sources: Sources) -> Clause:
    """SQL for: the condition is true."""
    if isinstance(condition, And):
        return and_(*(truth(part, sources) for part in condition.parts))
    if isinstance(condition, Or):
        return or_(*(truth(part, sources) for part in condition.parts))
    if isinstance(condition, Not):
        return _falsity(condition.inner, sources)
    return _leaf(condition, sources, negated=False)


def _falsity(condition: Condition, sources: Sources) -> Clause:
    if isinstance(condition, And):
        return or_(*(_falsity(part, sources) for part in condition.parts))
    if isinstance(condition, Or):
        return and_(*(_falsity(part, sources) for part in condition.parts))
    if isinstance(condition, Not):
        return truth(condition.inner, sources)
    return _leaf(condition, sources, negated=True)


def _leaf(condition: Comparison | Between | In | Like | IsNull, sources: Sources, *, negated: bool) -> Clause:
    operand = sources.operand(condition.field)
    if operand is None:
        return true() if isinstance(condition, IsNull) and not negated else false()
    if isinstance(condition, IsNull):
        return operand.present if negated else ~operand.present
    if isinstance(condition, Like):
        # SQLite's LIKE, and Postgres' ILIKE with the collation C, take A to Z for a to z and no other
        # letters.
        like = operand.text.ilike if sources.is_postgres else operand.text.like
        matched = like(condition.pattern, escape="\\")
        return operand.is_of(TEXT, ~matched if negated else matched)
    if isinstance(condition, In):
        return _in(operand, condition.values, negated=negated)
    if isinstance(condition, Comparison):
        kind, found = (_is_false if negated else _is_true)(operand, condition.operator, condition.value)
        return operand.is_of(kind, found)
    if negated:
        kind, low = _is_false(operand, ">=", condition.low)
        return operand.is_of(kind, or_(low, _is_false(operand, "<=", condition.high)[1]))
    kind, low = _is_true(operand, ">=", condition.low)
    return operand.is_of(kind, and_(low, _is_true(operand, "<=", condition.high)[1]))


def _is_true(operand: Operand, sign: str, value: Value) -> tuple[int, Clause]:
    """The literal's type, and SQL for a value of that type that the comparison is true of."""
    if isinstance(value, bool):
        return BOOL, OPERATORS[sign](operand.number, float(value))
    if isinstance(value, str):
        return (
            (NUMBER, OPERATORS[sign](operand.number, seconds_of(value)))
            if operand.is_time
            else (TEXT, OPERATORS[sign](operand.text, value))
        )
    if value != value:  # NaN; a whole number may be too large for isnan()
        return NUMBER, operand.is_nan if sign == "=" else operand.number.is_not(None)
    if operand.is_whole:
        return NUMBER, compare_whole(operand.number, sign, value)
    found = compare(operand.number, operand.text if operand.type is not None else None, sign, value)
    return NUMBER, or_(found, operand.is_nan) if sign == "!=" and operand.can_be_nan else found


def _is_false(operand: Operand, sign: str, value: Value) -> tuple[int, Clause]:
    kind, opposite = _is_true(operand, _OPPOSITE[sign], value)
    if sign in ("=", "!=") or kind != NUMBER or not operand.can_be_nan:
        return kind, opposite
    return kind, or_(opposite, operand.is_nan)  # NaN is neither less nor greater than a number


def _in(operand: Operand, values: tuple[Value, ...], *, negated: bool) -> Clause:
    """Of the values of the run's type one is equal or, negated, none."""
    by_type: dict[int, list[Clause]] = {}
    for value in values:
        kind, found = _is_true(operand, "!=" if negated else "=", value)
        by_type.setdefault(kind, []).append(found)
    return or_(
        *(operand.is_of(kind, and_(*found) if negated else or_(*found)) for kind, found in by_type.items())
    )


def is_among(column: Clause, ids: Sequence[int], *, is_postgres: bool) -> Clause:
    """SQL for: the column is one of these. An array is one parameter; where there are none, each id is."""
    return column == any_(literal(list(ids), ARRAY(BigInteger))) if is_postgres else column.in_(ids)


def leading_key(orders: Iterable[Order], sources: Sources) -> tuple[Clause, bool] | None:
    """The column that an order begins with, and whether it descends; None where there are several: params go
    by type first.
    """
    for order in orders:
        operand = sources.operand(order.field)
        if operand is not None:
            return (
                None
                if operand.type is not None
                else (operand.text if TEXT in operand.of_type else operand.number, order.descending)
            )
    return RunRow.__table__.c.started, True


def order_by(orders: Iterable[Order], sources: Sources) -> list[Clause]:
    """SQL for an order; ties are newest first, and runs without the value, or with NaN, come last."""
    clauses: list[Clause] = []
    for order in orders:
        operand = sources.operand(order.field)
        if operand is None:
            continue
        keys = [operand.text if TEXT in operand.of_type else operand.number]
        if operand.type is not None:  # types one after another; NaN has none, as if there were no value
            kind = case((operand.type == TEXT, TEXT), (operand.number.is_(None), None), else_=operand.type)
            keys = [kind, operand.number, operand.text]
        clauses += [(key.desc() if order.descending else key.asc()).nulls_last() for key in keys]
    return [*clauses, RunRow.started.desc(), RunRow.project.desc(), RunRow.run.desc()]

"""A filter's conditions as SQL over the index's tables.

A condition is true, false or unknown (:mod:`halving.query.run_filter`). ``not`` is pushed down to the single
comparisons. Each comparison has SQL for "it is true" and SQL for "it is false", and where it is unknown
neither holds. So SQL's own third value is never needed, and a database may choose any order of joins.
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

MAX_TABLES = 50
"""Tables in a statement; SQLite joins at most 64."""
Names = Mapping[tuple[str, str], int]
"""Ids by kind and name."""
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def names_of(session: Session, fields: Iterable[Field]) -> Names:
    """The ids of the fields' names; a name without an id is one that no run has."""
    return find_names(session, {(field.kind, field.name) for field in fields if field.kind != "run"})


@dataclass(frozen=True)
class Operand:
    """A field as SQL: the type of its value, and the value.

    Attributes:
        present: whether the run has a value; NaN is a value too.
        type: the type of the value; None if only one type is possible.
        of_type: for each possible type, the condition that the value is of it; None if no other type is
            possible, because a comparison needs no such condition then.
        number: the value as a number; null for NaN.
        text: the value as a text.
        can_be_nan: whether a number can be NaN.
        is_time: whether the number is a time, which literals state as text.
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

    def is_of(self, kind: int, condition: Clause) -> Clause:
        """SQL for: the value is of this type, and the condition on it holds."""
        if kind not in self.of_type:
            return false()
        has_type = self.of_type[kind]
        if has_type is None:
            return condition
        return and_(has_type, condition)

    @property
    def is_nan(self) -> Clause:
        """SQL for: the value, which is a number, is NaN."""
        if not self.can_be_nan:
            return false()
        if self.type is not None:
            return self.number.is_(None)
        return and_(self.present, self.number.is_(None))

    @property
    def key(self) -> Clause:
        """The column that orders and groups runs by this field, if only one type is possible."""
        if TEXT in self.of_type:
            return self.text
        return self.number


class Sources:
    """The tables that a statement about runs reads: ``runs``, and one for each name that it uses.

    Args:
        names: ids of all names that the statement will use, from :func:`names_of`.

    Raises:
        InvalidFilter: from its methods: there are more names than a statement may have tables.
    """

    def __init__(self, session: Session, names: Names) -> None:
        self.is_postgres = session.get_bind().dialect.name == "postgresql"
        self._names = names
        self._values: dict[tuple[str, str], tuple[Any, Clause]] = {}
        self._models: Any = None
        self._decisive = True

    def end_conditions(self) -> None:
        """Treat names from here on as columns, not conditions: runs without a value of them are kept."""
        self._decisive = False

    def join(self, statement: Select[Any]) -> Select[Any]:
        """Have the statement select from all tables that were used so far."""
        source: FromClause = RunRow.__table__
        for table, is_that_name in self._values.values():
            source = source.outerjoin(table, and_(is_that_name, table.c.run_id == RunRow.id))
        if self._models is not None:
            source = source.outerjoin(
                self._models, and_(self._models.c.run == RunRow.run, self._models.c.project == RunRow.project)
            )
        return statement.select_from(source)

    def of_values(self, first: Field, key: Clause) -> Select[Any]:
        """Select ids of active runs that have a value of ``first``, and ``key``, without reading ``runs``.

        Only the few runs that are not active are looked up there. No condition may be on fields of runs
        themselves.
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
        """A field as SQL; None if no run has it."""
        if field.kind == "run":
            return self._run_operand(field)
        key = (field.kind, field.name)
        if key not in self._names:
            return None
        if key not in self._values:
            if len(self._values) == MAX_TABLES:
                reason = (
                    f"{field} is not accepted: the catalog is asked for at most {MAX_TABLES} different "
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
        if field.kind == "metrics":
            return Operand(present, None, {NUMBER: None}, *values, can_be_nan=True)
        return Operand(present, None, {TEXT: None}, *values)

    def _values_of(self, name_id: int) -> tuple[Any, Clause]:
        """A table that has the values of a name, and the condition that selects them in it."""
        values = RunValueRow.__table__
        alias = f"value_{len(self._values)}"
        if self._decisive or not self.is_postgres:
            table = values.alias(alias)
            return table, table.c.name_id == name_id
        # Postgres does not see that the rows of an outer join come in the order of runs, and would sort them.
        # The subquery states the order.
        in_order = select(values).where(values.c.name_id == name_id).order_by(values.c.run_id).offset(0)
        return in_order.subquery(alias), true()

    def _run_operand(self, field: Field) -> Operand:
        if field.name in ("model", "stage"):
            if self._models is None:
                self._models = version_of_runs()
            column = self._models.c[field.name]
            if self.is_postgres:
                column = column.collate("C")  # like the index's own texts
        else:
            column = RunRow.__table__.c[field.name]
        kind = NUMBER
        if field.type == "text":
            kind = TEXT
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
    """The conditions that select the runs; call it before :meth:`Sources.join`, since it adds tables."""
    conditions: list[Any] = []
    if projects is not None:
        conditions.append(RunRow.project.in_(sorted(projects)))
    if chosen.active_alone:
        conditions.append(RunRow.lifecycle == ACTIVE)
    if chosen.where:
        conditions.append(truth(chosen.where, sources))
    return conditions


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
        if isinstance(condition, IsNull) and not negated:
            return true()
        return false()
    if isinstance(condition, IsNull):
        if negated:
            return operand.present
        return ~operand.present
    if isinstance(condition, Like):
        # SQLite's LIKE, and Postgres' ILIKE with the collation C, ignore the case of A to Z alone.
        like = operand.text.ilike if sources.is_postgres else operand.text.like
        matches = like(condition.pattern, escape="\\")
        if negated:
            matches = ~matches
        return operand.is_of(TEXT, matches)
    if isinstance(condition, In):
        return _in(operand, condition.values, negated=negated)
    if isinstance(condition, Comparison) and negated:
        return operand.is_of(*_is_false(operand, condition.operator, condition.value))
    if isinstance(condition, Comparison):
        return operand.is_of(*_is_true(operand, condition.operator, condition.value))
    if negated:
        kind, low = _is_false(operand, ">=", condition.low)
        return operand.is_of(kind, or_(low, _is_false(operand, "<=", condition.high)[1]))
    kind, low = _is_true(operand, ">=", condition.low)
    return operand.is_of(kind, and_(low, _is_true(operand, "<=", condition.high)[1]))


def _is_true(operand: Operand, sign: str, value: Value) -> tuple[int, Clause]:
    """The literal's type, and SQL for: the comparison is true of a value of that type."""
    if isinstance(value, bool):
        return BOOL, OPERATORS[sign](operand.number, float(value))
    if isinstance(value, str) and operand.is_time:
        return NUMBER, OPERATORS[sign](operand.number, seconds_of(value))
    if isinstance(value, str):
        return TEXT, OPERATORS[sign](operand.text, value)
    if value != value:  # NaN; a whole number may be too large for isnan()
        if sign == "=":
            return NUMBER, operand.is_nan
        return NUMBER, operand.number.is_not(None)
    if operand.is_whole:
        return NUMBER, compare_whole(operand.number, sign, value)
    key = None
    if operand.type is not None:
        key = operand.text
    comparison = compare(operand.number, key, sign, value)
    if sign == "!=" and operand.can_be_nan:
        comparison = or_(comparison, operand.is_nan)
    return NUMBER, comparison


def _is_false(operand: Operand, sign: str, value: Value) -> tuple[int, Clause]:
    kind, opposite = _is_true(operand, _OPPOSITE[sign], value)
    if sign in ("=", "!=") or kind != NUMBER or not operand.can_be_nan:
        return kind, opposite
    return kind, or_(opposite, operand.is_nan)  # NaN is neither less nor greater than a number


def _in(operand: Operand, values: tuple[Value, ...], *, negated: bool) -> Clause:
    """SQL for: the operand equals one of the values or, negated, none of those of its type."""
    sign = "="
    if negated:
        sign = "!="
    by_type: dict[int, list[Clause]] = {}
    for value in values:
        kind, comparison = _is_true(operand, sign, value)
        by_type.setdefault(kind, []).append(comparison)
    combine = and_ if negated else or_
    return or_(*(operand.is_of(kind, combine(*clauses)) for kind, clauses in by_type.items()))


def is_among(column: Clause, ids: Sequence[int], *, is_postgres: bool) -> Clause:
    """SQL for: the column is one of these ids.

    Postgres gets them as an array, which is one parameter; for SQLite each id is one.
    """
    if is_postgres:
        return column == any_(literal(list(ids), ARRAY(BigInteger)))
    return column.in_(ids)


def leading_key(orders: Iterable[Order], sources: Sources) -> tuple[Clause, bool] | None:
    """The column that an order begins with, and whether it descends.

    None if one field is ordered by several columns, as params are: by type first.
    """
    for order in orders:
        operand = sources.operand(order.field)
        if operand is None:
            continue
        if operand.type is not None:
            return None
        return operand.key, order.descending
    return RunRow.__table__.c.started, True


def order_by(orders: Iterable[Order], sources: Sources) -> list[Clause]:
    """SQL for an order; ties are newest first, and runs without the value, or with NaN, come last."""
    clauses: list[Clause] = []
    for order in orders:
        operand = sources.operand(order.field)
        if operand is None:
            continue
        keys = [operand.key]
        if operand.type is not None:  # Types come one after another. NaN has none, as if there were no value.
            kind = case((operand.type == TEXT, TEXT), (operand.number.is_(None), None), else_=operand.type)
            keys = [kind, operand.number, operand.text]
        if order.descending:
            clauses += [key.desc().nulls_last() for key in keys]
        else:
            clauses += [key.asc().nulls_last() for key in keys]
    return [*clauses, RunRow.started.desc(), RunRow.project.desc(), RunRow.run.desc()]

"""Parsing a filter; :mod:`halving.query.run_filter` has its parts, docs/filter.md describes the language.

::

    filter     = [ or ] [ "order" "by" order { "," order } ] [ "limit" COUNT ]
    or         = and { "or" and }
    and        = condition { "and" condition }
    condition  = "not" condition | "(" or ")" | field test
    test       = ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | [ "not" ] ( "between" value "and" value | "in" "(" value { "," value } ")" | "like" text )
               | "is" [ "not" ] "null"
    order      = field [ "asc" | "desc" ]
    field      = NAME-OF-A-FIELD | ( "params." | "metrics." | "tags." ) NAME | ( "min" | "max" | "best" ) "("
    "metrics." NAME ")"
"""

import difflib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, get_args

from halving.query.run_filter import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_ORDERS,
    RUN_FIELDS,
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
from halving.query.run_filter_literals import RESERVED, accepted_by, is_day, is_ordered, read_literal
from halving.query.run_filter_tokens import Token, quote_short, tokens_of

_Kind = Literal["params", "metrics", "tags"]
_Operator = Literal["=", "!=", "<", "<=", ">", ">="]
_KINDS: tuple[_Kind, ...] = get_args(_Kind)
_OPERATORS: tuple[_Operator, ...] = get_args(_Operator)
_PARTS: dict[str, Literal["best", "min", "max"]] = {"best": "best", "min": "min", "max": "max"}
_MAX_LIMIT = 999_999_999


def parse_filter(text: str, now: datetime | None = None) -> RunFilter:
    """Parse a filter. An empty one is every run, newest first.

    Args:
        now: the time, with a time zone, from which ``7d ago`` counts.

    Raises:
        InvalidFilter: it is not accepted.
    """
    return _Parser(text, now or datetime.now(UTC)).filter()


def parse_fields(text: str) -> tuple[Field, ...]:
    """Parse the names of fields, separated by commas: ``params.lr,min(metrics.val_loss)``.

    An empty text has none.

    Raises:
        InvalidFilter: it is not accepted.
    """
    return _Parser(text, datetime.now(UTC)).fields()


class _Parser:
    def __init__(self, text: str, now: datetime) -> None:
        self._tokens = tokens_of(text)
        self._place = 0
        self._now = now
        self._depth = 0
        self._conditions = 0

    def filter(self) -> RunFilter:
        where = None
        if self._next.kind != "end" and self._next.keyword not in ("order", "limit"):
            where = self._or()
        order: list[Order] = []
        if self._takes("order"):
            self._expect("by", "by stands behind order")
            order.append(self._order())
            while self._takes(","):
                if len(order) == MAX_ORDERS:
                    raise InvalidFilter(
                        f"{self._next} is not accepted: runs are ordered by at most {MAX_ORDERS} fields",
                        self._next.column,
                    )
                order.append(self._order())
        limit = None
        if self._takes("limit"):
            limit = self._limit()
        if self._next.kind != "end":
            raise self._error(_behind(where, order, limit))
        return RunFilter(where, tuple(order), limit)

    def fields(self) -> tuple[Field, ...]:
        fields: list[Field] = []
        while self._next.kind != "end":
            if fields:
                self._expect(",", "a comma stands between fields")
            fields.append(self._field())
        return tuple(fields)

    def _or(self) -> Condition:
        parts = [self._and()]
        while self._takes("or"):
            parts.append(self._and())
        if len(parts) == 1:
            return parts[0]
        return Or(tuple(parts))

    def _and(self) -> Condition:
        parts = [self._condition()]
        while self._takes("and"):
            parts.append(self._condition())
        if len(parts) == 1:
            return parts[0]
        return And(tuple(parts))

    def _condition(self) -> Condition:
        opening = self._next
        if not (self._takes("not") or self._takes("(")):
            return self._test()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidFilter(
                f"{opening} is not accepted: conditions are nested at most {MAX_DEPTH} deep", opening.column
            )
        if opening.text == "(":
            condition = self._or()
            self._expect(")", f"and, or, or the ) of the ( in column {opening.column} is expected")
        else:
            condition = Not(self._condition())
        self._depth -= 1
        return condition

    def _test(self) -> Condition:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise InvalidFilter(
                f"{self._next} is not accepted: a filter has at most {MAX_CONDITIONS} conditions",
                self._next.column,
            )
        field = self._field()
        token = self._next
        for operator in _OPERATORS:
            if token.kind == "symbol" and self._takes(operator):
                return Comparison(field, operator, self._comparison_value(field, operator))
        if self._takes("is"):
            negated = self._takes("not")
            self._expect("null", "null, or not null, stands behind is")
            return Not(IsNull(field)) if negated else IsNull(field)
        negated = self._takes("not")
        test: Condition
        if self._takes("between"):
            test = self._between(field)
        elif self._takes("in"):
            test = self._in(field)
        elif self._takes("like"):
            test = self._like(field)
        elif negated:
            raise self._error("in, like or between stands behind not")
        else:
            operators = ", ".join(_OPERATORS)
            raise self._error(
                f"behind {field} stands one of {operators}, between, in, like, is null, not in, not like, "
                "is not null"
            )
        return Not(test) if negated else test

    def _comparison_value(self, field: Field, operator: str) -> Value:
        if operator in ("=", "!="):
            return self._equality_value(field, operator)
        return self._ordered_value(field, operator)

    def _equality_value(self, field: Field, operator: str) -> Value:
        token = self._next
        value = self._value(field)
        if is_day(field, token):
            advice = (
                f"a day is no moment: give {field} >= {token.text} and {field} < the next day, or a time "
                f"as in {token.text}T12:00"
            )
            raise InvalidFilter(
                f"{quote_short(token.text)} is not accepted with {operator}: {advice}", token.column
            )
        return value

    def _ordered_value(self, field: Field, operator: str) -> Value:
        token = self._next
        value = self._value(field)
        if not is_ordered(value):
            raise InvalidFilter(
                f"{quote_short(token.text)} is not accepted with {operator}: give =, != or in", token.column
            )
        return value

    def _between(self, field: Field) -> Between:
        low = self._ordered_value(field, "between")
        self._expect("and", f"{field} is between two values: and stands between them")
        token = self._next
        high = self._ordered_value(field, "between")
        if isinstance(low, str) != isinstance(high, str):
            types = "a number, but the lower value is text"
            if isinstance(high, str):
                types = "text, but the lower value is a number"
            raise InvalidFilter(f"{quote_short(token.text)} is {types}: give two of a kind", token.column)
        return Between(field, low, high)

    def _in(self, field: Field) -> In:
        self._expect("(", f"values stand in brackets: {field} in (a, b)")
        values = [self._equality_value(field, "in")]
        while self._takes(","):
            values.append(self._equality_value(field, "in"))
        self._expect(")", "a comma and another value, or ), is expected")
        return In(field, tuple(values))

    def _like(self, field: Field) -> Like:
        like = self._tokens[self._place - 1]
        if field.type not in ("text", "any"):
            raise InvalidFilter(
                f"like is not accepted: {accepted_by(field)}, and like is for text", like.column
            )
        token = self._next
        if token.kind not in ("word", "text") or token.keyword in RESERVED:
            raise self._error("behind like stands text, such as 'res%': % is any text, _ any character")
        self._place += 1
        if (len(token.text) - len(token.text.rstrip("\\"))) % 2:
            raise InvalidFilter(
                r"a \ at the end is not accepted: it stands before the character that it takes as it is",
                token.column,
            )
        return Like(field, token.text)

    def _order(self) -> Order:
        field = self._field()
        descending = self._takes("desc")
        if not descending:
            self._takes("asc")
        return Order(field, descending)

    def _limit(self) -> int:
        token = self._next
        if token.kind != "word" or not (
            token.text.isascii() and token.text.isdecimal() and len(token.text) <= len(str(_MAX_LIMIT))
        ):
            raise self._error(f"limit is a whole number from 1 to {_MAX_LIMIT:,}")
        if int(token.text) == 0:
            raise self._error("limit is a whole number from 1; leave it out for all runs")
        self._place += 1
        return int(token.text)

    def _value(self, field: Field) -> Value:
        token = self._next
        ago = token.kind != "end" and self._tokens[self._place + 1].keyword == "ago"
        value = read_literal(field, token, ago=ago, now=self._now)
        self._place += 1 + ago
        return value

    def _field(self) -> Field:
        start = self._next
        self._place += 1
        part = _PARTS.get(start.keyword)
        if part is None or (self._next.kind, self._next.text) != ("symbol", "("):
            return _field_of(start)
        self._place += 1
        inner = self._next
        advice = f"{part}(…) is of a metric: {part}(metrics.NAME)"
        if inner.kind not in ("word", "name") or inner.keyword in _PARTS:
            raise self._error(advice)
        metric = _field_of(inner)
        if metric.kind != "metrics":
            raise self._error(advice)
        self._place += 1
        self._expect(")", f"the ) of {part}( is expected")
        return replace(metric, part=part, column=start.column)

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _takes(self, text: str) -> bool:
        """Consume the next token if it is this keyword or symbol; whether it was."""
        token = self._next
        if token.keyword == text or (token.kind == "symbol" and token.text == text):
            self._place += 1
            return True
        return False

    def _expect(self, text: str, accepted: str) -> None:
        if not self._takes(text):
            raise self._error(accepted)

    def _error(self, accepted: str) -> InvalidFilter:
        place = f"{self._next} is not accepted here"
        if self._next.kind == "end":
            place = "the filter ends here"
        return InvalidFilter(f"{place}: {accepted}", self._next.column)


def _field_of(token: Token) -> Field:
    accepted = (
        f"the fields are {', '.join(RUN_FIELDS)}, params.NAME, metrics.NAME, tags.NAME, and min, max or "
        "best(metrics.NAME)"
    )
    if token.kind in ("symbol", "end", "text") or token.keyword in RESERVED:
        hint = ""
        if token.kind == "text":
            hint = ', a quoted name as in params."my name"'
        raise InvalidFilter(f"{token.stands} where a field is expected: {accepted}{hint}", token.column)
    if token.text in RUN_FIELDS and token.kind == "word":
        return Field("run", token.text, column=token.column)
    head, dot, name = token.text.partition(".")
    if token.kind == "name":
        head = token.before[:-1]
        dot = "."
        name = token.text
    for kind in _KINDS:
        if head == kind and dot:
            if not name:
                raise InvalidFilter(
                    f'{token} has no name: give {kind}.NAME, quoted if it has spaces: {kind}."my name"',
                    token.column,
                )
            return Field(kind, name, column=token.column)
    if dot:
        close = [
            f"{kind}.{name}" for kind in difflib.get_close_matches(head.lower(), _KINDS, n=1, cutoff=0.5)
        ]
    else:
        close = difflib.get_close_matches(token.text.lower(), RUN_FIELDS, n=3)
    hint = ""
    if close:
        hint = f"close to it: {', '.join(close)}; "
    raise InvalidFilter(f"{token} is not a field: {hint}{accepted}", token.column)


def _behind(where: Condition | None, order: list[Order], limit: int | None) -> str:
    """What may follow the part that was parsed last, for a message."""
    if limit is not None:
        return "nothing stands behind the limit"
    if order:
        return "a comma and another field, asc, desc, limit or the end is expected"
    if where:
        return "and, or, order by, limit or the end is expected"
    return "the end is expected"

"""Answers a filter from the runs' records and points, without a catalog."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from halving.query.curve_stats import Extremes, read_extremes
from halving.query.curve_table import as_text
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
    Type,
    Value,
    known_text,
)
from halving.query.runs import RunInfo, in_threads, seconds_of
from halving.records.amendments import ACTIVE
from halving.store.store import Store

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_TOO_LARGE = 10**600  # a whole number from here on is a text to filters


def match_runs(store: Store, runs: Iterable[RunInfo], wanted: RunFilter) -> list[RunInfo]:
    """The runs that a filter chooses, in its order and at most as many as its limit: active ones, unless it
    names ``lifecycle``.

    Points are read only for metrics that the filter names, of runs that the rest of it does not already leave
    out.

    Raises:
        InvalidFilter: it asks for what only the catalog knows.
        StoreError: a metric file is damaged.
    """
    for field in wanted.fields:
        if field.in_catalog:
            raise InvalidFilter(
                f"{field} is not accepted here: only the catalog knows it; the server and its page answer it",
                field.column,
            )
    shown = [info for info in runs if info.lifecycle == ACTIVE] if wanted.active_alone else runs
    values = [RunValues(store, info, wanted.fields) for info in shown]
    values.sort(key=lambda one: (one.info.started, one.info.project, one.info.run), reverse=True)
    if wanted.where is not None:
        where = _cheap_first(wanted.where)
        matches = (
            in_threads(lambda one: _truth(where, one), values)
            if _cost(where)
            else [_truth(where, one) for one in values]
        )
        values = [one for one, truth in zip(values, matches, strict=True) if truth]
    for order in reversed(wanted.order):
        values = _ordered(values, order)
    return [one.info for one in values[: wanted.limit]]


class RunValues:
    """What a run has of the fields of a filter; points are read once, when the first value is asked for that
    needs them.
    """

    def __init__(self, store: Store, info: RunInfo, fields: Iterable[Field]) -> None:
        self.info = info
        self._store = store
        self._metrics = sorted(
            {field.name for field in fields if field.kind == "metrics" and not self._is_recorded(field)}
        )
        self._extremes: dict[str, Extremes] | None = None

    def of(self, field: Field) -> Value | None:
        """The value: a number is a float, or an int that no float holds, a time ISO 8601; None if there is
        none.
        """
        info = self.info
        if field.kind == "params":
            return _typed(info.flat_params.get(field.name), "any")
        if field.kind == "tags":
            return _typed(info.tags.get(field.name), "text")
        if field.kind == "run":
            return _typed(_of_record(info, field.name), field.type)
        if self._is_recorded(field):
            return _typed(info.summary.get(field.name), "number")
        if self._extremes is None:
            self._extremes = read_extremes(self._store, info, self._metrics)
        found = self._extremes.get(field.name)
        return (
            None
            if found is None
            else found.min
            if field.part == "min"
            else found.max
            if field.part == "max"
            else found.last
        )

    def _is_recorded(self, field: Field) -> bool:
        """Whether the records say all of a metric: its last value, or that there is none, once every attempt
        has ended.
        """
        info = self.info
        ended = all(attempt.ended for attempt in info.attempts)
        return field.part == "last" and info.summarized and (field.name in info.summary or ended)


def _of_record(info: RunInfo, name: str) -> Any:
    if name in ("project", "run", "status", "lifecycle", "started", "seconds", "seed"):
        return getattr(info, name)
    if name == "commit":
        return (info.provenance.get("git") or {}).get("commit")
    newest = info.attempts[-1]
    of_attempt = {"ended": newest.ended, "epoch": newest.epoch, "attempt": newest.number}
    return of_attempt[name] if name in of_attempt else info.parent.get(name)


def _typed(value: Any, kind: Type) -> Value | None:
    """A recorded value as filters know it."""
    if value is None:
        return None
    if kind in ("text", "time"):
        return known_text(str(value))
    if isinstance(value, bool):
        return value if kind == "any" else None
    if isinstance(value, (int, float)):
        if abs(value) >= _TOO_LARGE and not isinstance(value, float):
            return known_text(str(value)) if kind == "any" else None
        is_held = (
            isinstance(value, float)
            or abs(value) <= 2**53
            or (abs(value) < 2**1023 and int(float(value)) == value)
        )
        return float(value) if is_held else value
    return known_text(as_text(value) or "") if kind == "any" else None


def _truth(condition: Condition, values: RunValues) -> bool | None:
    """Whether it is true of a run; None is unknown."""
    if isinstance(condition, (And, Or)):
        decisive = isinstance(condition, Or)
        unknown = False
        for part in condition.parts:
            truth = _truth(part, values)
            if truth is decisive:
                return decisive
            unknown = unknown or truth is None
        return None if unknown else not decisive
    if isinstance(condition, Not):
        truth = _truth(condition.inner, values)
        return None if truth is None else not truth
    value = values.of(condition.field)
    if isinstance(condition, IsNull):
        return value is None
    if value is None:
        return None
    if isinstance(condition, Like):
        return is_like(value, condition.pattern) if isinstance(value, str) else None
    is_time = condition.field.type == "time"
    if isinstance(condition, Comparison):
        return _compare(value, condition.operator, condition.value, is_time)
    if isinstance(condition, Between):
        low = _compare(value, ">=", condition.low, is_time)
        high = _compare(value, "<=", condition.high, is_time)
        return None if low is None or high is None else low and high
    return _is_in(value, condition, is_time)


def _is_in(value: Value, condition: In, is_time: bool) -> bool | None:
    known = [truth for one in condition.values if (truth := _compare(value, "=", one, is_time)) is not None]
    return any(known) if known else None


def _compare(value: Value, operator: str, literal: Value, is_time: bool) -> bool | None:
    """None if they are of different types."""
    if _rank(value) != _rank(literal):
        return None
    if is_time:
        return _OPERATORS[operator](seconds_of(str(value)), seconds_of(str(literal)))
    if value != value and literal != literal:  # NaN is what is not equal to itself; to a filter it is
        return operator == "="
    return _OPERATORS[operator](value, literal)


def _rank(value: Value) -> int:
    """Its type, in the order of types: numbers, texts, flags."""
    return 2 if isinstance(value, bool) else 1 if isinstance(value, str) else 0


def is_like(text: str, pattern: str) -> bool:
    """Whether a text is like a pattern.

    Each part is found at the first place behind the one before, which is never taken back.
    """
    first, *rest = _parts_of(pattern)
    found = first.match(text)
    for part in rest:
        found = found and part.search(text, found.end())
    return found is not None


@lru_cache(maxsize=256)
def _parts_of(pattern: str) -> "list[re.Pattern[str]]":
    """What stands between each ``%``; the last one is found only at the end."""
    parts = [""]
    for character in re.findall(r"\\.|.", pattern, re.DOTALL):
        if character == "%":
            parts.append("")
        else:
            parts[-1] += "." if character == "_" else re.escape(character[-1])
    parts[-1] += r"\Z"
    return [re.compile(part, re.DOTALL | re.IGNORECASE | re.ASCII) for part in parts]


def _cheap_first(condition: Condition) -> Condition:
    """The same with what needs no points before what does."""
    if isinstance(condition, Not):
        return Not(_cheap_first(condition.inner))
    if isinstance(condition, (And, Or)):
        return type(condition)(tuple(sorted(map(_cheap_first, condition.parts), key=_cost)))
    return condition


def _cost(condition: Condition) -> int:
    if isinstance(condition, Not):
        return _cost(condition.inner)
    if isinstance(condition, (And, Or)):
        return max(map(_cost, condition.parts))
    return 0 if condition.field.kind != "metrics" else 1 if condition.field.part == "last" else 2


def _ordered(values: list[RunValues], order: Order) -> list[RunValues]:
    """Those without a value, or with NaN, last; equals stay as they are."""
    field = order.field
    found = (
        in_threads(lambda one: one.of(field), values)
        if field.kind == "metrics"
        else [one.of(field) for one in values]
    )
    placed: list[tuple[tuple[int, Any], RunValues]] = []
    missing = []
    for value, one in zip(found, values, strict=True):
        if value is None or value != value:
            missing.append(one)
        else:
            placed.append(((_rank(value), seconds_of(str(value)) if field.type == "time" else value), one))
    placed.sort(key=lambda pair: pair[0], reverse=order.descending)
    return [one for _, one in placed] + missing

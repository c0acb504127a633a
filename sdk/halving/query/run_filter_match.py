"""Filtering runs by their records and points, without a catalog."""

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
    """The runs that a filter chooses, in its order, up to its limit.

    Runs that are not active are left out, unless the filter names ``lifecycle``. Points are read only for
    metrics that the filter names, and only for runs that the rest of it does not already leave out.

    Raises:
        InvalidFilter: it names a field that only the catalog has.
        StoreError: a metric file is damaged.
    """
    for field in wanted.fields:
        if field.in_catalog:
            raise InvalidFilter(
                f"{field} is not accepted here: only the catalog knows it; the server and its page answer it",
                field.column,
            )
    if wanted.active_alone:
        runs = [info for info in runs if info.lifecycle == ACTIVE]
    candidates = [RunValues(store, info, wanted.fields) for info in runs]
    candidates.sort(key=lambda run: (run.info.started, run.info.project, run.info.run), reverse=True)
    if wanted.where is not None:
        where = _cheap_first(wanted.where)
        truths = _map_values(lambda run: _truth(where, run), candidates, reads_points=_cost(where) > 0)
        candidates = [run for run, truth in zip(candidates, truths, strict=True) if truth]
    for order in reversed(wanted.order):
        candidates = _sort(candidates, order)
    return [run.info for run in candidates[: wanted.limit]]


class RunValues:
    """A run's values of a filter's fields; points are read once, when a value first needs them."""

    def __init__(self, store: Store, info: RunInfo, fields: Iterable[Field]) -> None:
        self.info = info
        self._store = store
        self._metrics = sorted(
            {field.name for field in fields if field.kind == "metrics" and not self._is_recorded(field)}
        )
        self._extremes: dict[str, Extremes] | None = None

    def of(self, field: Field) -> Value | None:
        """The value of a field; None if the run has none.

        A number is a float, or an int if no float holds it exactly; a time is ISO 8601.
        """
        info = self.info
        if field.kind == "params":
            return _filter_value(info.flat_params.get(field.name), "any")
        if field.kind == "tags":
            return _filter_value(info.tags.get(field.name), "text")
        if field.kind == "run":
            return _filter_value(_of_record(info, field.name), field.type)
        if self._is_recorded(field):
            return _filter_value(info.summary.get(field.name), "number")
        if self._extremes is None:
            self._extremes = read_extremes(self._store, info, self._metrics)
        extremes = self._extremes.get(field.name)
        if extremes is None:
            return None
        return {"min": extremes.min, "max": extremes.max}.get(field.part, extremes.last)

    def _is_recorded(self, field: Field) -> bool:
        """Whether the records alone tell a metric's last value, or that there is none."""
        info = self.info
        ended = all(attempt.ended for attempt in info.attempts)
        return field.part == "last" and info.summarized and (field.name in info.summary or ended)


def _of_record(info: RunInfo, name: str) -> Any:
    if name in ("project", "run", "status", "lifecycle", "started", "seconds", "seed"):
        return getattr(info, name)
    if name == "commit":
        return (info.provenance.get("git") or {}).get("commit")
    newest = info.attempts[-1]
    if name == "attempt":
        return newest.number
    if name in ("ended", "epoch"):
        return getattr(newest, name)
    return info.parent.get(name)


def _filter_value(value: Any, kind: Type) -> Value | None:
    """A recorded value as filters compare it; None if it is not of the field's type."""
    if value is None:
        return None
    if kind in ("text", "time"):
        return known_text(str(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, float) or abs(value) <= 2**53:
            return float(value)
        if abs(value) < _TOO_LARGE:
            is_exact = abs(value) < 2**1023 and int(float(value)) == value
            return float(value) if is_exact else value
    if kind != "any":
        return None
    if isinstance(value, bool):
        return value
    return known_text(as_text(value) or "")


def _truth(condition: Condition, values: RunValues) -> bool | None:
    """Whether a condition is true for a run; None if it is unknown."""
    if isinstance(condition, (And, Or)):
        decisive = isinstance(condition, Or)
        unknown = False
        for part in condition.parts:
            truth = _truth(part, values)
            if truth is decisive:
                return decisive
            unknown = unknown or truth is None
        if unknown:
            return None
        return not decisive
    if isinstance(condition, Not):
        truth = _truth(condition.inner, values)
        if truth is None:
            return None
        return not truth
    value = values.of(condition.field)
    if isinstance(condition, IsNull):
        return value is None
    if value is None:
        return None
    if isinstance(condition, Like):
        if not isinstance(value, str):
            return None
        return is_like(value, condition.pattern)
    is_time = condition.field.type == "time"
    if isinstance(condition, Comparison):
        return _compare(value, condition.operator, condition.value, is_time)
    if isinstance(condition, Between):
        low = _compare(value, ">=", condition.low, is_time)
        high = _compare(value, "<=", condition.high, is_time)
        if low is None or high is None:
            return None
        return low and high
    return _is_in(value, condition, is_time)


def _is_in(value: Value, condition: In, is_time: bool) -> bool | None:
    truths = {_compare(value, "=", literal, is_time) for literal in condition.values} - {None}
    if not truths:
        return None
    return True in truths


def _compare(value: Value, operator: str, literal: Value, is_time: bool) -> bool | None:
    """Whether a comparison is true; None if the two are of different types."""
    if _rank(value) != _rank(literal):
        return None
    if is_time:
        return _OPERATORS[operator](seconds_of(str(value)), seconds_of(str(literal)))
    if value != value and literal != literal:  # Both are NaN, which filters hold to be equal.
        return operator == "="
    return _OPERATORS[operator](value, literal)


def _rank(value: Value) -> int:
    """The rank of a value's type: 0 for numbers, 1 for texts, 2 for booleans."""
    if isinstance(value, bool):
        return 2
    if isinstance(value, str):
        return 1
    return 0


def is_like(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern of ``like``.

    Each part matches at the first place behind the part before it; no other place is tried.
    """
    first, *rest = _parts_of(pattern)
    match = first.match(text)
    for part in rest:
        match = match and part.search(text, match.end())
    return match is not None


@lru_cache(maxsize=256)
def _parts_of(pattern: str) -> "list[re.Pattern[str]]":
    """Expressions for the parts of a pattern between its ``%``; the last one matches only at the end."""
    parts = [""]
    for character in re.findall(r"\\.|.", pattern, re.DOTALL):
        if character == "%":
            parts.append("")
        elif character == "_":
            parts[-1] += "."
        else:
            parts[-1] += re.escape(character[-1])
    parts[-1] += r"\Z"
    return [re.compile(part, re.DOTALL | re.IGNORECASE | re.ASCII) for part in parts]


def _cheap_first(condition: Condition) -> Condition:
    """The same condition, with the parts that need no points before those that do."""
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
    if condition.field.kind != "metrics":
        return 0
    if condition.field.part == "last":
        return 1
    return 2


def _map_values(
    function: Callable[[RunValues], Any], runs: list[RunValues], *, reads_points: bool
) -> list[Any]:
    if reads_points:
        return in_threads(function, runs)
    return list(map(function, runs))


def _sort(runs: list[RunValues], order: Order) -> list[RunValues]:
    """Sort runs stably by a field; those without a value, or with NaN, come last."""
    field = order.field
    values = _map_values(lambda run: run.of(field), runs, reads_points=field.kind == "metrics")
    ranked: list[tuple[tuple[int, Any], RunValues]] = []
    missing = []
    for value, run in zip(values, runs, strict=True):
        if value is None or value != value:
            missing.append(run)
        elif field.type == "time":
            ranked.append(((_rank(value), seconds_of(str(value))), run))
        else:
            ranked.append(((_rank(value), value), run))
    ranked.sort(key=lambda pair: pair[0], reverse=order.descending)
    return [run for _, run in ranked] + missing

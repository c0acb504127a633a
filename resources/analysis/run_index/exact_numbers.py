"""Exact comparison of whole numbers from 2**53 on, in an index that keeps doubles.

A double does not tell such a number from its neighbours. So the index has a key beside the nearest double, a
text that sorts as the numbers do. If doubles are equal, keys decide, in conditions, orders and groups.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, and_, false, func, literal, or_, true

Clause = ColumnElement[Any]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MAX_DIGITS = 600
"""The digits of a number, at most; filters take a longer one as a text."""
_MIN_KEYED = 2.0**53
_INTEGERS = 2**63  # integers of a database are below it
# Negative numbers have complemented digits, so that the greater in size comes first.
_COMPLEMENT = str.maketrans("0123456789", "9876543210")
_INFINITIES = {math.inf: "Q", -math.inf: "M"}  # their keys


def nearest(value: int | float) -> float:
    """The nearest double; an infinity for a number beyond all of them."""
    try:
        return float(value)
    except OverflowError:
        if value > 0:
            return math.inf
        return -math.inf


def key_of(value: int | float) -> str | None:
    """The key of a number; None for NaN, and for a number that its double tells from all others."""
    if not abs(nearest(value)) >= _MIN_KEYED:
        return None
    if isinstance(value, float) and math.isinf(value):
        return _INFINITIES[value]
    digits = str(abs(int(value)))
    if value > 0:
        return f"P{len(digits):03d}{digits}"
    return f"N{999 - len(digits):03d}{digits.translate(_COMPLEMENT)}"


def value_of(number: float, key: str | None) -> int | float:
    """The number that a double and a key stand for: the exact integer where the double differs from it."""
    if key is None or key in _INFINITIES.values():
        return number
    exact = int(key[4:]) if key[0] == "P" else -int(key[4:].translate(_COMPLEMENT))
    if number == exact:
        return number
    return exact


def compare(number: Clause, key: Clause | None, sign: str, value: int | float) -> Clause:
    """SQL for a comparison of a double and its key with a number that is not NaN.

    Args:
        key: the column of keys; None if the doubles are exact.
    """
    near = nearest(value)
    own = key_of(value)
    if own is None:
        return OPERATORS[sign](number, value)
    # A row of an older index has no key until its run is read again; until then its double is taken as exact.
    if key is not None:
        tie = OPERATORS[sign](func.coalesce(key, key_of(near)), own)
    else:
        tie = _constant(OPERATORS[sign](near, value))
    is_near = and_(number == near, tie)
    if sign == "=":
        return is_near
    if sign == "!=":
        return or_(number != near, is_near)
    return or_(OPERATORS[sign[0]](number, near), is_near)


def compare_whole(column: Clause, sign: str, value: int | float) -> Clause:
    """SQL for a comparison of a column of 64-bit integers with a number that is not NaN."""
    if not -_INTEGERS <= value < _INTEGERS:  # infinities too
        return and_(column.is_not(None), _constant(OPERATORS[sign](0, value)))
    floor = math.floor(value)
    if floor == value:
        return OPERATORS[sign](column, literal(floor))
    if sign == "=":
        return false()
    if sign == "!=":
        return column.is_not(None)
    if sign[0] == "<":
        return column <= literal(floor)
    return column > literal(floor)


def _constant(holds: bool) -> Clause:
    if holds:
        return true()
    return false()

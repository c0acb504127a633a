"""Numbers that a double does not tell from their neighbours: whole ones from 2**53 on, exactly, in an index
that keeps doubles.

Beside its nearest double such a number has a key, a text: of two numbers the keys are in the order of the
numbers. Where doubles are equal the keys decide, in conditions, orders and groups.
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
LONGEST = 600
"""Digits of a number; a longer one is a text to filters."""
_LEAST = 2.0**53
_MOST = 2**63  # what a database's integers hold
# so that of negative numbers the greater in size comes first
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def nearest(value: int | float) -> float:
    """Give the double that is nearest, an infinity beyond all of them."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def key_of(value: int | float) -> str | None:
    """Give the key of a number; None of one that its double tells from all others, and of NaN."""
    if not abs(nearest(value)) >= _LEAST:
        return None
    if isinstance(value, float) and math.isinf(value):
        return "Q" if value > 0 else "M"
    digits = str(abs(int(value)))
    return (
        f"P{len(digits):03d}{digits}"
        if value > 0
        else f"N{999 - len(digits):03d}{digits.translate(_COMPLEMENT)}"
    )


def value_of(number: float, key: str | None) -> int | float:
    """Give the number of a double and a key: a whole one where the double is another."""
    if key is None or key in ("M", "Q"):
        return number
    exact = int(key[4:]) if key[0] == "P" else -int(key[4:].translate(_COMPLEMENT))
    return number if number == exact else exact


def compare(number: Clause, key: Clause | None, sign: str, value: int | float) -> Clause:
    """SQL for a comparison of a double, of which ``key`` is the key (None: it is exact), with a number that
    is not NaN.
    """
    near = nearest(value)
    own = key_of(value)
    if own is None:
        return OPERATORS[sign](number, value)
    # The index reads all runs again for their keys; until then a double is taken for what it is.
    tie = (
        (true() if OPERATORS[sign](near, value) else false())
        if key is None
        else OPERATORS[sign](func.coalesce(key, key_of(near)), own)
    )
    is_near = and_(number == near, tie)
    if sign == "=":
        return is_near
    return or_(OPERATORS["!=" if sign == "!=" else sign[0]](number, near), is_near)


def compare_whole(column: Clause, sign: str, value: int | float) -> Clause:
    """SQL for a comparison of a column of 64-bit integers with a number that is not NaN."""
    if not -_MOST <= value < _MOST:  # infinities too
        return column.is_not(None) if OPERATORS[sign](0, value) else false()
    floor = math.floor(value)
    if floor == value:
        return OPERATORS[sign](column, literal(floor))
    if sign in ("=", "!="):
        return column.is_not(None) if sign == "!=" else false()
    return column <= literal(floor) if sign[0] == "<" else column > literal(floor)

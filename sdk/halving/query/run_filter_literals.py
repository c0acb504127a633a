"""The literals of a filter, read by the type of their field."""

import math
import re
from datetime import UTC, datetime, timedelta

from halving.query.run_filter import MAX_TEXT, Field, InvalidFilter, Value
from halving.query.run_filter_tokens import Token, quote_short
from halving.text import parse_time

RESERVED = frozenset(
    ["and", "or", "not", "between", "in", "like", "is", "null", "order", "by", "asc", "desc", "limit"]
)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_MAX_DIGITS = 600
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII)
_WORDS: dict[str, Value] = {
    "true": True,
    "false": False,
    **dict.fromkeys(("nan", "+nan", "-nan"), math.nan),
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
}
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?P<clock>[tT ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?([zZ]|[+-]\d\d:\d\d)?)?", re.ASCII
)
_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(s|m|min|h|d|w)", re.ASCII)
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_ACCEPTED = {
    "number": "a number, such as 5, 1e-4, inf or nan",
    "text": "text, such as abc or 'a b'",
    "time": "a time, such as 2026-11-01, 2026-11-01T12:00 or 7d ago (UTC, or with +02:00)",
    "any": "a number, text, true or false",
}


def accepted_by(field: Field) -> str:
    """The literals that a field accepts, for a message."""
    if field.kind == "params":
        return f"{field} is compared with {_ACCEPTED['any']}"
    return f"{field} is {_ACCEPTED[field.type]}"


def read_literal(field: Field, token: Token, *, ago: bool, now: datetime) -> Value:
    """Read the value of a token that a field is compared with.

    Args:
        ago: whether the word ``ago`` follows it.

    Raises:
        InvalidFilter: it is not of the field's type.
    """
    if token.kind not in ("word", "text"):
        raise InvalidFilter(f"{token.stands} where a value is expected: {accepted_by(field)}", token.column)
    if token.keyword in RESERVED:
        raise InvalidFilter(
            f"{token} is a word of the language: {accepted_by(field)}; in quotes ({token.text!r}) it is text",
            token.column,
        )
    if ago and field.type != "time":
        written = quote_short(f"{token.text} ago")
        raise InvalidFilter(
            f"{written} is not accepted: {accepted_by(field)}; started and ended are times", token.column
        )
    value: Value | None
    if field.type == "text":
        value = token.text
    elif ago:
        value = _ago(token, now)
    elif field.type == "time":
        value = _time(token)
    else:
        value = _number_or_text(token)
        if field.type == "number" and isinstance(value, (str, bool)):
            value = None
    if value is None:
        raise InvalidFilter(
            f"{quote_short(token.text + ' ago' * ago)} is not accepted: {accepted_by(field)}", token.column
        )
    if isinstance(value, str) and len(value) > MAX_TEXT:
        too_long = (
            f"it has {len(value):,} characters, and of a text filters know the first {MAX_TEXT}; give those"
        )
        raise InvalidFilter(f"{quote_short(value)} is not accepted: {too_long}", token.column)
    return value


def is_day(field: Field, token: Token) -> bool:
    """Whether a token is a date without a time of day, for a field that is a time."""
    match = _TIME.fullmatch(token.text)
    return field.type == "time" and match is not None and match["clock"] is None


def is_ordered(value: Value) -> bool:
    """Whether a value can be less or greater than another."""
    return not isinstance(value, bool) and value == value  # NaN is not equal to itself.


def _number_or_text(token: Token) -> Value:
    """The number or boolean that an unquoted word is, else text.

    A whole number that no float holds exactly is an int.

    Raises:
        InvalidFilter: no number is so large.
    """
    word = token.keyword
    if word in _WORDS:
        return _WORDS[word]
    if not _NUMBER.fullmatch(word):
        return token.text
    number = float(word)
    is_whole = _WHOLE.fullmatch(word) is not None
    if (is_whole and len(word) > _MAX_DIGITS) or (not is_whole and math.isinf(number)):
        reason = f"no number is so large, but inf; a whole one may have {_MAX_DIGITS} digits"
        raise InvalidFilter(f"{quote_short(token.text)} is not accepted: {reason}", token.column)
    if is_whole and (math.isinf(number) or int(number) != int(word)):
        return int(word)
    return number


def _time(token: Token) -> str | None:
    if not _TIME.fullmatch(token.text):
        return None
    try:
        return _text_of(parse_time(token.text.upper()))
    except (ValueError, OverflowError):
        # Such as the 31st of a month that has none, or a time before the year 1.
        return None


def _ago(token: Token, now: datetime) -> str | None:
    match = _AGO.fullmatch(token.text.lower())
    if match is None:
        return None
    try:
        return _text_of(now - timedelta(seconds=float(match[1]) * _UNITS[match[2]]))
    except OverflowError:
        return None


def _text_of(time: datetime) -> str:
    return time.astimezone(UTC).isoformat()

"""The one order of the journal's entries, newest first, and a place in it.

An entry's place is its time, then the source that it comes from, then its key in that source. So entries of
the same time have an order, too, and a page that ends between them loses none and shows none twice. Times are
floats, in seconds since the epoch: a float tells any two microseconds apart until the year 2200.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias, TypeVarTuple

from sqlalchemy import ColumnElement, Select, and_, or_
from sqlalchemy.orm import InstrumentedAttribute, Session

from halving.errors import InvalidInput

Key = tuple[str | int, ...]
Column: TypeAlias = ColumnElement[Any] | InstrumentedAttribute[Any]
_Columns = TypeVarTuple("_Columns")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_CURSOR = 2_000  # characters


class Cursor(NamedTuple):
    """The place of an entry; pages end at one."""

    time: float
    source: str
    key: Key

    def encode(self) -> str:
        """The place as text for URLs and commands."""
        text = json.dumps([self.time, self.source, list(self.key)], separators=(",", ":"))
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "Cursor":
        """The place that a text stands for.

        Raises:
            InvalidInput: it is no such text.
        """
        try:
            if len(text) > _MAX_CURSOR:
                raise ValueError("it is too long")
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            time, source, key = json.loads(urlsafe_b64decode(padded))
            if not isinstance(source, str) or not _is_key(key) or isinstance(time, bool):
                raise ValueError("it names no place")
            return cls(_checked_time(float(time)), source, tuple(key))
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise InvalidInput(
                f"before = {text!r:.100} is not accepted: give `older` of the page before"
            ) from None


def _is_key(key: Any) -> bool:
    return isinstance(key, list) and all(_is_key_part(part) for part in key)


def _is_key_part(part: Any) -> bool:
    if isinstance(part, str):
        return "\0" not in part and part.isprintable()
    return isinstance(part, int) and not isinstance(part, bool) and -(2**63) <= part < 2**63


def _checked_time(time: float) -> float:
    _EPOCH + timedelta(seconds=time)  # raises if no calendar has it
    return time


def seconds_of(time: datetime) -> float:
    """A time as the order compares it."""
    return (time - _EPOCH).total_seconds()


@dataclass(frozen=True)
class Window:
    """Which entries a page may have: from ``since`` on, behind ``before`` in the order, at most ``limit``."""

    limit: int
    since: float | None = None
    before: Cursor | None = None

    def cut(
        self,
        session: Session,
        query: Select[*_Columns],
        source: str,
        time: Column,
        key: Sequence[Column],
        *,
        in_seconds: bool = False,
    ) -> Select[*_Columns]:
        """The rows of a source that can be on the page, in its order.

        Args:
            time: the column of the entries' time.
            key: the columns of the entries' key.
            in_seconds: whether the time is a number, in seconds since the epoch.
        """
        compared = [_by_characters(session, column) for column in key]
        if self.since is not None:
            query = query.where(time >= _time_for(self.since, in_seconds=in_seconds))
        if self.before is not None:
            query = query.where(*self._behind(self.before, source, time, compared, in_seconds=in_seconds))
        query = query.where(time.is_not(None))
        return query.order_by(time.desc(), *(column.desc() for column in compared)).limit(self.limit)

    def _behind(
        self,
        before: Cursor,
        source: str,
        time: Column,
        key: Sequence[Column],
        *,
        in_seconds: bool,
    ) -> list[ColumnElement[bool]]:
        place = _time_for(before.time, in_seconds=in_seconds)
        exact = before.time
        if isinstance(place, datetime):
            exact = seconds_of(place)
        if exact != before.time:  # No entry of this source has exactly that time.
            return [time <= place if exact < before.time else time < place]
        if source != before.source:
            return [time <= place if source < before.source else time < place]
        if len(key) != len(before.key) or not _same_types(key, before.key):
            raise InvalidInput("before is not accepted: it is of another version; begin with the newest page")
        # The first condition alone lets a database begin at that time in its index.
        return [time <= place, or_(time < place, _is_below(key, before.key))]


def _same_types(key: Sequence[Column], values: Key) -> bool:
    return all(isinstance(value, column.type.python_type) for column, value in zip(key, values, strict=True))


def _is_below(key: Sequence[Column], values: Key) -> ColumnElement[bool]:
    below = [key[0] < values[0]]
    for place in range(1, len(key)):
        equal = [key[earlier] == values[earlier] for earlier in range(place)]
        below.append(and_(*equal, key[place] < values[place]))
    return or_(*below)


def _time_for(seconds: float, *, in_seconds: bool) -> float | datetime:
    if in_seconds:
        return seconds
    return _EPOCH + timedelta(seconds=seconds)


def _by_characters(session: Session, column: Column) -> Column:
    """A text column as Python compares texts: on Postgres a language's rules may differ."""
    if session.get_bind().dialect.name != "postgresql" or column.type.python_type is not str:
        return column
    if getattr(column.type, "collation", None) == "C":
        return column
    collated: Column = column.collate("C")
    return collated

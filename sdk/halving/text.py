"""Values, names, numbers and times as people write and read them."""

import difflib
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from halving.errors import InvalidInput

NONE = "-"  # What is shown where there is no value.


def comma_list(values: Iterable[Any]) -> str:
    """Join values with commas, ``1, 3, 9``, for people; ``nothing`` if there are none."""
    return ", ".join(map(str, values)) or "nothing"


def closest(written: Any, accepted: Iterable[Any]) -> Any:
    """The accepted value that looks most like what was written, or None if none is similar."""
    by_text = {str(value): value for value in accepted}
    matches = difflib.get_close_matches(str(written), by_text, n=1)
    if not matches:
        return None
    return by_text[matches[0]]


def did_you_mean(written: Any, accepted: Iterable[Any]) -> str:
    """``, did you mean 'tpe'?`` if something accepted looks like what was written, else nothing."""
    match = closest(written, accepted)
    if match is None:
        return ""
    return f", did you mean {match!r}?"


def count_of(count: int, noun: str) -> str:
    """A count with its noun, such as ``1 step`` and ``2 steps``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"


def size(count: int) -> str:
    """A number of bytes as ``12 B``, ``3.4 KiB``, ``5.6 MiB``…"""
    if count < 1024:
        return f"{count:.0f} B"
    number = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024:
            return f"{number:.1f} {unit}"
    return f"{number / 1024:.1f} TiB"


def duration(seconds: float | None) -> str:
    """``12 s``, ``3.4 min``, ``5.6 h`` or ``2.1 d``."""
    if seconds is None:
        return NONE
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    if seconds == 0 or seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.1f} s"


def parse_duration(field: str, text: str) -> float:
    """The seconds of ``90s``, ``15m``, ``2h`` or ``1d``.

    Raises:
        InvalidInput: it is none of these; names the field.
    """
    units = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", text.strip(), re.ASCII)
    if match is None:
        raise InvalidInput(f"{field} = {text!r:.80} is not accepted: give a time such as 90s, 15m, 2h or 1d")
    return float(match[1]) * units[match[2]]


def local_time(time: datetime | str | None) -> str:
    """A time, or its ISO 8601 text, in the local time zone to the second.

    A text that cannot be converted is returned as it is.
    """
    if time is None:
        return NONE
    converted = time
    try:
        if isinstance(converted, str):
            converted = datetime.fromisoformat(converted)
        return f"{converted.astimezone():%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError):
        return str(time)


def parse_time(text: str) -> datetime:
    """The time of an ISO 8601 text; without a time zone it is in UTC.

    Raises:
        ValueError: it is no such text.
    """
    return with_zone(datetime.fromisoformat(text))


def with_zone(time: datetime) -> datetime:
    """The same time; without a time zone it is in UTC."""
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    return time

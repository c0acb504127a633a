"""The levels, pauses and texts of ``wandb.alert``."""

from datetime import timedelta
from enum import Enum
from typing import Any

from halving.run.alerts import MAX_TEXT, MAX_TITLE, UNSTORABLE

_WAIT_SECONDS = 60.0


class AlertLevel(Enum):
    """How urgent an alert is."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


def check_level(level: Any) -> str:
    """The name of a level, which may be given as :class:`AlertLevel`, as a text, or as None.

    Raises:
        ValueError: it is none.
    """
    if isinstance(level, AlertLevel):
        level = level.value
    level = level or AlertLevel.INFO.value
    if level not in {each.value for each in AlertLevel}:
        raise ValueError("level must be one of 'INFO', 'WARN', or 'ERROR'")
    return str(level).lower()


def wait_seconds(duration: Any) -> float:
    """How long another alert of the same title waits, in seconds.

    Raises:
        TypeError: it is no number and no timedelta.
    """
    if not duration:
        return _WAIT_SECONDS
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, (int, float)):
        return float(duration)
    raise TypeError("wait_duration must be an int, float, or datetime.timedelta")


def fit(title: Any, text: Any) -> tuple[str, str]:
    """A title and a text as an alert takes them: a title that is too long begins the text."""
    whole = UNSTORABLE.sub("\ufffd", str(title))
    more = UNSTORABLE.sub("\ufffd", str(text or ""))
    line = " ".join(whole.split())
    if len(line) > MAX_TITLE:
        line = f"{line[: MAX_TITLE - 1]}…"
        more = f"{whole}\n\n{more}"
    if len(more) > MAX_TEXT:
        more = f"{more[: MAX_TEXT - 1]}…"
    return line, more

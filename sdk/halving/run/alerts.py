"""What a run wants people to know: alerts, each a file of the run that is written once."""

import re
import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from halving.errors import HalvingError, InvalidInput
from halving.store.json_files import now, to_json
from halving.store.retry import warn
from halving.store.store import Store

LEVELS = ("info", "warn", "error")
MAX_TITLE = 200
MAX_TEXT = 10_000
_MAX_ALERTS = 1_000  # of one attempt
UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # what databases and JSON in UTF-8 do not take


class Alert(NamedTuple):
    """One alert of a run."""

    title: str
    text: str
    level: str


class Alerts:
    """Records the alerts of one attempt as ``runs/project=P/RUN/alert-ATTEMPT-NUMBER-TOKEN.json``.

    Args:
        store, folder: where the run's record is.
        attempt: gives the attempt's number.
    """

    def __init__(self, store: Store, folder: str, attempt: Callable[[], int]) -> None:
        self._store = store
        self._folder = folder
        self._attempt = attempt
        self._last: dict[str, float] = {}
        self._count = 0

    def check(self, title: Any, text: Any, level: Any, wait_seconds: Any) -> Alert | None:
        """Check an alert; None if there was one of its title within ``wait_seconds``.

        Raises:
            InvalidInput: a field is not accepted.
        """
        if not isinstance(title, str) or not title.strip() or len(title) > MAX_TITLE or "\n" in title:
            raise InvalidInput(
                f"alert title {title!r:.80} is not accepted: give a line of 1-{MAX_TITLE} characters"
            )
        if not isinstance(text, str) or len(text) > MAX_TEXT:
            raise InvalidInput(
                f"alert text {text!r:.80} is not accepted: give at most {MAX_TEXT:,} characters"
            )
        if UNSTORABLE.search(title) or UNSTORABLE.search(text):
            raise InvalidInput(
                f"alert {title!r:.80} is not accepted: give texts without NUL and halves of surrogate pairs"
            )
        if level not in LEVELS:
            raise InvalidInput(f"alert level {level!r:.80} is not accepted: give {', '.join(LEVELS)}")
        if isinstance(wait_seconds, bool) or not isinstance(wait_seconds, (int, float)) or wait_seconds < 0:
            raise InvalidInput(f"alert wait_seconds {wait_seconds!r:.80} is not accepted: give seconds")
        clock = time.monotonic()
        if title in self._last and clock - self._last[title] < wait_seconds:
            return None
        self._last[title] = clock
        return Alert(title, text, level)

    def record(self, alert: Alert) -> bool:
        """Write an alert; whether the store has taken it."""
        if self._count >= _MAX_ALERTS:
            return False
        self._count += 1
        attempt = self._attempt()
        name = f"alert-{attempt:04d}-{self._count:06d}-{secrets.token_hex(4)}.json"
        content = to_json({**alert._asdict(), "attempt": attempt, "time": now()})
        try:
            self._store.create(f"{self._folder}/{name}", content, sole=True)
        except (OSError, HalvingError) as error:
            # Neither an unavailable store nor a server that refuses it may end a training.
            self._last.pop(alert.title, None)
            warn(f"the alert {alert.title!r} is not recorded: {error}")
            return False
        return True

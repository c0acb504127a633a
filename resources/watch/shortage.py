"""A store that has little room left, or does not answer."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping

from halving.errors import StoreError
from halving.store.store import Store
from halving.text import size
from resources.alerts.alert import Alert
from resources.catalog import AlertConditionRow
from resources.watch.conditions import Condition, Ended

SHORT = "store:short"
AWAY = "store:away"
AWAY_SECONDS = 60.0
"""How long a store may not answer before it is told."""
_LOOK_SECONDS = 30.0
_OTHERS_SECONDS = 900.0  # after which a server says that the store is back, though it never lost it itself
_MARGIN = 1.2
_MIN_SHARE = 0.05
_MIN_BYTES = 1 << 30
_ENOUGH_BYTES = 50 << 30
"""Free space is short below a twentieth of the disk, though not where that is much, and below 1 GiB in any
case.
"""


class StoreLooks:
    """Looks at a store now and then, and remembers since when it does not answer."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._looked_at = float("-inf")
        self._away_since: float | None = None
        self._was_away = False
        self._free: tuple[int, int] | None = None

    def look(self) -> None:
        """Look at the store, if the last look was some time ago; this may take as long as the store does."""
        now = self._clock()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            self._store.names("runs")
            if self._store.folder is not None:
                usage = shutil.disk_usage(self._store.folder)
                self._free = (usage.free, usage.total)
        except (StoreError, OSError):
            if self._away_since is None:
                self._away_since = now
        else:
            self._away_since = None

    def conditions(self) -> Iterator[Condition]:
        """What is wrong with the store, as of the last look."""
        if self._away_since is not None and self._clock() - self._away_since >= AWAY_SECONDS:
            self._was_away = True
            yield _condition(
                AWAY,
                "the store does not answer",
                "Trainings go on, and keep what they log on their own machines: halving doctor",
            )
        elif self._free is not None and is_short(*self._free):
            free, total = self._free
            yield _condition(
                SHORT,
                f"the store has {size(free)} of {size(total)} left",
                "What is not needed any more: halving retention --dry-run. When the disk is full, trainings "
                "keep what they log on their own machines",
            )

    def ends(
        self, open_rows: Mapping[str, AlertConditionRow], holding: Mapping[str, Condition], now: float
    ) -> Iterator[Ended]:
        """What was wrong with the store, and is not any more.

        Args:
            now: by the catalog's clock.
        """
        away = open_rows.get(AWAY)
        # Of two servers only one may have lost the store: the other one must not call it back at each look.
        may_end = self._was_away or (away is not None and now - away.since > _OTHERS_SECONDS)
        if away is not None and may_end and self._away_since is None and self._looked_at > float("-inf"):
            self._was_away = False
            yield Ended(AWAY, "the store answers again")
        # With a margin, so that a disk about the bound is not told again and again.
        has_room = self._free is not None and not is_short(int(self._free[0] / _MARGIN), self._free[1])
        if SHORT in open_rows and has_room and SHORT not in holding:
            yield Ended(SHORT, "the store has enough room again")


def is_short(free: int, total: int) -> bool:
    """Whether so many free bytes of a disk are too few."""
    return free < max(_MIN_BYTES, min(int(_MIN_SHARE * total), _ENOUGH_BYTES))


def _condition(key: str, title: str, text: str) -> Condition:
    alert = Alert(
        key="", event="store short", kind="store", subject="store", title=title, text=text, level="error"
    )
    return Condition(key, alert)

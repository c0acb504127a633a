"""Looks at the catalog and the store: what has happened since the last one, and which alerts that makes."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from halving.store.store import Store
from resources.alerts.alert import Alert
from resources.alerts.outbox import raise_alert
from resources.analysis.run_index.run_alerts import MAX_AGE_SECONDS, SKEW_SECONDS
from resources.catalog import AlertRow, AlertWatchRow, Catalog, RunIndexRow
from resources.watch.bounds import alerts_of_values
from resources.watch.budgets import alerts_of_budgets
from resources.watch.conditions import Condition, Ended, decide, read_conditions, write_conditions
from resources.watch.registry import alerts_of_registry
from resources.watch.rules import Rules
from resources.watch.runs import find_failed, find_recovered
from resources.watch.shortage import StoreLooks
from resources.watch.silence import find_ends, find_silent
from resources.watch.sweeps import alerts_of_sweeps

LOOK_SECONDS = 5.0
"""Time between two looks."""
OVERLAP_SECONDS = 3_600.0
"""How far each look goes back before the last one: workers write the times of sweeps by their own clocks."""
_NOTE_SECONDS = 60.0  # how often a look without news is written down
_BUDGET_SECONDS = 60.0
_AT_ONCE = 500  # keys in a condition of a query


class _Outlook(NamedTuple):
    """What a look has seen: alerts of what happened, and what is wrong now or not any more.

    It began where the look before had ended, at ``since_revision`` of the index, and came to ``revision``.
    """

    since_revision: int
    revision: int
    alerts: list[Alert]
    holding: list[Condition]
    ended: list[Ended]

    @property
    def tells(self) -> bool:
        """Whether there is anything to be told, or to be noted."""
        return bool(self.alerts or self.holding or self.ended)


class Watch:
    """Looks again and again; any number of processes may do so on one catalog.

    What a look raises it raises in one transaction with the place up to which it has looked. So a look that
    is killed is made again, and nothing is told twice, because each alert has a key.
    """

    def __init__(self, catalog: Catalog, store: Store | None = None) -> None:
        self._catalog = catalog
        self._store_looks: StoreLooks | None = None
        if store is not None:
            self._store_looks = StoreLooks(store)
        self._budgets_at = float("-inf")

    def look(self) -> int:
        """Look once, raise what is new, and return how many alerts that made.

        The first look of a catalog raises nothing: it only says from when on things are told.
        """
        if self._store_looks is not None:
            self._store_looks.look()
        with self._catalog.read() as session:
            watch = session.get(AlertWatchRow, 1)
            if watch is not None:
                outlook = self._look(session, watch, self._catalog.now())
                is_news = outlook.tells or outlook.revision != watch.revision
                if not is_news and 0 <= self._catalog.now() - watch.looked_at < _NOTE_SECONDS:
                    return 0
        if watch is None:
            self._begin()
            return 0
        return self._raise(outlook)

    def _begin(self) -> None:
        with self._catalog.write(exclusive=True) as session:
            if session.get(AlertWatchRow, 1) is None:
                now = self._catalog.now()
                session.add(AlertWatchRow(id=1, begun=now, looked_at=now, revision=_revision(session)))

    def _look(self, session: Session, watch: AlertWatchRow, now: float) -> _Outlook:
        revision = _revision(session)
        # The index of a catalog that was restored counts from 0 again: all of it is looked at.
        since_revision = watch.revision
        if revision < since_revision:
            since_revision = 0
        rules = Rules(session)
        open_rows = read_conditions(session)
        since = max(watch.begun - SKEW_SECONDS, now - MAX_AGE_SECONDS)
        holding = {
            condition.key: condition
            for condition in (
                *find_failed(session, since_revision, since),
                *find_silent(session, rules, now),
            )
        }
        ended: list[Ended] = [
            *find_recovered(session, open_rows, since_revision, now),
            *find_ends(session, open_rows, holding),
        ]
        if self._store_looks is not None:
            holding |= {condition.key: condition for condition in self._store_looks.conditions()}
            ended += self._store_looks.ends(open_rows, holding, now)
        new = [condition for key, condition in holding.items() if key not in open_rows]
        once = list(self._once(session, watch, now))
        if revision > since_revision:
            once += alerts_of_values(session, rules, since_revision, since)
        return _Outlook(watch.revision, revision, _without_raised(session, once), new, ended)

    def _once(self, session: Session, watch: AlertWatchRow, now: float) -> Iterator[Alert]:
        """Alerts of what happens at a time, and does not last, beside those of values."""
        since = max(watch.begun - SKEW_SECONDS, now - MAX_AGE_SECONDS)
        looked = min(watch.looked_at, now) - OVERLAP_SECONDS
        from_then_on = datetime.fromtimestamp(max(since, looked), UTC)
        yield from alerts_of_sweeps(session, from_then_on)
        yield from alerts_of_registry(session, from_then_on)
        if time.monotonic() - self._budgets_at >= _BUDGET_SECONDS:
            self._budgets_at = time.monotonic()
            yield from alerts_of_budgets(session, now)

    def _raise(self, outlook: _Outlook) -> int:
        with self._catalog.write(exclusive=True) as session:
            now = self._catalog.now()
            # Another server may have come to the same meanwhile.
            alerts, new, over = decide(read_conditions(session), outlook.holding, outlook.ended, now)
            count = sum(raise_alert(session, alert, now) for alert in [*alerts, *outlook.alerts])
            write_conditions(session, new, over, now)
            is_behind = AlertWatchRow.revision <= outlook.revision
            session.execute(
                update(AlertWatchRow)
                .where(
                    AlertWatchRow.id == 1, or_(is_behind, AlertWatchRow.revision == outlook.since_revision)
                )
                .values(looked_at=now, revision=outlook.revision)
            )
        return count


def _without_raised(session: Session, alerts: list[Alert]) -> list[Alert]:
    raised: set[str] = set()
    for first in range(0, len(alerts), _AT_ONCE):
        keys = [alert.key for alert in alerts[first : first + _AT_ONCE]]
        raised.update(session.scalars(select(AlertRow.key).where(AlertRow.key.in_(keys))))
    return [alert for alert in alerts if alert.key not in raised]


def _revision(session: Session) -> int:
    return session.scalar(select(RunIndexRow.revision)) or 0

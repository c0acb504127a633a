"""The alerts that runs have raised themselves, as they are told to people."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.query.runs import seconds_of
from resources.alerts.alert import Alert, Level
from resources.alerts.outbox import raise_alert
from resources.analysis.run_index.entry import Entry
from resources.catalog import AlertWatchRow

MAX_AGE_SECONDS = 7 * 86_400.0
"""What happened longer ago is not told: it was imported, or no server has run since."""
SKEW_SECONDS = 3_600.0
"""By which the clock of a machine that trains may be behind."""
_MAX_TITLE = 300


def raise_run_alerts(session: Session, entries: Sequence[Entry], now: float) -> None:
    """Raise the alerts that were new when entries were read, but for those from before there was a watch."""
    alerts = [(time, alert) for entry in entries for time, alert in _alerts_of(entry)]
    if not alerts:
        return
    begun = session.scalar(select(AlertWatchRow.begun))
    if begun is None:
        return
    for time, alert in alerts:
        if time >= max(begun - SKEW_SECONDS, now - MAX_AGE_SECONDS):
            raise_alert(session, alert, now)


def _alerts_of(entry: Entry) -> Iterator[tuple[float, Alert]]:
    """A run's new alerts, each with when it raised it by its own clock."""
    run = f"{entry.row['project']}/{entry.row['run']}"
    for name, content in entry.alerts.items():
        time = 0.0
        with contextlib.suppress(KeyError, TypeError, ValueError):
            time = seconds_of(content["time"])
        title = str(content.get("title") or "an alert")[:_MAX_TITLE]
        alert = Alert(
            key=f"logged:{run}:{name}",
            event="logged",
            kind="run",
            subject=run,
            title=f"{run}: {title}",
            text=str(content.get("text") or ""),
            level=_level(content.get("level")),
            project=entry.row["project"],
        )
        yield time, alert


def _level(level: Any) -> Level:
    for accepted in get_args(Level):
        if level == accepted:
            return accepted
    return "info"

"""Alerts of scripts' runs, by the index of runs; those of trials come from their sweeps."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from halving.text import duration
from resources.alerts.alert import Alert
from resources.analysis.run_index.run_alerts import MAX_AGE_SECONDS
from resources.catalog import AlertConditionRow, RunRow
from resources.watch.conditions import Condition, Ended

FAILED = "failed"
_AT_ONCE = 500  # runs in a condition of a query
IS_NO_TRIAL = func.coalesce(RunRow.sweep, "") == ""
IS_ACTIVE = func.coalesce(RunRow.lifecycle, "active") == "active"
"""Both are written so that SQLite finds no index for them: it would read all such runs, and few are new."""
_SAVED = "Its record and its points: halving show {run}"
_UNSAVED = (
    "Its last points may still be on the machine that trained it: halving recover saves them there, and so "
    "does its next attempt"
)
# By status: the event, and what to do. A run that has no end is unfinished until its journal is recovered.
_ENDS = {
    "crashed": ("crashed", _SAVED),
    "unfinished": ("crashed", _UNSAVED),
    "failed": ("failed", _SAVED),
}


_COLUMNS = [
    getattr(RunRow, name) for name in ("project", "run", "status", "lifecycle", "attempt", "progressed_at")
]


def find_failed(session: Session, revision: int, since: float) -> Iterator[Condition]:
    """Runs of scripts that the index has read as failed or crashed since a revision.

    Args:
        revision: that of the last look.
        since: runs that ended before that are left out; in seconds since the epoch.
    """
    ended = func.coalesce(RunRow.ended, RunRow.started + func.coalesce(RunRow.seconds, 0.0))
    rows = session.scalars(
        select(RunRow)
        .where(RunRow.revision > revision, IS_NO_TRIAL, IS_ACTIVE)
        .where(RunRow.status.in_(list(_ENDS)))
        .where(ended >= since)
        .order_by(RunRow.revision)
    )
    for row in rows:
        alert = _alert(row)
        yield Condition(f"{FAILED}:{alert.subject}:{row.attempt}", alert, row.attempt, repeats=False)


def find_recovered(
    session: Session, open_rows: Mapping[str, AlertConditionRow], revision: int, now: float
) -> Iterator[Ended]:
    """Runs that failed or crashed, and have gone on since.

    Args:
        revision: that of the last look; runs that have not changed since have not gone on.
    """
    failed = {key: row for key, row in open_rows.items() if key.startswith(f"{FAILED}:")}
    runs = _changed_runs(session, revision)
    for key, open_row in failed.items():
        row = runs.get(open_row.subject)
        if open_row.since < now - MAX_AGE_SECONDS:
            yield Ended(key, None)
        elif row is None:
            continue
        elif row.lifecycle != "active":
            yield Ended(key, None)
        elif row.attempt > (open_row.attempt or 0):
            yield Ended(key, f"{open_row.subject} goes on in attempt {row.attempt}")
        elif row.status == "running":
            yield Ended(key, f"{open_row.subject} is running: its machine was only not reached")


def _changed_runs(session: Session, revision: int) -> dict[str, Any]:
    rows = session.execute(select(*_COLUMNS).where(RunRow.revision > revision))
    return {f"{row.project}/{row.run}": row for row in rows}


def read_runs(session: Session, open_rows: Iterable[AlertConditionRow]) -> dict[str, Any]:
    """How the runs of conditions are now, by what the conditions are about."""
    runs = {}
    subjects = sorted({tuple(row.subject.split("/", 1)) for row in open_rows})
    for first in range(0, len(subjects), _AT_ONCE):
        part = subjects[first : first + _AT_ONCE]
        for row in session.execute(select(*_COLUMNS).where(tuple_(RunRow.project, RunRow.run).in_(part))):
            runs[f"{row.project}/{row.run}"] = row
    return runs


def _alert(row: RunRow) -> Alert:
    event, advice = _ENDS[row.status]
    run = f"{row.project}/{row.run}"
    title = f"{run} {event}"
    if row.seconds is not None:
        title += f" after {duration(row.seconds)}"
    if row.epoch:
        title += f", at epoch {row.epoch}"
    if row.attempt > 1:
        title += f", in attempt {row.attempt}"
    return Alert(
        # The time is part of it, because a run that was only not reached may crash in truth later.
        key=f"run:{run}:{row.attempt}:{event}:{row.seconds or 0.0:.0f}",
        event=event,
        kind="run",
        subject=run,
        title=title,
        text=advice.format(run=run),
        level="error",
        project=row.project,
    )

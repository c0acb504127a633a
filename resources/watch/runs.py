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


def find_failed(session: Session, revision: int, since: float) -> Iterator[Condition]:
    """Runs of scripts that the index has read as failed or crashed since a revision.

    Args:
        revision: that of the last look.
        since: runs that ended before that are left out; in seconds since the epoch.
    """
    ended = func.coalesce(RunRow.ended, RunRow.started + func.coalesce(RunRow.seconds, 0.0))
    rows = session.scalars(
        select(RunRow)
        .where(RunRow.revision > revision, RunRow.sweep.is_(None), RunRow.lifecycle == "active")
        .where(RunRow.status.in_(list(_ENDS)))
        .where(ended >= since)
        .order_by(RunRow.revision)
    )
    for row in rows:
        alert = _alert(row)
        yield Condition(f"{FAILED}:{alert.subject}:{row.attempt}", alert, row.attempt, repeats=False)


def find_recovered(
    session: Session, open_rows: Mapping[str, AlertConditionRow], now: float
) -> Iterator[Ended]:
    """Runs that failed or crashed, and have gone on since."""
    failed = {key: row for key, row in open_rows.items() if key.startswith(f"{FAILED}:")}
    runs = read_runs(session, failed.values())
    for key, open_row in failed.items():
        row = runs.get(open_row.subject)
        if row is None or row.lifecycle != "active" or open_row.since < now - MAX_AGE_SECONDS:
            yield Ended(key, None)
        elif row.attempt > (open_row.attempt or 0):
            yield Ended(key, f"{open_row.subject} goes on in attempt {row.attempt}")
        elif row.status == "running":
            yield Ended(key, f"{open_row.subject} is running: its machine was only not reached")


def read_runs(session: Session, open_rows: Iterable[AlertConditionRow]) -> dict[str, Any]:
    """How the runs of conditions are now, by what the conditions are about."""
    columns = (
        RunRow.project,
        RunRow.run,
        RunRow.status,
        RunRow.lifecycle,
        RunRow.attempt,
        RunRow.progressed_at,
    )
    runs = {}
    subjects = sorted({tuple(row.subject.split("/", 1)) for row in open_rows})
    for first in range(0, len(subjects), _AT_ONCE):
        part = subjects[first : first + _AT_ONCE]
        for row in session.execute(select(*columns).where(tuple_(RunRow.project, RunRow.run).in_(part))):
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

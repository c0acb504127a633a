"""Silence: a run that is said to train, and whose own metrics do not go on.

All times are by the database's clock, as the index has seen them: when a run's metrics last went on, and when
it was last looked at. So no clock of a machine that trains can raise a false alert, nor can a server that was
down, because a run counts as silent only up to the last look at it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.text import duration
from resources.alerts.alert import Alert
from resources.analysis.run_index.entry import OPEN_SECONDS
from resources.catalog import AlertConditionRow, RunRow
from resources.watch.conditions import Condition, Ended
from resources.watch.rules import Rules

SILENT = "silent"


def silent_seconds(progressed_at: float, looked_at: float) -> float:
    """How long a run has been silent at the last look at it; 0 if the clock was set back since."""
    return max(0.0, looked_at - progressed_at)


def looked_at(look_again: float) -> float:
    """The time of the last look at a running run, or a little before it, by the time of the next one."""
    return look_again - OPEN_SECONDS


def find_silent(session: Session, rules: Rules, now: float) -> Iterator[Condition]:
    """Running runs that have been silent for longer than they or their project may be."""
    # Runs that train are looked at every few seconds, so their next look is near; this has an index.
    query = select(RunRow).where(
        RunRow.look_again <= now + 2 * OPEN_SECONDS, RunRow.status == "running", RunRow.lifecycle == "active"
    )
    if not rules.limit_silence:
        query = query.where(RunRow.silent_after.is_not(None))
    for row in session.scalars(query):
        limit = row.silent_after
        rule = rules.of(row.project)
        if limit is None and rule is not None:
            limit = rule.silent_after
        if limit is None or row.progressed_at <= 0:
            continue
        seconds = silent_seconds(row.progressed_at, looked_at(row.look_again))
        if seconds > limit:
            yield _condition(row, seconds, limit)


def find_ends(
    session: Session, open_rows: Mapping[str, AlertConditionRow], silent: Mapping[str, Condition]
) -> Iterator[Ended]:
    """Conditions of runs that were silent, and log again or have ended."""
    for key, open_row in open_rows.items():
        if open_row.event != SILENT or key in silent:
            continue
        project, _, run = open_row.subject.partition("/")
        row = session.scalar(select(RunRow).where(RunRow.project == project, RunRow.run == run))
        if row is None or row.lifecycle != "active":
            yield Ended(key, None)
        elif row.status != "running":
            # Whoever was told that it is silent hears how it ended; failures are told by themselves.
            text = None
            if row.status == "finished":
                text = f"{open_row.subject} has finished"
            yield Ended(key, text)
        elif row.progressed_at > open_row.since:
            yield Ended(key, f"{open_row.subject} logs again")


def _condition(row: Any, seconds: float, limit: float) -> Condition:
    run = f"{row.project}/{row.run}"
    alert = Alert(
        key="",
        event=SILENT,
        kind="run",
        subject=run,
        title=f"{run} has logged nothing for {duration(seconds)}",
        text=(
            f"Its limit is {duration(limit)}. Its process lives, or its machine is not reached: look at what "
            "it waits for (data, another rank, a lock), or end it"
        ),
        level="warn",
        project=row.project,
    )
    return Condition(f"{SILENT}:{run}:{row.attempt}", alert, row.attempt)

"""Silence: a run that is said to train, and whose own metrics do not go on.

All times are by the database's clock, as the index has seen them: when a run's metrics last went on, and when
it was last read. So no clock of a machine that trains can raise a false alert, nor can a server that was
down, because a run counts as silent only up to the last time that it was read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from halving.text import duration
from resources.alerts.alert import Alert
from resources.analysis.run_index.entry import OPEN_SECONDS
from resources.catalog import AlertConditionRow, RunRow
from resources.watch.conditions import Condition, Ended
from resources.watch.rules import Rules
from resources.watch.runs import IS_ACTIVE, read_runs

SILENT = "silent"


def silent_seconds(progressed_at: float, read_at: float) -> float:
    """How long a run had been silent when it was last read; 0 if the clock was set back since."""
    return max(0.0, read_at - progressed_at)


def find_silent(session: Session, rules: Rules, now: float) -> Iterator[Condition]:
    """Running runs that have been silent for longer than they or their project may be."""
    # Runs that train are looked at every few seconds, so their next look is near; this has an index.
    query = select(RunRow).where(
        RunRow.look_again <= now + 2 * OPEN_SECONDS, RunRow.status == "running", IS_ACTIVE
    )
    if rules.shortest_silence is None:
        query = query.where(RunRow.silent_after.is_not(None))
    # The database leaves out nearly all, since most runs log.
    limit_of_run = func.coalesce(RunRow.silent_after, rules.shortest_silence or 0.0)
    query = query.where(RunRow.read_at - RunRow.progressed_at > limit_of_run)
    for row in session.scalars(query):
        limit = row.silent_after
        rule = rules.of(row.project)
        if limit is None and rule is not None:
            limit = rule.silent_after
        if limit is None or row.progressed_at <= 0:
            continue
        seconds = silent_seconds(row.progressed_at, row.read_at)
        if seconds > limit:
            yield _condition(row, seconds, limit)


def find_ends(
    session: Session, open_rows: Mapping[str, AlertConditionRow], silent: Mapping[str, Condition]
) -> Iterator[Ended]:
    """Conditions of runs that were silent, and log again or have ended."""
    quiet = {key: row for key, row in open_rows.items() if row.event == SILENT and key not in silent}
    runs = read_runs(session, quiet.values())
    for key, open_row in quiet.items():
        row = runs.get(open_row.subject)
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

"""Trials that their sweep stopped: their records say ``paused``, since the process that trained could not know that they never go on.

The catalog knows: a trial has stopped, or its sweep has ended. The index then says ``stopped``, for the records stay as they are.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Select, and_, literal_column, or_, select, tuple_, update

from resources.analysis.run_index.entry import Entry
from resources.analysis.run_index.write import count_revision
from resources.catalog import Catalog, RunIndexRow, RunRow, SweepRow, TrialRow
from resources.search.state import Status

PAUSED, STOPPED = "paused", "stopped"
_AT_ONCE = 500  # values in a condition
_IS_PAUSED = RunRow.status == literal_column("'paused'")  # as the index of such rows says it; a parameter would be another condition
_ENDED_WITH_ITS_SWEEP = and_(SweepRow.status != "searching", TrialRow.status.not_in([Status.COMPLETED.value, Status.RUNNING.value]))


def with_outcomes(catalog: Catalog, entries: Sequence[Entry]) -> list[Entry]:
    """Give entries as they are to be written: a trial that is paused and never goes on is stopped."""
    paused = [key for entry in entries if (key := _trial_of(entry))]
    never_goes_on = or_(TrialRow.status == Status.STOPPED.value, _ENDED_WITH_ITS_SWEEP)
    stopped: set[tuple[str, int]] = set()
    with catalog.read() as session:
        for first in range(0, len(paused), _AT_ONCE):
            part = tuple_(TrialRow.sweep, TrialRow.number).in_(paused[first : first + _AT_ONCE])
            trials = select(TrialRow.sweep, TrialRow.number).join(SweepRow, SweepRow.id == TrialRow.sweep)
            stopped |= {(sweep, number) for sweep, number in session.execute(trials.where(part, never_goes_on))}
    return [replace(entry, row={**entry.row, "status": STOPPED}) if _trial_of(entry) in stopped else entry for entry in entries]


def stop_ended(catalog: Catalog) -> int:
    """Say of paused runs that they are stopped, where their sweep has ended meanwhile; how many there were.

    Runs that are to be read again are left to that: a new revision would say that they have been.
    """
    total = 0
    while True:
        with catalog.read() as session:
            runs = session.scalars(_ended_runs()).all()
        if not runs:
            return total
        with catalog.write() as session:
            revision = count_revision(session)
            session.execute(update(RunRow).where(RunRow.id.in_(runs), _IS_PAUSED).values(status=STOPPED, revision=revision))
        total += len(runs)


def _ended_runs() -> Select[int]:
    runs = select(RunRow.id).join(SweepRow, SweepRow.id == RunRow.sweep)
    runs = runs.join(TrialRow, and_(TrialRow.sweep == RunRow.sweep, TrialRow.number == RunRow.trial))
    stale_below = select(RunIndexRow.stale_below).scalar_subquery()
    is_read = RunRow.revision - stale_below >= 0  # a plain comparison would be looked up in the index of revisions, which has all runs
    return runs.where(_IS_PAUSED, _ENDED_WITH_ITS_SWEEP, is_read).limit(_AT_ONCE)


def _trial_of(entry: Entry) -> tuple[str, int] | None:
    sweep, trial = entry.row["sweep"], entry.row["trial"]
    return (sweep, trial) if entry.row["status"] == PAUSED and sweep is not None and trial is not None and trial < 2**31 else None

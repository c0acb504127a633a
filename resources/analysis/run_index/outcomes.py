"""Trials that their sweep stopped: their records say ``paused``, since the process that trained could not
know that they never go on.

The catalog knows: a trial has stopped, or its sweep has ended. The index and ``halving runs`` then say
``stopped``, for the records stay as they are.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from sqlalchemy import Select, and_, literal_column, or_, select, tuple_, update

from halving.query.runs import RunInfo
from resources.analysis.run_index.entry import Entry
from resources.analysis.run_index.write import count_revision
from resources.catalog import Catalog, RunIndexRow, RunRow, SweepRow, TrialRow
from resources.search.state import Status

Trial: TypeAlias = tuple[str, int]
"""A trial by its sweep and its number."""
PAUSED = "paused"
STOPPED = "stopped"
_AT_ONCE = 500  # values in a condition
# as the index of such rows says it; a parameter would be another condition
_IS_PAUSED = RunRow.status == literal_column("'paused'")
_ENDED_WITH_ITS_SWEEP = and_(
    SweepRow.status != "searching", TrialRow.status.not_in([Status.COMPLETED.value, Status.RUNNING.value])
)


def with_outcomes(catalog: Catalog, entries: Sequence[Entry]) -> list[Entry]:
    """Give entries as they are to be written: a trial that is paused and never goes on is stopped."""
    stopped = _stopped_trials(catalog, [trial for entry in entries if (trial := _paused_trial(entry))])
    return [
        replace(entry, row={**entry.row, "status": STOPPED}) if _paused_trial(entry) in stopped else entry
        for entry in entries
    ]


def with_stopped_runs(catalog: Catalog, runs: Sequence[RunInfo]) -> list[RunInfo]:
    """Give runs that were read from their records as the catalog knows them: a trial that is paused and never
    goes on is stopped.
    """
    stopped = _stopped_trials(catalog, [trial for run in runs if (trial := _trial_of_paused(run))])
    return [_stopped(run) if _trial_of_paused(run) in stopped else run for run in runs]


def _stopped(run: RunInfo) -> RunInfo:
    newest = replace(run.attempts[-1], status=STOPPED)
    return replace(run, attempts=(*run.attempts[:-1], newest))


def _stopped_trials(catalog: Catalog, trials: Sequence[Trial]) -> set[Trial]:
    """Those of the trials that never go on. Where there are none, the catalog is not asked."""
    if not trials:
        return set()
    never_goes_on = or_(TrialRow.status == Status.STOPPED.value, _ENDED_WITH_ITS_SWEEP)
    stopped: set[Trial] = set()
    with catalog.read() as session:
        for first in range(0, len(trials), _AT_ONCE):
            part = tuple_(TrialRow.sweep, TrialRow.number).in_(trials[first : first + _AT_ONCE])
            rows = select(TrialRow.sweep, TrialRow.number).join(SweepRow, SweepRow.id == TrialRow.sweep)
            stopped |= {(sweep, number) for sweep, number in session.execute(rows.where(part, never_goes_on))}
    return stopped


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
            session.execute(
                update(RunRow)
                .where(RunRow.id.in_(runs), _IS_PAUSED)
                .values(status=STOPPED, revision=revision)
            )
        total += len(runs)


def _ended_runs() -> Select[int]:
    runs = select(RunRow.id).join(SweepRow, SweepRow.id == RunRow.sweep)
    runs = runs.join(TrialRow, and_(TrialRow.sweep == RunRow.sweep, TrialRow.number == RunRow.trial))
    stale_below = select(RunIndexRow.stale_below).scalar_subquery()
    # a plain comparison would be looked up in the index of revisions, which has all runs
    is_read = RunRow.revision - stale_below >= 0
    return runs.where(_IS_PAUSED, _ENDED_WITH_ITS_SWEEP, is_read).limit(_AT_ONCE)


def _paused_trial(entry: Entry) -> Trial | None:
    return _trial(entry.row["sweep"], entry.row["trial"]) if entry.row["status"] == PAUSED else None


def _trial_of_paused(run: RunInfo) -> Trial | None:
    return _trial(run.parent.get("sweep"), run.parent.get("trial")) if run.status == PAUSED else None


def _trial(sweep: Any, number: Any) -> Trial | None:
    """A trial by what a record says, or None where it names none that the catalog could have."""
    is_number = isinstance(number, int) and not isinstance(number, bool)
    return (sweep, number) if isinstance(sweep, str) and is_number and 0 <= number < 2**31 else None

"""The status of trials that their sweep stopped after they had paused.

Their records say ``paused``, because the training process could not know that they never go on. The catalog
knows it, if the trial has stopped or its sweep has ended. The index and ``halving runs`` then say
``stopped``; the records stay as they are.
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
# A literal as in the partial index of such rows; a parameter would not match its condition.
_IS_PAUSED = RunRow.status == literal_column("'paused'")
_ENDED_WITH_ITS_SWEEP = and_(
    SweepRow.status != "searching", TrialRow.status.not_in([Status.COMPLETED.value, Status.RUNNING.value])
)


def with_outcomes(catalog: Catalog, entries: Sequence[Entry]) -> list[Entry]:
    """The entries with status ``stopped`` for paused trials that never go on."""
    paused = [_paused_trial(entry) for entry in entries]
    stopped = _stopped_trials(catalog, [trial for trial in paused if trial])
    decided = []
    for entry, trial in zip(entries, paused, strict=True):
        if trial in stopped:
            entry = replace(entry, row={**entry.row, "status": STOPPED})
        decided.append(entry)
    return decided


def with_stopped_runs(catalog: Catalog, runs: Sequence[RunInfo]) -> list[RunInfo]:
    """The runs with status ``stopped`` for paused trials that never go on."""
    paused = [_trial_of_paused(run) for run in runs]
    stopped = _stopped_trials(catalog, [trial for trial in paused if trial])
    decided = []
    for run, trial in zip(runs, paused, strict=True):
        if trial in stopped:
            newest = replace(run.attempts[-1], status=STOPPED)
            run = replace(run, attempts=(*run.attempts[:-1], newest))
        decided.append(run)
    return decided


def _stopped_trials(catalog: Catalog, trials: Sequence[Trial]) -> set[Trial]:
    """The trials among these that never go on; without trials the catalog is not queried."""
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
    """Set paused runs to ``stopped`` if their sweep has ended since; return how many there were.

    Runs that are still to be read again are left out, because a new revision would mark them as read.
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
    # Written as a difference, because a comparison would use the index of revisions, which has all runs.
    is_read = RunRow.revision - stale_below >= 0
    return runs.where(_IS_PAUSED, _ENDED_WITH_ITS_SWEEP, is_read).limit(_AT_ONCE)


def _paused_trial(entry: Entry) -> Trial | None:
    if entry.row["status"] != PAUSED:
        return None
    return _trial(entry.row["sweep"], entry.row["trial"])


def _trial_of_paused(run: RunInfo) -> Trial | None:
    if run.status != PAUSED:
        return None
    return _trial(run.parent.get("sweep"), run.parent.get("trial"))


def _trial(sweep: Any, number: Any) -> Trial | None:
    """The trial that a record names; None if the catalog cannot have it."""
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if isinstance(sweep, str) and is_number and 0 <= number < 2**31:
        return sweep, number
    return None

"""Entries of runs: when they began and ended, by the index of runs, and trials' attempts that failed.

Of a sweep's trials the journal of a project has only failures, because a large sweep would fill it; the
sweep's own journal has all of them.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, literal_column, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from halving.text import duration
from resources.analysis.reasons import short_reason
from resources.analysis.run_index.select import time_of
from resources.catalog import AttemptRow, RunRow, SweepRow
from resources.catalog.index_tables import IS_LONE_AND_ACTIVE
from resources.catalog.trial_key import trial_key
from resources.journal.entries import Entry, Question
from resources.journal.order import Cursor, seconds_of

BEGAN = "run began"
ENDED = "run ended"
FAILED = "attempt failed"

# Literals as in the partial indexes of these rows; parameters would not match their conditions.
_IS_ALONE: ColumnElement[bool] = literal_column(IS_LONE_AND_ACTIVE)
_HAS_FAILED = AttemptRow.outcome.in_([literal_column("'fail'"), literal_column("'retry'")])
_FAILURES = ("failed", "crashed")
_DIVERGED = re.compile(r"\bDiverged: |\bbecame \S+ at (step|epoch) \d+")


class _Run(NamedTuple):
    project: str
    run: str
    status: str
    started: float
    ended: float | None
    seconds: float | None
    attempt: int
    epoch: int | None


def find_begins(session: Session, question: Question) -> list[Entry]:
    """Runs that began."""
    entries = []
    for run in _runs(session, question, BEGAN, RunRow.started):
        summary = "began"
        if run.status == "running":
            summary = "began, and is running"
        elif run.status == "unfinished":
            summary = "began; no end was recorded"
        entries.append(_entry(run, BEGAN, run.started, "began", summary))
    return entries


def find_ends(session: Session, question: Question) -> list[Entry]:
    """Runs that ended, with how they did."""
    entries = []
    has_ended = [RunRow.status != "running"]
    if question.subject is not None and (question.subject.kind == "sweep" or question.subject.sweep):
        has_ended.append(RunRow.status.not_in(_FAILURES))  # Their attempts say why they failed, and when.
    for run in _runs(session, question, ENDED, RunRow.ended, *has_ended):
        assert run.ended is not None  # the window leaves such rows out
        summary = run.status
        if run.seconds is not None:
            summary += f" after {duration(run.seconds)}"
        if run.epoch:
            summary += f", at epoch {run.epoch}"
        if run.attempt > 1:
            summary += f", in attempt {run.attempt}"
        entries.append(_entry(run, ENDED, run.ended, run.status, summary))
    return entries


def find_failures(session: Session, question: Question) -> list[Entry]:
    """Attempts at trials that failed or crashed, each with the reason."""
    query: Select[AttemptRow, str] = select(AttemptRow, SweepRow.project)
    query = query.join(SweepRow, SweepRow.id == AttemptRow.sweep).where(_HAS_FAILED)
    subject = question.subject
    if subject is None:
        if question.projects is not None:
            query = query.where(SweepRow.project.in_(question.projects))
    elif subject.kind == "project":
        query = query.where(SweepRow.project.in_(subject.names))
    elif subject.kind == "sweep":
        query = query.where(AttemptRow.sweep == subject.name)
    elif subject.sweep is not None:
        sweep, trial = subject.sweep
        query = query.where(AttemptRow.sweep == sweep, AttemptRow.trial == trial)
    else:
        return []
    key = [AttemptRow.sweep, AttemptRow.trial, AttemptRow.attempt]
    query = question.window.cut(session, query, FAILED, AttemptRow.ended_at, key)
    return [_failure(row, project) for row, project in session.execute(query)]


def _failure(row: AttemptRow, project: str) -> Entry:
    assert row.ended_at is not None  # the window leaves such rows out
    place = Cursor(seconds_of(row.ended_at), FAILED, (row.sweep, row.trial, row.attempt))
    reason = short_reason(row.error)
    what = "failed"
    if reason is not None and _DIVERGED.search(reason):
        what = "diverged"
    elif row.outcome == "retry":
        what = "crashed"
    summary = f"{what} in attempt {row.attempt}"
    if row.outcome == "retry":
        summary += ", and is tried again"
    if reason is not None:
        summary += f": {reason}"
    run = f"{project}/{trial_key(row.sweep, row.trial)}"
    return Entry(place, row.ended_at, what, "run", run, project, None, summary)


def _runs(
    session: Session,
    question: Question,
    source: str,
    time: InstrumentedAttribute[Any],
    *conditions: ColumnElement[bool],
) -> list[_Run]:
    runs: list[_Run] = []
    for which in _choices(question):
        query = select(*(getattr(RunRow, name) for name in _Run._fields)).where(which, *conditions)
        query = question.window.cut(
            session, query, source, time, [RunRow.project, RunRow.run], in_seconds=True
        )
        runs += [_Run(*row) for row in session.execute(query)]
    return runs


def _choices(question: Question) -> Sequence[ColumnElement[bool]]:
    """Which runs are asked for; a project at a time, because only so their index is in the order of time."""
    subject = question.subject
    if subject is None:
        if question.projects is None:
            return [_IS_ALONE]
        return [and_(_IS_ALONE, RunRow.project == project) for project in question.projects]
    if subject.kind == "project":
        return [and_(_IS_ALONE, RunRow.project == project) for project in subject.names]
    if subject.kind == "sweep":
        return [and_(RunRow.sweep == subject.name, RunRow.lifecycle != "deleted")]
    if subject.kind == "run":
        return [and_(RunRow.project == subject.project, RunRow.run == subject.run)]
    return []


def _entry(run: _Run, source: str, seconds: float, what: str, summary: str) -> Entry:
    at = time_of(seconds)
    assert at is not None
    place = Cursor(seconds, source, (run.project, run.run))
    return Entry(place, at, what, "run", f"{run.project}/{run.run}", run.project, None, summary)

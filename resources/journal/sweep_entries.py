"""Entries of sweeps: asked for, opened, controlled, ended with a winner, and judged by a report."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.catalog import (
    IntentRow,
    ModelVersionRow,
    ReportRow,
    RungResultRow,
    SweepControlRow,
    SweepRow,
    TrialRow,
)
from resources.catalog.trial_key import trial_key
from resources.journal.entries import Entry, Question
from resources.journal.order import Cursor, seconds_of
from resources.scheduling.intents import FAILED, project_of
from resources.scheduling.training_runs import first_run
from resources.search.rules import max_trials
from resources.sweep_spec import SweepSpec, stored_spec

REQUESTED = "asked for"
CREATED = "sweep created"
CONTROLLED = "sweep controlled"
ENDED = "sweep ended"
REPORTED = "report"

_CONTROLS = {"pause": "paused", "run": "resumed", "stop": "stopped", "extend": "extended"}
_ENDS = {
    "rejected": "rejected: a gate failed",
    "held": "held: a gate had too little evidence",
}
_SHOWN_METRICS = 4


def find_requests(session: Session, question: Question) -> list[Entry]:
    """Sweeps and training runs that the API was asked for."""
    query: Select[IntentRow] = select(IntentRow)
    spec = IntentRow.payload["spec"]
    project = func.coalesce(spec["project"].as_string(), spec["name"].as_string())
    conditions = _of(question, IntentRow.sweep, project)
    if conditions is None:
        return []
    query = query.where(*conditions)
    if question.kind == "run":
        query = query.where(IntentRow.kind == "training-run")
    elif question.kind == "sweep":
        query = query.where(IntentRow.kind != "training-run")
    query = question.window.cut(session, query, REQUESTED, IntentRow.created_at, [IntentRow.id])
    entries = []
    for row in session.scalars(query):
        place = Cursor(seconds_of(row.created_at), REQUESTED, (row.id,))
        kind = "sweep"
        subject = row.sweep
        summary = "a sweep was asked for"
        if row.kind == "training-run":
            kind = "run"
            subject = f"{project_of(row)}/{first_run(row.sweep)}"
            summary = "a training run was asked for"
        if row.status == FAILED:
            summary += f"; it could not be opened: {row.error}"
        elif row.error is not None:
            summary += f"; {row.error}"
        entries.append(
            Entry(place, row.created_at, REQUESTED, kind, subject, project_of(row), row.actor, summary)
        )
    return entries


def find_created(session: Session, question: Question) -> list[Entry]:
    """Sweeps that were opened."""
    conditions = _of(question, SweepRow.id, SweepRow.project)
    if conditions is None:
        return []
    query = select(SweepRow).where(*conditions)
    query = question.window.cut(session, query, CREATED, SweepRow.created_at, [SweepRow.id])
    entries = []
    for row in session.scalars(query):
        place = Cursor(seconds_of(row.created_at), CREATED, (row.id,))
        spec = _spec_of(row)
        summary = "created"
        if spec is not None:
            trials = row.max_trials or max_trials(spec)
            summary = f"created: {spec.strategy.name}, up to {trials} trials, {_aim(spec)}"
        entries.append(Entry(place, row.created_at, "created", "sweep", row.id, row.project, None, summary))
    return entries


def find_controls(session: Session, question: Question) -> list[Entry]:
    """Pauses, resumptions, stops and extensions."""
    conditions = _of(question, SweepControlRow.sweep, SweepRow.project)
    if conditions is None:
        return []
    query: Select[SweepControlRow, str] = select(SweepControlRow, SweepRow.project)
    query = query.join(SweepRow, SweepRow.id == SweepControlRow.sweep).where(*conditions)
    query = question.window.cut(session, query, CONTROLLED, SweepControlRow.at, [SweepControlRow.id])
    entries = []
    for row, project in session.execute(query):
        place = Cursor(seconds_of(row.at), CONTROLLED, (row.id,))
        what = _CONTROLS[row.control]
        summary = what
        if row.max_trials is not None:
            summary += f" to {row.max_trials} trials"
        entries.append(Entry(place, row.at, what, "sweep", row.sweep, project, row.actor, summary))
    return entries


def find_ended(session: Session, question: Question) -> list[Entry]:
    """Sweeps that ended, each with its winner."""
    conditions = _of(question, SweepRow.id, SweepRow.project)
    if conditions is None:
        return []
    query = select(SweepRow).where(*conditions)
    query = question.window.cut(session, query, ENDED, SweepRow.finished_at, [SweepRow.id])
    rows = list(session.scalars(query))
    winners = _winners(session, rows)
    entries = []
    for row in rows:
        assert row.finished_at is not None  # the window leaves such rows out
        place = Cursor(seconds_of(row.finished_at), ENDED, (row.id,))
        summary = _ENDS.get(row.status, row.status)
        if row.id in winners:
            summary += f"; {winners[row.id]}"
        entries.append(Entry(place, row.finished_at, row.status, "sweep", row.id, row.project, None, summary))
    return entries


def find_reports(session: Session, question: Question) -> list[Entry]:
    """Evaluation reports, with the winner's scores on held-out data."""
    conditions = _of(question, ReportRow.sweep, SweepRow.project)
    if conditions is None:
        return []
    query: Select[ReportRow, str] = select(ReportRow, SweepRow.project)
    query = query.join(SweepRow, SweepRow.id == ReportRow.sweep).where(*conditions)
    query = question.window.cut(session, query, REPORTED, ReportRow.created_at, [ReportRow.sweep])
    entries = []
    for row, project in session.execute(query):
        place = Cursor(seconds_of(row.created_at), REPORTED, (row.sweep,))
        summary = f"report on the winner: {_scores(row.metrics)}"
        entries.append(Entry(place, row.created_at, "report", "sweep", row.sweep, project, None, summary))
    return entries


def _of(question: Question, sweep: Any, project: Any) -> Sequence[ColumnElement[bool]] | None:
    """The conditions on rows of sweeps; None if the question is of something that has none."""
    subject = question.subject
    if subject is None:
        return [] if question.projects is None else [project.in_(question.projects)]
    if subject.kind == "project":
        return [project.in_(subject.names)]
    if subject.kind == "sweep":
        return [sweep == subject.name]
    return None


def _spec_of(row: SweepRow) -> SweepSpec | None:
    try:
        return stored_spec(row.spec)
    except InvalidInput:  # Another version stored it.
        return None


def _aim(spec: SweepSpec) -> str:
    return f"{spec.objective.direction} {spec.objective.metric}"


def _winners(session: Session, rows: Sequence[SweepRow]) -> dict[str, str]:
    """Each ended sweep's winner in words: its trial, the objective, and the version that it became."""
    specs = {row.id: spec for row in rows if (spec := _spec_of(row)) is not None}
    leaders = _leading_results(session, specs)
    versions = {
        version.sweep: version
        for version in session.scalars(select(ModelVersionRow).where(ModelVersionRow.sweep.in_(specs)))
    }
    winners = {}
    for sweep, spec in specs.items():
        parts = []
        version = versions.get(sweep)
        leader = leaders.get(sweep)
        if version is not None and version.trial is not None:
            parts.append(
                f"winner {trial_key(sweep, version.trial)}, which is {version.model} {version.version}"
            )
        if leader is not None:
            trial, value = leader
            parts.append(f"best {spec.objective.metric} {value:.6g} by {trial_key(sweep, trial)}")
        if parts:
            winners[sweep] = "; ".join(parts)
    return winners


def _leading_results(session: Session, specs: dict[str, SweepSpec]) -> dict[str, tuple[int, float]]:
    """The trial and the value of each sweep's best result among those with the most epochs, in bounds."""
    result = RungResultRow
    counts = (
        result.sweep.in_(specs),
        result.value.is_not(None),
        result.violation == 0,
        TrialRow.final.is_(None),
    )
    is_trial = (TrialRow.sweep == result.sweep) & (TrialRow.number == result.trial)
    longest = (
        select(result.sweep, func.max(result.epochs).label("epochs"))
        .join(TrialRow, is_trial)
        .where(*counts)
        .group_by(result.sweep)
        .subquery()
    )
    query = (
        select(result.sweep, result.trial, result.value)
        .join(longest, (longest.c.sweep == result.sweep) & (longest.c.epochs == result.epochs))
        .join(TrialRow, is_trial)
        .where(*counts)
        .order_by(result.sweep, result.trial)
    )
    leaders: dict[str, tuple[int, float]] = {}
    for sweep, trial, value in session.execute(query):
        assert value is not None  # the query leaves such rows out
        leader = leaders.get(sweep)
        sign = 1 if specs[sweep].objective.maximize else -1
        if leader is None or sign * value > sign * leader[1]:
            leaders[sweep] = (trial, value)
    return leaders


def _scores(metrics: dict[str, Any]) -> str:
    texts = []
    for name, value in list(metrics.items())[:_SHOWN_METRICS]:
        text = "not finite"
        if isinstance(value, int | float):
            text = f"{value:.4f}"
        texts.append(f"{name} {text}")
    return ", ".join(texts) or "no scores"

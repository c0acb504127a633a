"""Entries of the registry and of datasets: decisions about versions, and snapshots that were taken."""

from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.orm import Session

from resources.catalog import ModelVersionRow, RegistryEventRow, SnapshotRow, SweepRow
from resources.datasets.snapshot_catalog import snapshot_key
from resources.journal.entries import Entry, Question
from resources.journal.order import Cursor, seconds_of
from resources.journal.subjects import Subject
from resources.registry.events import MANIFEST, describe_event

REGISTRY = "registry"
SNAPSHOT = "snapshot"


def find_registry_events(session: Session, question: Question) -> list[Entry]:
    """What was decided about models and versions; writing a manifest is no news."""
    query: Select[RegistryEventRow] = select(RegistryEventRow).where(RegistryEventRow.kind != MANIFEST)
    if question.subject is not None:
        condition = _about(session, question.subject)
        if condition is None:
            return []
        query = query.where(condition)
    elif question.projects is not None:
        query = query.where(RegistryEventRow.model.in_(question.projects))
    query = question.window.cut(session, query, REGISTRY, RegistryEventRow.at, [RegistryEventRow.id])
    return [_registry_entry(row) for row in session.scalars(query)]


def _about(session: Session, subject: Subject) -> ColumnElement[bool] | None:
    """The events of a subject's models, or of the versions that a sweep or a run became."""
    event = RegistryEventRow
    if subject.kind == "project":
        return event.model.in_(subject.names)
    if subject.kind == "model":
        of_model: ColumnElement[bool] = event.model.in_(subject.names)
        if subject.version is not None:
            of_model &= event.version == subject.version
        return of_model
    versions = select(ModelVersionRow.model, ModelVersionRow.version)
    if subject.kind == "sweep":
        versions = versions.where(ModelVersionRow.sweep == subject.name)
    else:
        versions = versions.where(
            ModelVersionRow.project == subject.project, ModelVersionRow.run == subject.run
        )
    became = [
        and_(event.model == model, event.version == version) for model, version in session.execute(versions)
    ]
    return or_(*became) if became else None


def _registry_entry(row: RegistryEventRow) -> Entry:
    place = Cursor(seconds_of(row.at), REGISTRY, (row.id,))
    subject = row.model
    if row.version:
        subject = f"{row.model}@{row.version}"
    # The subject names the version, so the summary need not.
    summary = describe_event(row).removeprefix(f"{row.version} ")
    return Entry(place, row.at, row.kind, "model", subject, row.model, row.actor, summary, row.note)


def find_snapshots(session: Session, question: Question) -> list[Entry]:
    """Snapshots that were taken; of a project, those that its sweeps were launched on."""
    query = select(
        SnapshotRow.digest,
        SnapshotRow.name,
        SnapshotRow.rows,
        SnapshotRow.source,
        SnapshotRow.deprecated,
        SnapshotRow.created_at,
    )
    projects = question.projects
    if question.subject is not None:
        if question.subject.kind != "project":
            return []
        projects = question.subject.names
    if projects is not None:
        used = select(SweepRow.snapshot).where(SweepRow.project.in_(projects))
        query = query.where(SnapshotRow.digest.in_(used))
    query = question.window.cut(session, query, SNAPSHOT, SnapshotRow.created_at, [SnapshotRow.digest])
    entries = []
    for row in session.execute(query):
        place = Cursor(seconds_of(row.created_at), SNAPSHOT, (row.digest,))
        summary = f"snapshot taken: {row.rows:,} rows of {row.source}"
        if row.deprecated:
            summary += f"; deprecated since: {row.deprecated}"
        key = snapshot_key(row.name, row.digest)
        entries.append(Entry(place, row.created_at, "snapshot", "snapshot", key, None, None, summary))
    return entries

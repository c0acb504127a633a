"""Events of the registry: adding them, and what the history of a model says.

Events are only ever added, each in the transaction of the change that it describes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from resources.catalog import ModelVersionRow, RegistryEventRow, utcnow

CHAMPION = "champion"
PROMOTED = "promoted"
FORCED = "forced"
ROLLED_BACK = "rolled back"
REPLACED = "replaced"
ARCHIVED = "archived"
STAGED = "staged"
APPROVED = "approved"
REJECTED = "rejected"
REGISTERED = "registered"
JUDGED = "judged"
DELETED = "deleted"
ALIAS = "alias"
TAG = "tag"
DESCRIPTION = "description"
CREATED = "created"
RENAMED = "renamed"
MANIFEST = "manifest written"
REQUESTED = "promotion requested"

_CROWNED = (PROMOTED, FORCED, ROLLED_BACK)


class Happened(NamedTuple):
    """The columns of an event on which decisions depend; see :class:`~resources.catalog.RegistryEventRow`."""

    id: int
    version: str | None
    kind: str
    actor: str
    before: str | None
    after: str | None
    note: str | None
    report: str | None


def add_event(
    session: Session,
    model: str,
    kind: str,
    actor: str,
    *,
    version: ModelVersionRow | None = None,
    before: str | None = None,
    after: str | None = None,
    note: str | None = None,
) -> RegistryEventRow:
    """Add the event of a change, in the transaction of that change.

    The model's files in the store are out of date until the model is published.

    Args:
        actor: the name of a token or a user, or of what acts by itself, such as a sweep.
        version: the version that changed; its report becomes a part of the event.
        before, after: the old and the new value.
        note: the reason for the change, in the words of who made it.
    """
    row = RegistryEventRow(model=model, kind=kind, actor=actor, at=utcnow(), note=note)
    row.before = before
    row.after = after
    if version is not None:
        row.version = version.version
        row.report = version.report
    session.add(row)
    session.flush()
    return row


def events_of(session: Session, model: str, since: int = 0) -> list[RegistryEventRow]:
    """A model's events after the one with the id ``since``, oldest first."""
    query = select(RegistryEventRow).where(RegistryEventRow.model == model, RegistryEventRow.id > since)
    return list(session.scalars(query.order_by(RegistryEventRow.id)))


def newest_event(session: Session, model: str) -> int:
    """The id of a model's newest event; 0 if it has none."""
    return session.scalar(select(func.max(RegistryEventRow.id)).where(RegistryEventRow.model == model)) or 0


def event_as_dict(row: RegistryEventRow) -> dict[str, Any]:
    """An event as ``halving models show --json`` and the API give it."""
    return {
        name: getattr(row, name)
        for name in ("id", "version", "kind", "actor", "at", "before", "after", "note", "report")
    }


def champions(session: Session, model: str) -> list[str]:
    """The versions that a rollback can go back to, oldest first; the last is the present champion, if any.

    A rollback removes the last one, so that several rollbacks go back one champion each. A version that
    people archived, rejected or removed from the champion's place is left out, because somebody thought it
    unfit.
    """
    versions: list[str] = []
    for event in _life_of(session, model, (*_CROWNED, ARCHIVED, REJECTED, STAGED, DELETED)):
        if event.kind == ROLLED_BACK and event.version in versions:
            while versions[-1] != event.version:
                versions.pop()
        elif event.kind in _CROWNED and event.version is not None and versions[-1:] != [event.version]:
            versions.append(event.version)
        elif event.kind in (ARCHIVED, REJECTED, DELETED) or (
            event.kind == STAGED and event.before == CHAMPION
        ):
            versions = [version for version in versions if version != event.version]
    return versions


def decisions(session: Session, row: ModelVersionRow) -> dict[str, Happened]:
    """Each person's last ``approved`` or ``rejected`` event of a version, by the person's name.

    An approval counts only for the report that the person read, not for a later one. A rejection stays until
    the same person approves the version.
    """
    last = {event.actor: event for event in _life_of(session, row.model, (APPROVED, REJECTED), row.version)}
    return {
        actor: event for actor, event in last.items() if event.kind == REJECTED or event.report == row.report
    }


def _life_of(
    session: Session, model: str, kinds: Sequence[str], version: str | None = None
) -> list[Happened]:
    """The events of these kinds since a model was created, oldest first, including its earlier names.

    The events of another model of this name, which was deleted before, are left out.
    """
    events: list[Happened] = []
    name: str | None = model
    before: int | None = None
    while name is not None:
        rows = _rows(session, name, kinds, version, before)
        begun = max((place for place, row in enumerate(rows) if row.kind == CREATED), default=-1)
        life = rows[begun + 1 :]
        events = [row for row in life if row.kind in kinds] + events
        renamed = next((row for row in life if row.kind == RENAMED and row.after == name), None)
        if renamed is None:
            break
        name = renamed.before
        before = renamed.id
    return events


def _rows(
    session: Session, model: str, kinds: Sequence[str], version: str | None, before: int | None
) -> list[Happened]:
    """The events of these kinds of a model's name, and those by which a model got this name.

    The database selects them, because a history may be long.
    """
    event = RegistryEventRow
    is_kind: ColumnElement[bool] = event.kind.in_(kinds)
    if version is not None:
        is_kind &= event.version == version
    query = select(
        event.id, event.version, event.kind, event.actor, event.before, event.after, event.note, event.report
    )
    query = query.where(event.model == model, is_kind | event.kind.in_((CREATED, RENAMED))).order_by(event.id)
    if before is not None:
        query = query.where(event.id < before)
    return [Happened(*row) for row in session.execute(query)]


def describe_event(row: RegistryEventRow) -> str:
    """An event in words, without its note."""
    text = row.kind
    if row.version:
        text = f"{row.version} {row.kind}"
    if row.kind in (ALIAS, TAG, DESCRIPTION) and row.after is None:
        return f"{text} {row.before} taken away"
    if row.kind in (ALIAS, TAG, DESCRIPTION):
        return f"{text} {row.after}"
    if row.before and row.after:
        return f"{text}: {row.before} → {row.after}"
    if row.after:
        return f"{text}: {row.after}"
    return text

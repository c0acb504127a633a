"""What happened in the registry: events that are only ever added, and what follows from them.

Each is written in the transaction of the change that it tells of.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, select
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

_CROWNED = (PROMOTED, FORCED, ROLLED_BACK)


class Happened(NamedTuple):
    """What decides of an event; see :class:`~resources.catalog.RegistryEventRow`."""

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
    before: Any = None,
    after: Any = None,
    note: str | None = None,
) -> RegistryEventRow:
    """Write down a change, in the transaction that makes it; the model's state in the store is behind until
    it is published.

    Args:
        actor: who: a token's or a user's name, or what acts by itself.
        version: which it is about; its report goes into the event.
        before, after: what was changed, and to what.
        note: why, in that person's words.
    """
    row = RegistryEventRow(model=model, kind=kind, actor=actor, at=utcnow(), note=note)
    row.before, row.after = (None if value is None else str(value) for value in (before, after))
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
    """The id of a model's newest event; 0: it has none."""
    return session.scalar(select(func.max(RegistryEventRow.id)).where(RegistryEventRow.model == model)) or 0


def event_as_dict(row: RegistryEventRow) -> dict[str, Any]:
    """An event as ``halving models show --json`` and the API give it."""
    return {
        name: getattr(row, name)
        for name in ("id", "version", "kind", "actor", "at", "before", "after", "note", "report")
    }


def champions(session: Session, model: str) -> list[str]:
    """The versions that were champions and can be gone back to, in their order; the last is the champion of
    now, if there is one.

    A rollback takes the last off, so that rollbacks one after another go back one champion each. What people
    archived, rejected or took the champion's place from since it was the champion is not among them: somebody
    found it unfit.
    """
    found: list[str] = []
    for event in _life_of(session, model, (*_CROWNED, ARCHIVED, REJECTED, STAGED, DELETED)):
        if event.kind == ROLLED_BACK and event.version in found:
            while found[-1] != event.version:
                found.pop()
        elif event.kind in _CROWNED and event.version is not None and found[-1:] != [event.version]:
            found.append(event.version)
        elif event.kind in (ARCHIVED, REJECTED, DELETED) or (
            event.kind == STAGED and event.before == CHAMPION
        ):
            found = [version for version in found if version != event.version]
    return found


def decisions(session: Session, row: ModelVersionRow) -> dict[str, Happened]:
    """What each person has decided last about a version: an event of the kind ``approved`` or ``rejected``,
    by name.

    An approval is one of the report that was read: of those for an earlier report none counts. A rejection
    stays until the same person approves the version.
    """
    last = {event.actor: event for event in _life_of(session, row.model, (APPROVED, REJECTED), row.version)}
    return {
        actor: event for actor, event in last.items() if event.kind == REJECTED or event.report == row.report
    }


def _life_of(
    session: Session, model: str, kinds: Sequence[str], version: str | None = None
) -> list[Happened]:
    """Events of these kinds since a model was created, oldest first, of one of its versions or of all; under
    its earlier names too.

    A model of the same name that was deleted before is another one.
    """
    found: list[Happened] = []
    name: str | None = model
    before: int | None = None
    while name is not None:
        rows = _rows(session, name, kinds, version, before)
        begun = max((place for place, row in enumerate(rows) if row.kind == CREATED), default=-1)
        life = rows[begun + 1 :]
        found = [row for row in life if row.kind in kinds] + found
        renamed = next((row for row in life if row.kind == RENAMED and row.after == name), None)
        name, before = (renamed.before, renamed.id) if renamed is not None else (None, None)
    return found


def _rows(
    session: Session, model: str, kinds: Sequence[str], version: str | None, before: int | None
) -> list[Happened]:
    """Events of a name, with those that begin a life; by the database's own means, because a history may be
    long.
    """
    event = RegistryEventRow
    wanted = event.kind.in_(kinds) if version is None else event.kind.in_(kinds) & (event.version == version)
    query = select(
        event.id, event.version, event.kind, event.actor, event.before, event.after, event.note, event.report
    )
    query = query.where(event.model == model, wanted | event.kind.in_((CREATED, RENAMED))).order_by(event.id)
    return [
        Happened(*row) for row in session.execute(query if before is None else query.where(event.id < before))
    ]


def what_happened(row: RegistryEventRow) -> str:
    """An event in words, without its note."""
    named = f"{row.version} " if row.version else ""
    if row.kind in (ALIAS, TAG, DESCRIPTION):
        return (
            f"{named}{row.kind} {row.after}"
            if row.after is not None
            else f"{named}{row.kind} {row.before} taken away"
        )
    if row.before and row.after:
        return f"{named}{row.kind}: {row.before} → {row.after}"
    return f"{named}{row.kind}" + (f": {row.after}" if row.after else "")

"""Changes of stage: promotion, rollback, archiving; and approval, which promotion may wait for.

Each is a transaction of its own, or a part of the transaction ``within``, and adds the event that describes
it. The files in the store are published afterwards (:mod:`resources.registry.publishing`).
"""

from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from resources.catalog import Catalog, ModelVersionRow, RegisteredModelRow
from resources.catalog.models import champion_of, versions_of
from resources.registry import events
from resources.registry.events import add_event, champions
from resources.registry.registered_models import now_ms
from resources.registry.verdicts import approval_of, blockers, check_promotable, promotes_itself


def promote(
    catalog: Catalog,
    model: str,
    version: str,
    *,
    actor: str,
    note: str | None = None,
    force: bool = False,
    within: Session | None = None,
) -> ModelVersionRow:
    """Make a version the champion and archive the one before, if nothing holds it back.

    A version that is the champion already stays as it is.

    Args:
        actor: who does it.
        note: why; needed with ``force``.
        force: whether to promote it even if its gates, a newer champion or people hold it back; the event
            says so.

    Raises:
        InvalidInput: it is forced without a note.
        NotFound: there is no such version; the message names those that the model has.
        PromotionRefused: something holds it back.
    """
    check_note(note, force=force)
    with catalog.write(exclusive=True, within=within) as session:
        row = find(session, model, version)
        if row.stage == events.CHAMPION:
            return row
        kind = events.PROMOTED
        if force and blockers(session, row):
            kind = events.FORCED
        if not force:
            check_promotable(session, row)
        make_champion(session, row, actor, note=note, kind=kind)
        return row


def rollback(
    catalog: Catalog, model: str, *, actor: str, note: str | None = None, within: Session | None = None
) -> ModelVersionRow:
    """Go back to the champion before this one; a second rollback goes back one more.

    No gate is judged, because the version was the champion.

    Raises:
        NotFound: there is no such model, or no champion before this one.
    """
    with catalog.write(exclusive=True, within=within) as session:
        if session.get(RegisteredModelRow, model) is None:
            raise NotFound(f"no model {model!r}; halving models list shows those that there are")
        now = champion_of(session, model)
        earlier = [version for version in champions(session, model) if now is None or version != now.version]
        row = None
        if earlier:
            row = session.get(ModelVersionRow, (model, earlier[-1]))
        if row is None:
            present = "this"
            if now is not None:
                present = now.version
            raise NotFound(
                f"model {model!r} had no champion before {present}, so there is none to go back to; versions "
                "that were archived or rejected since do not count"
            )
        make_champion(session, row, actor, note=note, kind=events.ROLLED_BACK)
        return row


def archive(
    catalog: Catalog,
    model: str,
    version: str,
    *,
    actor: str,
    note: str | None = None,
    within: Session | None = None,
) -> ModelVersionRow:
    """Take a version out of use, so that a rollback does not go back to it either.

    If that leaves no champion, the next winner that passes its gates becomes the champion.

    A version that was archived because another champion replaced it can be archived once more by a person;
    only then does a rollback pass over it.

    Raises:
        NotFound: there is no such version; the message names those that the model has.
    """
    with catalog.write(exclusive=True, within=within) as session:
        row = find(session, model, version)
        add_archived(session, row, actor, note)
        row.stage = "archived"
        row.mlflow_stage = "Archived"
        row.updated = now_ms()
        return row


def approve(
    catalog: Catalog, model: str, version: str, *, actor: str, note: str, within: Session | None = None
) -> ModelVersionRow:
    """Approve a version.

    With its last missing approval it becomes the champion, if it would have become it without ``approval``.

    Raises:
        InvalidInput: the note is empty, the version is the champion, or ``actor`` may not decide about it.
        NotFound: there is no such version.
    """
    with catalog.write(exclusive=True, within=within) as session:
        row = _decide(session, model, version, events.APPROVED, actor, note)
        if (
            row.stage == "staging"
            and approval_of(session, row).required
            and promotes_itself(session, row)
            and not blockers(session, row)
        ):
            make_champion(session, row, actor, note=note)
        return row


def reject(
    catalog: Catalog, model: str, version: str, *, actor: str, note: str, within: Session | None = None
) -> ModelVersionRow:
    """Reject a version: it is not promoted, unless by force, until the same person approves it.

    Raises:
        InvalidInput: the note is empty, the version is the champion, or ``actor`` may not decide about it.
        NotFound: there is no such version.
    """
    with catalog.write(exclusive=True, within=within) as session:
        return _decide(session, model, version, events.REJECTED, actor, note)


def make_champion(
    session: Session,
    row: ModelVersionRow,
    actor: str,
    *,
    note: str | None = None,
    kind: str = events.PROMOTED,
) -> None:
    """Make a version the champion and archive the one before, in an exclusive transaction, without checks."""
    before = champion_of(session, row.model)
    now = now_ms()
    if before is row:
        return
    if before is not None:
        add_event(
            session,
            row.model,
            events.REPLACED,
            actor,
            version=before,
            before=before.stage,
            after="archived",
            note=f"by {row.version}",
        )
        before.stage = "archived"
        before.mlflow_stage = "Archived"
        before.updated = now
        session.flush()  # An index allows only one champion at any time.
    add_event(
        session, row.model, kind, actor, version=row, before=row.stage, after=events.CHAMPION, note=note
    )
    row.stage = events.CHAMPION
    row.mlflow_stage = "Production"
    row.updated = now
    session.flush()


def add_archived(session: Session, row: ModelVersionRow, actor: str, note: str | None = None) -> None:
    """Add the event that somebody takes a version out of use, even if it is archived already."""
    change = {"before": row.stage, "after": "archived"}
    if row.stage == "archived":
        change = {}
    add_event(session, row.model, events.ARCHIVED, actor, version=row, note=note, **change)


def check_note(note: str | None, *, force: bool) -> None:
    """Refuse to force a promotion without saying why.

    Raises:
        InvalidInput: it is forced without a note.
    """
    if force and not (note or "").strip():
        raise InvalidInput(
            "a promotion is not forced without a note: say why, which is written down (--note)"
        )


def find(session: Session, model: str, version: str) -> ModelVersionRow:
    """A version's row.

    Raises:
        NotFound: there is none; the message names those that the model has.
    """
    row = session.get(ModelVersionRow, (model, version))
    if row is None:
        names = [f"{row.model} {row.version} ({row.stage})" for row in versions_of(session, model)]
        raise NotFound(
            f"no version {version!r} of model {model!r}; there are "
            f"{', '.join(names) or 'no versions yet: run a sweep first'}"
        )
    return row


def _decide(session: Session, model: str, version: str, kind: str, actor: str, note: str) -> ModelVersionRow:
    row = find(session, model, version)
    name = f"{model} {version}"
    if not note.strip():
        raise InvalidInput(f"{name} is not {kind} without a note: say why, which is written down (--note)")
    if row.stage == events.CHAMPION:
        raise InvalidInput(f"{name} is the champion already; halving rollback {model} takes it back")
    approvers = approval_of(session, row).by
    if approvers and actor not in approvers:
        raise InvalidInput(
            f"{name} is not {kind}: {actor} is not among those who decide about it, {', '.join(approvers)}"
        )
    add_event(session, model, kind, actor, version=row, note=note)
    return row

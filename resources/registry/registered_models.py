"""Models of the registry, apart from their versions: created, renamed and deleted."""

import time

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from halving.errors import AlreadyExists, InvalidInput, NotFound
from resources.catalog import ModelVersionRow, RegisteredModelRow
from resources.registry.events import CREATED, DELETED, RENAMED, add_event


def now_ms() -> int:
    """The current time in ms since 1970."""
    return round(1000 * time.time())


def create_model(
    session: Session, name: str, description: str = "", tags: dict[str, str] | None = None, *, actor: str
) -> RegisteredModelRow:
    """Add a model without versions, in an exclusive transaction.

    Raises:
        AlreadyExists: there is one of this name.
    """
    if session.get(RegisteredModelRow, name) is not None:
        raise AlreadyExists(f"Registered Model (name={name}) already exists.")
    now = now_ms()
    row = RegisteredModelRow(
        name=name, description=description, tags=tags or {}, aliases={}, versions=0, created=now, updated=now
    )
    session.add(row)
    session.flush()
    add_event(session, name, CREATED, actor)
    return row


def find_model(session: Session, name: str) -> RegisteredModelRow:
    """The model of this name.

    Raises:
        NotFound: there is none of this name.
    """
    row = session.get(RegisteredModelRow, name)
    if row is None:
        raise NotFound(f"Registered Model with name={name} not found")
    return row


def rename_model(session: Session, row: RegisteredModelRow, name: str, *, actor: str) -> RegisteredModelRow:
    """Rename a model, in an exclusive transaction; return its new row.

    Raises:
        AlreadyExists: another one has the name.
        InvalidInput: it has versions of sweeps, whose name it is.
    """
    if name == row.name:
        return row
    _check_without_sweeps(session, row.name, "renamed")
    new = create_model(session, name, row.description, row.tags, actor=actor)
    new.aliases = row.aliases
    new.newest = row.newest
    new.versions = row.versions
    new.created = row.created
    session.flush()
    session.execute(
        update(ModelVersionRow)
        .where(ModelVersionRow.model == row.name)
        .values(model=name, updated=new.updated)
    )
    # The history of the old name ends with the event, and that of the new name begins.
    for model in (row.name, name):
        add_event(session, model, RENAMED, actor, before=row.name, after=name)
    session.delete(row)
    return new


def delete_model(session: Session, row: RegisteredModelRow, *, actor: str) -> None:
    """Delete a model with its versions, in an exclusive transaction; their runs and files stay.

    Raises:
        InvalidInput: it has versions of sweeps, which are archived instead.
    """
    _check_without_sweeps(session, row.name, "deleted")
    for version in session.scalars(select(ModelVersionRow).where(ModelVersionRow.model == row.name)):
        add_event(session, row.name, DELETED, actor, version=version, before=version.stage)
    session.execute(delete(ModelVersionRow).where(ModelVersionRow.model == row.name))
    add_event(session, row.name, DELETED, actor)
    session.delete(row)


def _check_without_sweeps(session: Session, name: str, verb: str) -> None:
    of_sweep = select(ModelVersionRow.version).where(
        ModelVersionRow.model == name, ModelVersionRow.sweep.is_not(None)
    )
    if version := session.scalar(of_sweep.limit(1)):
        raise InvalidInput(
            f"model {name!r} cannot be {verb}: its version {version} is the winner of a sweep. Archive "
            "versions instead"
        )

"""What people say of a model or of one of its versions: description and tags. Each change is an event."""

from sqlalchemy.orm import Session

from resources.catalog import ModelVersionRow, RegisteredModelRow
from resources.registry.events import DESCRIPTION, TAG, add_event


def describe(
    session: Session, about: RegisteredModelRow | ModelVersionRow, text: str | None, *, actor: str
) -> None:
    """Give a model or a version another description, in an exclusive transaction."""
    if about.description != text:
        _add(session, about, DESCRIPTION, actor, before=about.description, after=text)
    about.description = text


def set_tag(
    session: Session, about: RegisteredModelRow | ModelVersionRow, key: str, value: str, *, actor: str
) -> None:
    """Give a model or a version a tag, in an exclusive transaction."""
    before = about.tags.get(key)
    if before != value:
        _add(
            session,
            about,
            TAG,
            actor,
            before=None if before is None else f"{key}={before}",
            after=f"{key}={value}",
        )
    about.tags = {**about.tags, key: value}


def delete_tag(
    session: Session, about: RegisteredModelRow | ModelVersionRow, key: str, *, actor: str
) -> None:
    """Take a tag away, if there is one, in an exclusive transaction."""
    if key in about.tags:
        _add(session, about, TAG, actor, before=f"{key}={about.tags[key]}")
    about.tags = {name: value for name, value in about.tags.items() if name != key}


def _add(
    session: Session,
    about: RegisteredModelRow | ModelVersionRow,
    kind: str,
    actor: str,
    before: str | None = None,
    after: str | None = None,
) -> None:
    version = about if isinstance(about, ModelVersionRow) else None
    model = about.model if isinstance(about, ModelVersionRow) else about.name
    add_event(session, model, kind, actor, version=version, before=before, after=after)

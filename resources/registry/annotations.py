"""Descriptions and tags of models and versions; each change is an event."""

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
        old = None if before is None else f"{key}={before}"
        _add(session, about, TAG, actor, before=old, after=f"{key}={value}")
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
    if isinstance(about, ModelVersionRow):
        add_event(session, about.model, kind, actor, version=about, before=before, after=after)
    else:
        add_event(session, about.name, kind, actor, before=before, after=after)

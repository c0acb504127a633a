"""Descriptions and tags of models and versions; each change is an event."""

from sqlalchemy.orm import Session

from resources.catalog import ModelVersionRow, RegisteredModelRow
from resources.registry.events import DESCRIPTION, TAG, add_event


def describe(
    session: Session, about: RegisteredModelRow | ModelVersionRow, text: str | None, *, actor: str
) -> None:
    """Set the description of a model or a version, in an exclusive transaction."""
    if about.description != text:
        _add(session, about, DESCRIPTION, actor, before=about.description, after=text)
    about.description = text


def set_tag(
    session: Session, about: RegisteredModelRow | ModelVersionRow, key: str, value: str, *, actor: str
) -> None:
    """Set a tag of a model or a version, in an exclusive transaction."""
    before = None
    if key in about.tags:
        before = f"{key}={about.tags[key]}"
    after = f"{key}={value}"
    if before != after:
        _add(session, about, TAG, actor, before=before, after=after)
    about.tags = {**about.tags, key: value}


def delete_tag(
    session: Session, about: RegisteredModelRow | ModelVersionRow, key: str, *, actor: str
) -> None:
    """Delete a tag of a model or a version, if it has the tag, in an exclusive transaction."""
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

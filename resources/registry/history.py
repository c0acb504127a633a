"""A model's history: its versions and its events; and the search for versions by words."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import NotFound
from resources.catalog import Catalog, ModelVersionRow, RegisteredModelRow, RegistryEventRow
from resources.catalog.models import models_of, versions_of
from resources.registry.client_versions import aliases_of
from resources.registry.events import describe_event, event_as_dict, events_of
from resources.registry.versions import as_dict


def model_story(catalog: Catalog, model: str) -> dict[str, Any]:
    """A model with its versions and events, as JSON.

    The keys are ``model``, ``description``, ``tags``, ``aliases`` (versions by name), ``versions`` and
    ``events``, each oldest first. An event has ``summary`` too, which says it in words.

    Raises:
        NotFound: there is no such model.
    """
    with catalog.read() as session:
        row = session.get(RegisteredModelRow, model)
        if row is None:
            models = ", ".join(row.name for row in models_of(session))
            raise NotFound(f"no model {model!r}; there are {models or 'no models yet: run a sweep first'}")
        versions = versions_of(session, model)
        names = {version.number: version.version for version in versions}
        return {
            "model": model,
            "description": row.description,
            "tags": row.tags,
            "aliases": {
                alias: names[number] for alias, number in aliases_of(session, row).items() if number in names
            },
            "versions": [as_dict(session, version) for version in versions],
            "events": [_event_with_words(event) for event in events_of(session, model)],
        }


def newest_events(
    session: Session, model: str, before: int | None, limit: int
) -> tuple[list[dict[str, Any]], int | None]:
    """A page of a model's events, oldest first, as :func:`model_story` has them.

    Args:
        before: the id of the event before which the page ends; None for the newest page.
        limit: the number of events, at most.

    Returns:
        The events, and the ``before`` of the page with older ones; None if there are no older ones.
    """
    query = (
        select(RegistryEventRow)
        .where(RegistryEventRow.model == model)
        .order_by(RegistryEventRow.id.desc())
        .limit(limit + 1)
    )
    if before is not None:
        query = query.where(RegistryEventRow.id < before)
    rows = list(session.scalars(query))
    page = rows[:limit]
    older = None
    if len(rows) > limit:
        older = page[-1].id
    return [_event_with_words(row) for row in reversed(page)], older


def _event_with_words(event: RegistryEventRow) -> dict[str, Any]:
    return {**event_as_dict(event), "summary": describe_event(event)}


def search_versions(catalog: Catalog, text: str) -> list[dict[str, Any]]:
    """Versions that match all words of a text, in any case; newest last.

    Words are looked for in names, descriptions, tags, aliases, stage, run and sweep.
    """
    words = text.lower().split()
    with catalog.read() as session:
        models = {row.name: row for row in models_of(session)}
        return [
            as_dict(session, row) for row in versions_of(session) if _matches(models[row.model], row, words)
        ]


def _matches(model: RegisteredModelRow, row: ModelVersionRow, words: list[str]) -> bool:
    aliases = [alias for alias, number in model.aliases.items() if number == row.number]
    tags = [f"{key}={value}" for about in (model, row) for key, value in about.tags.items()]
    texts = (
        row.model,
        row.version,
        row.stage,
        row.run,
        row.sweep,
        row.framework,
        model.description,
        row.description,
        *aliases,
        *tags,
    )
    whole = "\n".join(text for text in texts if text).lower()
    return all(word in whole for word in words)

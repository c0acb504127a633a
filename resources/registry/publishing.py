"""Publishing of models to the store, so that clients find versions while the catalog is down.

It comes after the transaction of each change. If the process is killed in between, or the store is down, a
later command publishes: every command of the registry publishes all models that are behind the catalog when
its own work is done, and every server does when it starts.
"""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from halving.errors import HalvingError, StoreUnavailable
from halving.models.published import CHAMPION, published_folder, published_name
from halving.store.json_files import to_json
from halving.store.store import Store
from resources.catalog import (
    Catalog,
    ModelVersionRow,
    PublishedModelRow,
    RegisteredModelRow,
    RegistryEventRow,
)
from resources.catalog.models import champion_of, versions_of
from resources.features.registry import features_of
from resources.registry.events import CREATED, newest_event

ALIASES = "aliases"


def publish(store: Store, catalog: Catalog) -> list[str]:
    """Write the files of all models whose files are behind the catalog.

    These are ``models/NAME/champion.json``, ``aliases.json`` and a file for each changed version.

    Returns:
        A sentence for each model whose files could not be written; the change in the catalog stands.
    """
    problems = []
    try:
        with catalog.read() as session:
            late = behind(session)
    except SQLAlchemyError as error:
        return [f"the models to be published could not be read from the catalog: {_reason(error)}"]
    for place, model in enumerate(late, start=1):
        try:
            with catalog.publishing():
                _publish(store, catalog, model)
        except (HalvingError, SQLAlchemyError) as error:
            away = isinstance(error, StoreUnavailable)
            others = ""
            if away and place < len(late):
                others = f" (as may be those of {len(late) - place} more)"
            problems.append(
                f"the files in {store.address(published_folder(model))} may be behind the catalog{others}: "
                f"{_reason(error)}; the next command of the registry, or a server, writes them again"
            )
            if away:
                break  # Each other model would wait for the store as long.
    return problems


def behind(session: Session) -> list[str]:
    """Models with events that are newer than their files, and models without files."""
    newest = (
        select(RegistryEventRow.model, func.max(RegistryEventRow.id).label("id"))
        .group_by(RegistryEventRow.model)
        .subquery()
    )
    joined = select(newest.c.model).outerjoin(PublishedModelRow, PublishedModelRow.model == newest.c.model)
    changed = session.scalars(joined.where(newest.c.id > func.coalesce(PublishedModelRow.revision, -1)))
    new = session.scalars(
        select(RegisteredModelRow.name).where(RegisteredModelRow.name.not_in(select(PublishedModelRow.model)))
    )
    return sorted({*changed, *new})


def _publish(store: Store, catalog: Catalog, model: str) -> None:
    with catalog.read() as session:
        revision = newest_event(session, model)
        gone = session.get(RegisteredModelRow, model) is None
        since = _published_since(session, model)
        files: dict[str, dict[str, Any] | None] = {}
        if not gone:
            files = _files(session, model, since)
    if gone or since is None:  # Another model may have had this name and left files.
        for name in store.names(published_folder(model)):
            if name.removesuffix(".json") not in files:
                store.delete(f"{published_folder(model)}/{name}")
    # Versions are written before the aliases: a client that follows an alias must find its version.
    for name, content in sorted(files.items(), key=lambda file: file[0] in (CHAMPION, ALIASES)):
        if content is None:
            store.delete(published_name(model, name))
        else:
            store.replace(published_name(model, name), to_json({"revision": revision, **content}))
    with catalog.write() as session:
        session.merge(PublishedModelRow(model=model, revision=revision))


def _published_since(session: Session, model: str) -> int | None:
    """The event up to which a model's files are up to date.

    None if there are none, or if they are those of another model that had this name.
    """
    published = session.get(PublishedModelRow, model)
    if published is None:
        return None
    query = select(func.max(RegistryEventRow.id)).where(
        RegistryEventRow.model == model, RegistryEventRow.kind == CREATED
    )
    created = session.scalar(query) or 0
    if published.revision < created:
        return None
    return published.revision


def _files(session: Session, model: str, since: int | None) -> dict[str, dict[str, Any] | None]:
    """The contents to be written, by the file's name; None for a file to be deleted."""
    row = session.get_one(RegisteredModelRow, model)
    versions = {version.version: version for version in versions_of(session, model)}
    events = (
        select(RegistryEventRow.version)
        .where(RegistryEventRow.model == model, RegistryEventRow.version.is_not(None))
        .distinct()
    )
    if since is None:
        changed = set(versions)
    else:
        changed = {
            version
            for version in session.scalars(events.where(RegistryEventRow.id > since))
            if version is not None
        }
    files: dict[str, dict[str, Any] | None] = {}
    for name in sorted(changed):
        files[name] = None
        if name in versions:
            files[name] = {"version": _version_as_json(session, versions[name])}
    champion = champion_of(session, model)
    names = {version.number: version.version for version in versions.values()}
    aliases = {alias: names[number] for alias, number in row.aliases.items() if number in names}
    files[CHAMPION] = {"version": None}
    if champion:
        aliases[CHAMPION] = champion.version
        files[CHAMPION] = {"version": _version_as_json(session, champion)}
    files[ALIASES] = {"aliases": aliases}
    return files


def _version_as_json(session: Session, row: ModelVersionRow) -> dict[str, Any]:
    names = (
        "model",
        "version",
        "number",
        "stage",
        "project",
        "run",
        "sweep",
        "checkpoint",
        "snapshot",
        "report",
        "manifest",
        "framework",
    )
    more = (
        "input_schema",
        "output_schema",
        "metrics",
        "source",
        "storage",
        "tags",
        "description",
        "judged_against",
    )
    return {
        **{name: getattr(row, name) for name in (*names, *more)},
        "gates": row.gates or [],
        "features": features_of(session, row),
        "created_at": row.created_at.isoformat(),
    }


def _reason(error: Exception) -> str:
    """The first line of an error, because a database's errors have many lines."""
    return str(getattr(error, "orig", None) or error).partition("\n")[0]

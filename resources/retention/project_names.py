"""Which projects there are, by any name that they have or had: what a policy, and a command, may name."""

import difflib
from collections.abc import Collection

from sqlalchemy import select

from halving.query.runs import list_names, projects
from halving.store.store import Store
from resources.catalog import Catalog, ProjectRow, SweepRow
from resources.tenancy.projects import renamed_projects


def names_of(catalog: Catalog, project: str) -> list[str]:
    """The names that a project has and had."""
    return next((names for names in renamed_projects(catalog) if project in names), [project])


def known_names(store: Store, catalog: Catalog, project: str) -> list[str]:
    """The names that a project has and had.

    Raises:
        NotFound: neither the store nor the catalog has such a project.
    """
    names = names_of(catalog, project)
    if not is_known(store, catalog, names):
        list_names(store, project)  # raises, and says which there are
    return names


def closest_project(store: Store, catalog: Catalog, project: str) -> str | None:
    """The project that was perhaps meant by a name that none has."""
    with catalog.read() as session:
        names = {*projects(store), *session.scalars(select(SweepRow.project).distinct()), *session.scalars(select(ProjectRow.name))}
    return next(iter(difflib.get_close_matches(project, names, n=1)), None)


def is_known(store: Store, catalog: Catalog, names: Collection[str]) -> bool:
    """Whether the store has runs, or the catalog a sweep or settings, of a project with one of these names."""
    if set(names) & set(projects(store)):
        return True
    queries = select(SweepRow.id).where(SweepRow.project.in_(names)), select(ProjectRow.name).where(ProjectRow.name.in_(names))
    with catalog.read() as session:
        return any(session.scalar(query.limit(1)) is not None for query in queries)

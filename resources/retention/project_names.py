"""The projects that a policy or a command may name, by any name that they have or had."""

from sqlalchemy import select

from halving.query.runs import list_names, projects
from halving.store.store import Store
from halving.text import closest
from resources.catalog import Catalog, ProjectRow, SweepRow
from resources.tenancy.projects import names_of


def known_names(store: Store, catalog: Catalog, project: str) -> list[str]:
    """The names that a project has and had.

    Raises:
        NotFound: neither the store nor the catalog has such a project.
    """
    with catalog.read() as session:
        names = names_of(session, project)
    if not is_known(store, catalog, project):
        list_names(store, project)  # It raises, and names the projects that there are.
    return names


def closest_project(store: Store, catalog: Catalog, project: str) -> str | None:
    """The project that was perhaps meant by a name that none has."""
    with catalog.read() as session:
        names = {
            *projects(store),
            *session.scalars(select(SweepRow.project).distinct()),
            *session.scalars(select(ProjectRow.name)),
        }
    return closest(project, names)


def is_known(store: Store, catalog: Catalog, project: str) -> bool:
    """Whether a project has runs, a sweep or settings, by any name that it has or had."""
    with catalog.read() as session:
        names = names_of(session, project)
        sweep = session.scalar(select(SweepRow.id).where(SweepRow.project.in_(names)).limit(1))
        settings = session.scalar(select(ProjectRow.name).where(ProjectRow.name.in_(names)).limit(1))
    return sweep is not None or settings is not None or not set(names).isdisjoint(projects(store))

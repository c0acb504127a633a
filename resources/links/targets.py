"""What a link shows: a run, a view of Compare, a sweep or a report, checked to be there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.identifiers import check_name
from halving.query.run_filter_parser import parse_filter
from halving.query.runs import read_run
from halving.records.amendments import DELETED, REMOVED
from halving.store.store import Store
from resources.catalog import Catalog, SweepRow
from resources.tenancy.projects import project_exists
from resources.views.saved_views import load_view
from resources.views.view_query import check_query, value_of

Kind = Literal["run", "view", "sweep", "report"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_PROJECTS = 50
"""Whose runs a view's link may show, at most."""


@dataclass(frozen=True)
class Target:
    """What a link shows.

    Attributes:
        kind: which of the four it is.
        target: ``project/run``, a view's query, or a sweep's id.
        projects: those that it may show.
    """

    kind: Kind
    target: str
    projects: list[str]


def check_target(
    catalog: Catalog, store: Store, kind: str, target: str, projects: Sequence[str] | None = None
) -> Target:
    """Check that there is what a link is to show.

    Args:
        target: of a run ``project/run``, of a sweep or a report the sweep's id; of a view the query of
            Compare's address, or ``project/name`` of a saved view, whose query of now is taken.
        projects: of a view alone: whose runs it shows. A saved view without them shows those of its project.

    Raises:
        InvalidInput: the kind, the target or a project is not accepted.
        NotFound: it is not there, or lies in the trash.
    """
    if kind == "view":
        with catalog.read() as session:
            return _check_view(session, target, projects)
    if projects:
        raise InvalidInput(f"projects is not accepted beside kind {kind!r}: it is for views alone")
    if kind == "run":
        return _check_run(store, target)
    if kind == "sweep":
        return Target("sweep", target, [_project_of(catalog, target)])
    if kind == "report":
        return _check_report(catalog, store, target)
    raise InvalidInput(f"kind = {kind!r:.60} is not accepted: give one of {', '.join(KINDS)}")


def _check_view(session: Session, target: str, projects: Sequence[str] | None) -> Target:
    project, slash, name = target.partition("/")
    query = target
    if slash and "=" not in project:  # A query has a "=" before any slash.
        view = load_view(session, check_name("project", project), name)
        query = view.query
        projects = projects or [view.project]
    query = check_query(query)
    _check_lifecycle(query)
    if not projects:
        raise InvalidInput(
            "projects is missing: say whose runs the view may show to those who have the link, one project "
            "or several"
        )
    if len(projects) > MAX_PROJECTS:
        raise InvalidInput(f"projects of {len(projects)} is not accepted: give at most {MAX_PROJECTS}")
    for each in projects:
        if not project_exists(session, check_name("project", each)):
            raise NotFound(f"no project {each!r}: it has no run and no sweep")
    return Target("view", query, list(dict.fromkeys(projects)))


def _check_lifecycle(query: str) -> None:
    """Refuse a view that names ``lifecycle``: it could show what lies in the trash."""
    if not parse_filter(value_of(query, "filter")).active_alone:
        raise InvalidInput(
            "target: a filter that names lifecycle is not accepted: a link shows active runs alone; leave it "
            "out"
        )


def _check_run(store: Store, target: str) -> Target:
    project, slash, run = target.partition("/")
    if not slash:
        raise InvalidInput(f"target = {target!r:.200} is not accepted: give a run as project/run")
    info = read_run(store, check_name("project", project), check_name("run id", run))
    if info.lifecycle in (DELETED, REMOVED):
        raise NotFound(f"run {target} is in the trash: restore it before a link shows it")
    return Target("run", target, [project])


def _check_report(catalog: Catalog, store: Store, sweep: str) -> Target:
    from resources.evaluation.report_page import has_page

    project = _project_of(catalog, sweep)
    if not has_page(store, catalog, sweep):
        raise NotFound(f"sweep {sweep} has no evaluation report yet")
    return Target("report", sweep, [project])


def _project_of(catalog: Catalog, sweep: str) -> str:
    with catalog.read() as session:
        row = session.get(SweepRow, check_name("sweep", sweep))
        if row is None:
            raise NotFound(f"no sweep {sweep!r} in the catalog")
        return row.project

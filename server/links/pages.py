"""What a link shows, built from the store and the catalog as they are now."""

from typing import NamedTuple
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from halving.errors import NotFound
from halving.query.runs import read_run
from halving.records.amendments import DELETED, REMOVED
from resources.analysis.run_index.select import select_run
from resources.catalog import SweepRow
from resources.evaluation.report_page import read_page
from resources.links.shared_links import SharedLink, visible_projects
from resources.views.view_query import pairs_of
from server.sharing.page import build_page, content_policy
from server.sharing.target import Target
from server.state import State

_NOWHERE = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# A report's own scripts, Plotly and the figures, are inline.
_REPORT = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    f"img-src data: blob:; {_NOWHERE}"
)


class SealedPage(NamedTuple):
    """A page, and the policy that it is shown under: it can load nothing, in an origin of its own."""

    html: bytes
    policy: str


def show(state: State, link: SharedLink) -> SealedPage:
    """Build the page of a link: HTML that needs nothing beside itself.

    Raises:
        NotFound: what it shows is not there any more, lies in the trash, or is of another project by now.
        StoreError: the store cannot be read.
    """
    name = link.target
    with state.catalog.read() as session:
        projects = frozenset(visible_projects(session, link))
        if link.kind == "view":
            name = _without_deleted(session, name)
    if link.kind == "report":
        _check_sweep(state, link, projects)
        return SealedPage(read_page(state.store, state.catalog, link.target), _REPORT)
    if link.kind == "run":
        _check_run(state, link)
    target = Target(kind=link.kind, name=name, projects=projects, made_by=_maker(link))
    html = build_page(state.store, state.catalog, target)
    return SealedPage(html, f"sandbox allow-scripts; {content_policy()}; frame-ancestors 'none'")


def _maker(link: SharedLink) -> str:
    view = ""
    if link.kind == "view":
        view = f"with the view as it was on {link.created_at:%Y-%m-%d %H:%M} UTC; "
    whose = "a view-only link"
    if link.token is not None:
        whose += f" of {link.by}"
    return f"{whose} ({view}it ends on {link.expires_at:%Y-%m-%d %H:%M} UTC)"


def _check_run(state: State, link: SharedLink) -> None:
    project, _, run = link.target.partition("/")
    if read_run(state.store, project, run).lifecycle in (DELETED, REMOVED):
        raise NotFound(f"run {link.target} is in the trash")


def _check_sweep(state: State, link: SharedLink, projects: frozenset[str]) -> None:
    with state.catalog.read() as session:
        row = session.get(SweepRow, link.target)
        if row is None or row.project not in projects:
            raise NotFound(f"no sweep {link.target}")


def _without_deleted(session: Session, query: str) -> str:
    """A view without runs that it shows by their ids, and that have been put into the trash since."""
    pairs = pairs_of(query)
    ids = [name for key, value in pairs if key == "show" for name in value.split(",")]
    deleted = {name for name in ids if _is_deleted(session, *name.split("/", 1))}
    kept = ",".join(name for name in ids if name not in deleted)
    return urlencode([(key, value) for key, value in pairs if key != "show"] + [("show", kept)])


def _is_deleted(session: Session, project: str, run: str) -> bool:
    row = select_run(session, project, run)
    return row is not None and row["lifecycle"] == DELETED

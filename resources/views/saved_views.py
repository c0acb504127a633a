"""Saved views: listed, read, saved and deleted, each by its project and name.

Two people may change a view at a time. A save says which revision it saw, and is refused where another one
came first. A project is meant by each of its names.
"""

import re
import secrets
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from halving.errors import AlreadyExists, InvalidInput, NotFound
from halving.identifiers import check_name
from resources.catalog import SavedViewRow, utcnow
from resources.tenancy.projects import all_names_of, names_now, names_of
from resources.views.view_query import check_query

MAX_NAME = 100
MAX_VIEWS = 1_000
"""Views of one project."""

_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class SavedView:
    """A view of Compare with its name.

    Attributes:
        project: by its present name.
        query: of the page's address, without its ``?``.
        revision: which save this is; the next save says that it saw it.
        by: who saved it.
        at: when.
    """

    project: str
    name: str
    query: str
    revision: str
    by: str
    at: datetime

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def list_views(session: Session, projects: Collection[str] | None) -> list[SavedView]:
    """The views of some projects, or of all (None), by project and name."""
    query = select(SavedViewRow)
    if projects is not None:
        query = query.where(SavedViewRow.project.in_(all_names_of(session, projects)))
    present = names_now(session)
    views = [_view_of(row, present) for row in session.scalars(query)]
    return sorted(views, key=lambda view: (view.project, view.name.casefold(), view.name))


def load_view(session: Session, project: str, name: str) -> SavedView:
    """A view by its project and name.

    Raises:
        NotFound: there is none; the message has the names that there are.
    """
    row = _row_of(session, project, name)
    if row is None:
        names = sorted(view.name for view in list_views(session, [project]))
        there = ", ".join(repr(each) for each in names[:20]) or "none yet"
        raise NotFound(f"project {project!r} has no view {name!r}; it has {there}")
    return _view_of(row, names_now(session))


def save_view(
    session: Session, project: str, name: str, query: str, *, revision: str | None, by: str
) -> SavedView:
    """Save a view, in a transaction that writes.

    Args:
        query: of Compare's address.
        revision: of the view that this one replaces; None: there is none of this name.

    Raises:
        InvalidInput: the project, the name or the query is not accepted, or the project has too many views.
        AlreadyExists: there is a view of this name, and it is not the one that was seen.
        NotFound: the view that was seen has been deleted.
    """
    check_name("project", project)
    check_view_name(name)
    query = check_query(query)
    row = _row_of(session, project, name, lock=True)
    _check_revision(project, name, row, revision)
    if row is None:
        names = names_of(session, project)
        count = session.scalar(
            select(func.count()).select_from(SavedViewRow).where(SavedViewRow.project.in_(names))
        )
        if (count or 0) >= MAX_VIEWS:
            raise InvalidInput(
                f"name = {name!r} is not accepted: project {project!r} has {MAX_VIEWS} views, which is the "
                "most; delete one"
            )
        row = SavedViewRow(project=names[0], name=name)
        session.add(row)
    row.query = query
    row.revision = secrets.token_hex(6)
    row.by = by
    row.at = utcnow()
    try:
        session.flush()
    except IntegrityError:  # another transaction has made it at the same time
        raise AlreadyExists(
            f"project {project!r} has a view {name!r} already: it was saved at the same moment; look at it, "
            "then save yours under another name, or in its place"
        ) from None
    return _view_of(row, names_now(session))


def delete_view(session: Session, project: str, name: str, *, revision: str | None = None) -> SavedView:
    """Delete a view, in a transaction that writes; returns what it was.

    Args:
        revision: the one that was seen; None deletes whichever there is.

    Raises:
        NotFound: there is none.
        AlreadyExists: another one was saved meanwhile.
    """
    row = _row_of(session, project, name, lock=True)
    if row is None:
        return load_view(session, project, name)  # which says that there is none
    if revision is not None:
        _check_revision(project, name, row, revision)
    view = _view_of(row, names_now(session))
    session.delete(row)
    return view


def check_view_name(name: str) -> str:
    """Return a view's name if it is accepted; it becomes a part of addresses.

    Raises:
        InvalidInput: it is empty, too long, or has what an address cannot have.
    """
    is_text = bool(name) and not _CONTROL.search(name) and name == name.strip()
    if not is_text or len(name) > MAX_NAME or "/" in name or name in (".", ".."):
        raise InvalidInput(
            f"name = {name!r:.120} is not accepted: give 1 to {MAX_NAME} characters without /, not . or .. "
            "alone, and without blanks at its ends"
        )
    return name


def _check_revision(project: str, name: str, row: SavedViewRow | None, revision: str | None) -> None:
    if row is None:
        if revision is not None:
            raise NotFound(
                f"project {project!r} has no view {name!r} any more: it was deleted meanwhile; save it "
                "without a revision to make it anew"
            )
        return
    if revision == row.revision:
        return
    saved = f"{row.by} saved it at {row.at:%Y-%m-%d %H:%M:%S} UTC"
    if revision is None:
        raise AlreadyExists(
            f"project {project!r} has a view {name!r} already: {saved}; give its revision, {row.revision}, "
            "to replace it, or another name"
        )
    raise AlreadyExists(
        f"view {name!r} of project {project!r} is another one by now: {saved}; look at it, then give its "
        f"revision, {row.revision}, to replace it"
    )


def _row_of(session: Session, project: str, name: str, *, lock: bool = False) -> SavedViewRow | None:
    names = names_of(session, project)
    query = select(SavedViewRow).where(SavedViewRow.project.in_(names), SavedViewRow.name == name)
    if lock:
        query = query.with_for_update()
    # Where a former name has a view of the same name, the one of the present name counts.
    rows = {row.project: row for row in session.scalars(query)}
    return next((rows[each] for each in names if each in rows), None)


def _view_of(row: SavedViewRow, present: dict[str, str]) -> SavedView:
    project = present.get(row.project, row.project)
    return SavedView(project, row.name, row.query, row.revision, row.by, row.at)

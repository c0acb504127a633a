"""What a shared page shows: a run, a view of runs, or a sweep; from its name, a filter, or an address."""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from halving.errors import InvalidInput, NotFound
from halving.query.run_filter_parser import parse_filter
from halving.query.runs import find_run
from halving.store.store import Store
from resources.catalog import Catalog, SweepRow
from resources.views.page_address import is_address, parse_address
from resources.views.saved_views import load_view
from server.sharing.view import MAX_RUNS, parse_view

ACCEPTED = (
    "give a filter such as 'project = digits order by metrics.loss limit 20', a run, a sweep's id, "
    "view:PROJECT/NAME of a saved view, or the address of the Compare page, a run or a sweep"
)
_SAVED = "view:"
# Spaces, signs and quotes are a filter's; a name has none of them.
_NAME = re.compile(r"[\w./:@+-]+")


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a page is made of.

    Attributes:
        kind: ``view`` is the runs that a query of the Compare page shows.
        name: ``project/run``, the query, or the sweep's id.
        metrics: the curves to show; none: those of the view, else those that most runs have.
        projects: the only ones that may be on the page, because its maker or its readers see no others; None
            is all.
        title: the page's heading; empty: what it shows.
        made_by: who made it, as the page says it; empty: it does not.
    """

    kind: Literal["run", "view", "sweep"]
    name: str
    metrics: tuple[str, ...] = ()
    projects: frozenset[str] | None = None
    title: str = ""
    made_by: str = ""

    def check(self, project: str | None, subject: str) -> None:
        """Refuse what is of no project that may be on the page, as if it did not exist.

        Raises:
            NotFound: the project is not among them.
        """
        if self.projects is not None and project not in self.projects:
            raise NotFound(f"no {subject} in the projects {', '.join(sorted(self.projects))}")


def filter_query(text: str) -> str:
    """The query of the Compare page for the runs that a filter chooses, as many of them as a page takes.

    Raises:
        InvalidFilter: it is not accepted.
    """
    limit = parse_filter(text).limit
    top = MAX_RUNS
    if limit is not None:
        top = min(limit, MAX_RUNS)
    return urlencode({"filter": text, "top": top})


def parse_target(text: str, store: Store, catalog: Catalog) -> tuple[Literal["run", "view", "sweep"], str]:
    """The kind and the name of what a person names, for a :class:`Target`.

    Raises:
        InvalidInput: it is nothing that can be shown.
        NotFound: there is no such run, sweep or saved view.
    """
    text = text.strip()
    if is_address(text):
        return _parse_address(text)
    if text.startswith(_SAVED):
        project, slash, name = text.removeprefix(_SAVED).partition("/")
        if not slash:
            raise InvalidInput(f"view {text!r} is not accepted: give {_SAVED}PROJECT/NAME")
        with catalog.read() as session:
            return "view", load_view(session, project, name).query
    if not _NAME.fullmatch(text):
        return "view", filter_query(text)
    with catalog.read() as session:
        if session.get(SweepRow, text) is not None:
            return "sweep", text
    try:
        return "run", "/".join(find_run(store, text))
    except NotFound as error:
        raise NotFound(f"{error}; nor is there a sweep {text!r}: {ACCEPTED}") from None


def _parse_address(text: str) -> tuple[Literal["run", "view", "sweep"], str]:
    target = parse_address(text)
    if target is None:
        raise InvalidInput(f"the address {text!r} is not accepted, since it shows no curves: {ACCEPTED}")
    kind, name = target
    if kind == "view":
        parse_view(name)
    return target

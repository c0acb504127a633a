"""``halving views``: views of Compare that are saved under a name for a project."""

import argparse
from typing import TYPE_CHECKING, Any

from commands.shared import answer, existing_backend
from halving.cli.output import print_table
from halving.cli.parser import add_command, add_group
from halving.errors import InvalidInput, NotFound
from halving.text import local_time

if TYPE_CHECKING:
    from rich.console import Console

    from resources.views.saved_views import SavedView

_NAME = "the view's name, in quotes if it has blanks"


def add_views_commands(commands: Any) -> None:
    """Add ``halving views list|show|save|delete``, and ``--view`` to ``halving runs``."""
    inner = add_group(commands, "views", "views of Compare that are saved under a name for a project")
    listing = add_command(inner, "list", "list saved views", run_list)
    listing.add_argument("--project", "-p", metavar="NAME", help="only this project's")
    _add_project(add_command(inner, "show", "show a saved view", run_show, view=_NAME))
    save = add_command(inner, "save", "save a view under a name", run_save, view=_NAME)
    _add_project(save)
    save.add_argument("query", metavar="QUERY", help="the address of the Compare page, or its query")
    save.add_argument(
        "--revision", metavar="R", help="of the view that this one replaces, as halving views show says it"
    )
    delete = add_command(inner, "delete", "delete a saved view", run_delete, view=_NAME)
    _add_project(delete)
    delete.add_argument("--revision", metavar="R", help="delete it only if it still is this one")
    commands.choices["runs"].add_argument(
        "--view", metavar="NAME", help="the filter, order and columns of a view that --project has saved"
    )


def run_list(arguments: argparse.Namespace) -> int:
    """List saved views. JSON: ``{"views": [{"project", "name", "query", "revision", "by", "at"}]}``."""
    from resources.views.saved_views import list_views

    projects = None
    if arguments.project is not None:
        projects = [arguments.project]
    with existing_backend(arguments).catalog.read() as session:
        views = list_views(session, projects)
    data = {"views": [view.as_dict() for view in views]}
    return answer(arguments, data, lambda console: _print_list(console, views))


def run_show(arguments: argparse.Namespace) -> int:
    """Show a saved view. JSON: one entry of ``halving views list``."""
    from resources.views.saved_views import load_view

    with existing_backend(arguments).catalog.read() as session:
        view = load_view(session, arguments.project, arguments.view)
    return answer(arguments, view.as_dict(), lambda console: _print_view(console, view))


def run_save(arguments: argparse.Namespace) -> int:
    """Save a view. JSON: as ``halving views show``."""
    from resources.registry.by_hand import user
    from resources.tenancy.projects import project_exists
    from resources.views.saved_views import save_view

    query = arguments.query
    if "?" in query:
        query = query.partition("?")[2].partition("#")[0]
    elif "://" in query:
        query = ""
    with existing_backend(arguments).catalog.write() as session:
        if not project_exists(session, arguments.project):
            raise NotFound(f"no project {arguments.project!r}: it has no run and no sweep")
        view = save_view(
            session, arguments.project, arguments.view, query, revision=arguments.revision, by=user()
        )
    return answer(arguments, view.as_dict(), lambda console: _print_view(console, view))


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete a saved view. JSON: what it was, as ``halving views show``."""
    from resources.views.saved_views import delete_view

    with existing_backend(arguments).catalog.write() as session:
        view = delete_view(session, arguments.project, arguments.view, revision=arguments.revision)
    text = f"the view {view.name} of project {view.project} is deleted; links to it go on until they end"
    return answer(
        arguments, view.as_dict(), lambda console: console.print(text, highlight=False, markup=False)
    )


def apply_view(arguments: argparse.Namespace) -> None:
    """Give ``halving runs --view NAME`` the view's filter and metrics, where nothing else is asked for.

    Raises:
        InvalidInput: a filter is given beside it, or no project.
        NotFound: the project has no such view.
    """
    from halving.query.run_filter_parser import parse_fields
    from resources.views.saved_views import load_view
    from resources.views.view_query import value_of

    if arguments.project is None:
        raise InvalidInput(
            f"--view {arguments.view!r} is not accepted alone: say whose it is, --project NAME"
        )
    if arguments.filter:
        raise InvalidInput(
            f"--view {arguments.view!r} is not accepted beside a filter: the view has one; leave out one of "
            "the two"
        )
    with existing_backend(arguments).catalog.read() as session:
        view = load_view(session, arguments.project, arguments.view)
    arguments.filter = value_of(view.query, "filter")
    arguments.columns = parse_fields(value_of(view.query, "columns"))


def _add_project(command: argparse.ArgumentParser) -> None:
    command.add_argument("--project", "-p", metavar="NAME", required=True, help="whose view it is")


def _print_list(console: "Console", views: "list[SavedView]") -> None:
    if not views:
        console.print(
            "no views are saved yet: Save view on the Compare page, or halving views save", highlight=False
        )
        return
    rows = [
        [view.project, view.name, view.by, local_time(view.at), view.query or "all runs"] for view in views
    ]
    print_table(console, ("project", "view", "by", "saved", "query"), rows, first=True)


def _print_view(console: "Console", view: "SavedView") -> None:
    from urllib.parse import parse_qsl

    lines = [
        f"{view.project}: {view.name}",
        f"saved by {view.by}, {local_time(view.at)}, revision {view.revision}",
        *(f"  {name} = {value}" for name, value in parse_qsl(view.query)),
        f"page: /?{view.query}",
    ]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)

"""``halving links``: view-only links to a run, a view, a sweep or a report."""

import argparse
import os
import re
from typing import TYPE_CHECKING, Any

from commands.shared import answer, existing_backend
from halving.cli.output import print_json, print_table
from halving.cli.parser import add_command, add_group
from halving.errors import InvalidInput
from halving.text import local_time

if TYPE_CHECKING:
    from rich.console import Console

    from resources.backend import Backend
    from resources.links.shared_links import SharedLink

_TARGET = (
    "a run (project/run), a sweep's id, report:SWEEP, view:PROJECT/NAME of a saved view, or the address of a "
    "page"
)
_PAGE_URL = "HALVING_PAGE_URL"


def add_links_commands(commands: Any) -> None:
    """Add ``halving links create|list|revoke``."""
    inner = add_group(
        commands,
        "links",
        "view-only links: whoever has one sees one run, view, sweep or report, without a token",
    )
    create = add_command(inner, "create", "make a link; its address is shown this once", run_create)
    create.add_argument("target", metavar="TARGET", help=_TARGET)
    create.add_argument(
        "--days", type=float, default=7.0, metavar="N", help="after which it ends (default: 7)"
    )
    create.add_argument("--note", default="", metavar="TEXT", help="for whom and why; links list shows it")
    create.add_argument(
        "--project",
        "-p",
        action="append",
        metavar="NAME",
        help="of a view: whose runs it may show; repeatable (default of a saved view: its project)",
    )
    create.add_argument("--url", metavar="URL", help=f"where people reach the server (default: {_PAGE_URL})")
    listing = add_command(inner, "list", "list links, also those that have ended lately", run_list)
    listing.add_argument("--project", "-p", metavar="NAME", help="only links that may show this project")
    add_command(
        inner,
        "revoke",
        "end a link: it shows nothing any more, on any server",
        run_revoke,
        id="as `halving links list` shows it",
    )


def run_create(arguments: argparse.Namespace) -> int:
    """Make a link. Only its address is on the standard output, for ``$(…)``.

    JSON: one entry of ``halving links list``, and ``"path"`` and ``"url"``; the latter is null where nothing
    says where people reach the server.
    """
    from resources.links.shared_links import create_link
    from resources.links.targets import check_target
    from resources.registry.by_hand import user

    base = _page_url(arguments.url)
    backend = existing_backend(arguments)
    kind, name = _parse_target(backend, arguments.target)
    target = check_target(backend.catalog, backend.store, kind, name, arguments.project)
    with backend.catalog.write() as session:
        link, secret = create_link(
            session, target, by=user(), token=None, days=arguments.days, note=arguments.note
        )
    path = f"/shared/{secret}"
    url = None
    if base:
        url = f"{base}{path}"
    if arguments.json:
        print_json({**link.as_dict(), "path": path, "url": url})
        return 0
    print(url or path)
    _print_what_it_is(link, url)
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """List links, the newest first.

    JSON: ``{"links": [{"id", "kind", "target", "projects", "note", "by", "token", "created_at", "expires_at",
    "revoked_at", "revoked_by", "last_used_at", "ended"}]}``; ``ended`` is revoked, expired, token, or null.
    """
    from resources.links.shared_links import list_links

    projects = None
    if arguments.project is not None:
        projects = [arguments.project]
    with existing_backend(arguments).catalog.read() as session:
        links = list_links(session, projects)
    data = {"links": [link.as_dict() for link in links]}
    return answer(arguments, data, lambda console: _print_list(console, links))


def run_revoke(arguments: argparse.Namespace) -> int:
    """Revoke a link. JSON: one entry of ``halving links list``."""
    from resources.links.shared_links import revoke_link
    from resources.registry.by_hand import user

    with existing_backend(arguments).catalog.write() as session:
        link = revoke_link(session, arguments.id, by=user())
    text = f"the link {link.id} to {link.kind} {link.target} shows nothing any more"
    return answer(
        arguments, link.as_dict(), lambda console: console.print(text, highlight=False, markup=False)
    )


def _page_url(address: str | None) -> str:
    """Where people reach the server, without a slash at its end; empty where nothing says so."""
    base = (address or os.environ.get(_PAGE_URL) or "").rstrip("/")
    if base and not re.fullmatch(r"https?://[^/\s?#]+[^\s?#]*", base):
        name = _PAGE_URL
        if address:
            name = "url"
        raise InvalidInput(
            f"{name} = {base!r:.200} is not accepted: give the server's address, such as "
            "https://halving.example.com"
        )
    return base


def _parse_target(backend: "Backend", text: str) -> tuple[str, str]:
    """The kind and the name of what a person names."""
    from resources.views.page_address import is_address, parse_address

    if is_address(text):
        target = parse_address(text)
        if target is None:
            raise InvalidInput(f"target = {text!r:.200} is not accepted: give {_TARGET}")
        return target
    kind, colon, name = text.partition(":")
    if kind == "view" and colon and "/" not in name and "=" not in name:
        raise InvalidInput(f"target = {text!r:.200} is not accepted: give a saved view as view:PROJECT/NAME")
    if colon and kind in ("run", "view", "sweep", "report"):
        return kind, name
    if "/" in text:
        return "run", text
    from resources.catalog import SweepRow

    with backend.catalog.read() as session:
        if session.get(SweepRow, text) is not None:
            return "sweep", text
    from halving.query.runs import find_run

    return "run", "/".join(find_run(backend.store, text))


def _print_what_it_is(link: "SharedLink", url: str | None) -> None:
    from halving.cli.output import console

    text = (
        f"whoever has it sees {link.kind} {link.target or 'all runs'}, and nothing beside it, until "
        f"{local_time(link.expires_at)}; it is not shown again. halving links revoke {link.id} ends it."
    )
    if url is None:
        text += f"\nPut the server's address before it, or set {_PAGE_URL} or --url."
    console(stderr=True).print(text, style="dim", highlight=False, markup=False)


def _print_list(console: "Console", links: "list[SharedLink]") -> None:
    if not links:
        console.print("there are no links: halving links create TARGET makes one", highlight=False)
        return
    rows = [
        [
            link.id,
            link.kind,
            link.target or "all runs",
            ", ".join(link.projects),
            _state(link),
            link.by,
            local_time(link.last_used_at),
            link.note,
        ]
        for link in links
    ]
    columns = ("link", "kind", "shows", "projects", "state", "by", "last opened", "note")
    print_table(console, columns, rows, first=True)


def _state(link: "SharedLink") -> str:
    if link.ended is None:
        return f"until {local_time(link.expires_at)}"
    if link.ended == "token":
        return "ended with its token"
    return link.ended

"""``halving serve`` and ``tokens``: the server and who may use it; ``halving share``: a page as a file."""

import argparse
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any

from halving.cli.output import console, print_json, print_table
from halving.cli.parser import add_command, add_group
from halving.text import NONE
from server.settings import PORT, WRITE_LOG_DAYS, Settings
from server.sharing.arguments import add_share_arguments

if TYPE_CHECKING:
    from resources.catalog import Catalog


def add_commands(commands: Any) -> None:
    """Add the server's commands to the ``halving`` command."""
    serve = add_command(
        commands, "serve", "open the API and the page that shows runs, sweeps and models", _serve
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="where to listen (default: 127.0.0.1, this machine alone; elsewhere tokens are asked for)",
    )
    serve.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}")
    serve.add_argument(
        "--tokens", action="store_true", help="ask for tokens also on this machine alone, as behind a proxy"
    )
    serve.add_argument(
        "--base-path",
        metavar="PATH",
        default=os.environ.get("HALVING_BASE_PATH", ""),
        help=(
            "below which a proxy shows the server, such as /user/ada/proxy/3001 (default: "
            "HALVING_BASE_PATH, else none)"
        ),
    )
    serve.add_argument(
        "--dagster-url",
        metavar="URL",
        default=os.environ.get("HALVING_DAGSTER_URL") or None,
        help="where Dagster's UI is, for links into it (default: HALVING_DAGSTER_URL)",
    )
    serve.add_argument(
        "--write-log-days",
        type=float,
        default=WRITE_LOG_DAYS,
        metavar="N",
        help=(
            f"after which the write log forgets a write (default: {WRITE_LOG_DAYS:g}; the longest, 36500, is "
            "a hundred years)"
        ),
    )
    serve.add_argument(
        "--page-url",
        metavar="URL",
        default=os.environ.get("HALVING_PAGE_URL") or None,
        help="where people reach the page, for links in messages of alerts (default: HALVING_PAGE_URL)",
    )
    serve.add_argument(
        "--alert-network",
        dest="alert_networks",
        metavar="NETWORK",
        action="append",
        default=[],
        help="a private network that messages of alerts may be sent to, such as 10.1.0.0/16; repeatable",
    )
    actions = add_group(commands, "tokens", "make, list and revoke the server's tokens")
    create = add_command(actions, "create", "make a token and print it, this once", _create)
    create.add_argument("name", help="who or what uses it, for example ada or ci; each name is used once")
    create.add_argument(
        "--scope",
        choices=("read", "write", "admin"),
        default="read",
        help="each may do what those before it may (default: read)",
    )
    create.add_argument(
        "--project",
        "-p",
        metavar="NAME",
        action="append",
        help="only runs, sweeps and models of this project; repeatable",
    )
    create.add_argument(
        "--days", type=float, metavar="N", help="after which it no longer holds (default: never)"
    )
    add_command(actions, "list", "list all tokens, also those that no longer hold", _list)
    revoke = add_command(
        actions,
        "revoke",
        "make a token hold no longer, and end the sessions that were opened with it",
        _revoke,
    )
    revoke.add_argument("name", help="as `halving tokens list` shows it")
    share = add_command(
        commands,
        "share",
        "write runs, curves and tables as one HTML file that opens without a network",
        _share,
    )
    add_share_arguments(share)


def _serve(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C.

    JSON: one line when it listens, ``{"url", "base_path", "store", "catalog", "tokens"}``.
    """
    from server.serving import serve

    names = ("root", "host", "port", "tokens", "base_path", "dagster_url", "write_log_days", "page_url")
    options = {name: getattr(arguments, name) for name in names}
    settings = Settings(**options, alert_networks=tuple(arguments.alert_networks))
    return serve(settings, as_json=arguments.json)


def _create(arguments: argparse.Namespace) -> int:
    """Make a token. Only the token is on the standard output, for ``$(…)``. JSON: ``{"name", "token"}``."""
    from server.identity.tokens import create_token

    options = {name: getattr(arguments, name) for name in ("scope", "days")}
    token = create_token(_catalog(arguments), arguments.name, projects=arguments.project, **options)
    if arguments.json:
        print_json({"name": arguments.name, "token": token})
        return 0
    print(token)
    console(stderr=True).print(
        "keep it well: it is not shown again. Requests carry it as Authorization: Bearer …",
        style="dim",
        highlight=False,
    )
    return 0


def _list(arguments: argparse.Namespace) -> int:
    """List tokens.

    JSON: ``{"tokens": [{"name", "scope", "projects", "created_at", "last_used_at", "expires_at",
    "revoked_at", "holds"}]}``.
    """
    from server.identity.tokens import list_tokens

    tokens = list_tokens(_catalog(arguments))
    if arguments.json:
        print_json({"tokens": [token.as_dict() for token in tokens]})
        return 0
    if not tokens:
        console(markup=True).print(
            "there are no tokens yet: [bold]halving tokens create NAME --scope admin[/] makes one"
        )
        return 0
    rows = []
    for token in tokens:
        state = "holds"
        if not token.holds:
            state = "revoked" if token.revoked_at else "too old"
        projects = "all"
        if token.projects is not None:
            projects = ", ".join(token.projects)
        rows.append(
            [
                token.name,
                token.scope,
                projects,
                state,
                _day(token.created_at),
                _minute(token.last_used_at),
                _day(token.expires_at),
            ]
        )
    print_table(
        console(), ("token", "scope", "projects", "state", "made", "last used", "until"), rows, first=True
    )
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    """Revoke a token. JSON: the token, as ``halving tokens list --json`` has it."""
    from server.identity.tokens import revoke_token

    token = revoke_token(_catalog(arguments), arguments.name)
    if arguments.json:
        print_json(token.as_dict())
    else:
        console().print(
            f"the token {token.name} holds no longer: within seconds no server takes it", highlight=False
        )
    return 0


def _share(arguments: argparse.Namespace) -> int:
    """Write a page; :func:`server.sharing.command.run_share` has its JSON."""
    from server.sharing.command import run_share

    return run_share(arguments)


def _catalog(arguments: argparse.Namespace) -> "Catalog":
    from halving import Store
    from resources.catalog.opening import open_catalog

    return open_catalog(Store(arguments.root))


def _day(time: datetime | None) -> str:
    if time is None:
        return NONE
    return time.astimezone().strftime("%Y-%m-%d")


def _minute(time: datetime | None) -> str:
    if time:
        return time.astimezone().strftime("%Y-%m-%d %H:%M")
    return NONE

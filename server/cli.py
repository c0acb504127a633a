"""``halving serve``: start the server."""

import argparse
from typing import Any

from halving.cli.parser import add_common
from server.settings import PORT, Settings


def add_commands(commands: Any) -> None:
    """Add the server's commands to the ``halving`` command."""
    description = "open the API and the page that shows runs, sweeps and models"
    serve = commands.add_parser("serve", help=description, description=f"{description[0].upper()}{description[1:]}.")
    serve.set_defaults(run=_serve)
    add_common(serve)
    serve.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1, this machine alone)")
    serve.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}")
    serve.add_argument("--dagster-url", metavar="URL", help="where Dagster's UI is, for links into it")


def _serve(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    import uvicorn

    from server.app import create_app

    settings = Settings(root=arguments.root, host=arguments.host, port=arguments.port, dagster_url=arguments.dagster_url)
    uvicorn.run(create_app(settings), host=settings.host, port=settings.port, log_level="warning")
    return 0

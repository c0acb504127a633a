"""Running the server: starting, what it prints, and stopping."""

import gc
import json
import socket
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI

from halving.cli.output import console
from halving.errors import InvalidInput
from resources.catalog import mask_password
from server.app import create_app
from server.identity.tokens import list_tokens
from server.settings import Settings
from server.state import State

_GRACE_SECONDS = 5  # for answers that are being given when the server is stopped; streams end at once


def serve(settings: Settings, *, as_json: bool = False) -> int:
    """Serve until SIGINT or SIGTERM; the process's exit status.

    Raises:
        InvalidInput: it could be reached from other machines, and nobody has a token.
    """
    app = create_app(settings)
    state: State = app.state.halving
    if settings.asks_for_tokens and not any(token.holds for token in list_tokens(state.catalog)):
        where = f"--host {settings.host} can be reached from other machines"
        if settings.tokens:
            where = "--tokens is given"
        raise InvalidInput(
            f"{where}, so who asks must have a token, and there is none yet: halving tokens create NAME "
            "--scope admin makes one"
        )
    # No access log: a proxy has one, and writes are in the write log.
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config, app, as_json=as_json)
    server.run()
    return int(not server.started)


class _Server(uvicorn.Server):
    """Uvicorn's server, which also prints its address, and ends streams when it stops."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, *, as_json: bool) -> None:
        super().__init__(config)
        self._app = app
        self._as_json = as_json

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            _exclude_from_collection()
            self._print_address()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._app.state.streams.end()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.halving.live.close()  # not in a signal's handler: it takes a lock
        await super().shutdown(sockets)

    def _print_address(self) -> None:
        state: State = self._app.state.halving
        settings = state.settings
        catalog = mask_password(state.catalog.url)
        host = settings.host
        if ":" in settings.host:
            host = f"[{settings.host}]"
        url = f"http://{host}:{settings.port}"
        store = state.store.address("").rstrip("/")
        if self._as_json:
            summary = {
                "url": url,
                "base_path": settings.base_path,
                "store": store,
                "catalog": catalog,
                "tokens": settings.asks_for_tokens,
            }
            print(json.dumps(summary), flush=True)
            return
        audience = "this machine alone, without a token"
        if settings.asks_for_tokens:
            audience = "who has a token"
        out = console()
        below = ""
        if settings.base_path:
            below = f", below {settings.base_path}"
        out.print(f"Halving's page and API: {url}{below}", highlight=False)
        out.print(
            f"store {store}, catalog {catalog}; for {audience}. Ctrl-C stops it.",
            style="dim",
            highlight=False,
        )
        sys.stdout.flush()


def _exclude_from_collection() -> None:
    """Exclude everything that exists now from garbage collection.

    Modules, routes and schemas stay as long as the server. A collection that visits all of them takes a fifth
    of a second, in which no request is answered, and under load one comes every few seconds.
    """
    gc.collect()
    gc.freeze()

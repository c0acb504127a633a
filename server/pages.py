"""The page: one HTML file for all its paths, and its modules as they lie in ``static/``."""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from starlette.responses import Response
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"

PATHS = (
    "/",
    "/runs/{project}/{run}",
    "/sweeps",
    "/sweeps/{name}",
    "/models",
    "/models/{name}",
    "/datasets",
    "/datasets/{name}",
    "/login",
)
"""What the page's router (``static/app.js``) knows; every other path is a file or nothing."""

_FRESH = {"Cache-Control": "no-cache"}  # kept, but asked for (304) each time: a module must fit the others after an upgrade


def add_pages(app: FastAPI) -> None:
    """Answer the page's paths and files; to be called last, for its files are everything that nothing else answers."""
    for path in PATHS:
        app.add_api_route(path, _page, methods=["GET", "HEAD"], include_in_schema=False)
    app.router.routes.append(_Rest("/", app=_Files(directory=STATIC)))


def _page() -> Response:
    return FileResponse(STATIC / "index.html", headers=_FRESH)


class _Rest(Mount):
    """Everything but the API, whose unknown paths and methods are answered as its other errors are."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.NONE, {}) if scope["type"] == "http" and scope["path"].startswith("/api/") else super().matches(scope)


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_FRESH)
        return response

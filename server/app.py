"""The application: guard, routes, errors, the page's files, and the services that run beside requests."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from fastapi import APIRouter, Depends, FastAPI, Security
from fastapi.security import HTTPBearer
from starlette.routing import BaseRoute

from halving import __version__
from server import routes
from server.access.authentication import Authentication
from server.access.guard import MAX_MLFLOW_BYTES, Guard, OpenStreams
from server.access.headers import content_policy
from server.access.project_limits import Routes, check_projects
from server.access.write_log import WriteLog
from server.base_path import BasePath
from server.daily_retention import begin_retention
from server.errors import add_error_handlers, error_responses
from server.index_refresher import keep_index_fresh
from server.mlflow import routes as mlflow
from server.mlflow.refusals import MlflowProblems
from server.pages import PageFiles, Pages
from server.publisher import publish_models
from server.settings import Settings
from server.state import State

MAX_BYTES = 1_000_000
"""Of a request's body."""

SERVICES: list[Callable[[State], AbstractAsyncContextManager[object]]] = [
    keep_index_fresh,
    publish_models,
    begin_retention,
]
"""What runs beside requests: entered when the server starts, left when it stops, the last one first."""

_DESCRIPTION = """The API of Halving: runs, curves, sweeps, models.

Beyond this machine every request carries a token (`halving tokens create NAME`):
`Authorization: Bearer hlv_…`.
A write may carry an `Idempotency-Key`, and is then done once.
Errors are `application/problem+json`: `{"status", "detail"}`.
"""


def create_app(settings: Settings) -> FastAPI:
    """Create the server's application for its store and catalog."""
    app = FastAPI(
        title="Halving",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        redirect_slashes=False,
        lifespan=_lifespan,
        routes=_routes(),
        servers=[{"url": settings.base_path}] if settings.base_path else None,
    )
    state = app.state.halving = State.of(settings)
    authentication = app.state.authentication = Authentication(state)
    route_index = Routes(app.routes)
    streams = OpenStreams()
    write_log = WriteLog(state.access_catalog, route_index, settings.audit_days)
    app.state.routes = route_index
    app.state.streams = streams
    app.state.write_log = write_log
    add_error_handlers(app, state.store.root)
    page = _page_files(settings.base_path)
    app.add_middleware(Pages, files=page)
    app.add_middleware(
        Guard,
        authentication=authentication,
        write_log=write_log,
        policy=content_policy(page.html),
        streams=streams,
        max_bytes=MAX_BYTES,
    )
    app.add_middleware(MlflowProblems)  # outside of the guard, whose refusals it translates
    if settings.base_path:
        app.add_middleware(BasePath, base_path=settings.base_path)
    return app


@functools.cache
def _routes() -> list[BaseRoute]:
    """The routes, shared by all servers of a process.

    Building them takes longer than starting a server.
    """
    # The scheme is for OpenAPI; the guard has looked at the token before.
    bearer = HTTPBearer(auto_error=False, description="A token: hlv_…")
    api = APIRouter(
        prefix="/api/v1",
        dependencies=[Security(bearer), Depends(check_projects)],
        responses=error_responses(400, 401, 403, 404, 405, 409, 413, 421, 422, 429, 503),
    )
    for router in routes.ROUTERS:
        api.include_router(router, max_body_size=MAX_BYTES)
    root = APIRouter()
    root.include_router(api)
    root.include_router(mlflow.text)
    root.include_router(mlflow.page)  # before the API, whose paths would take some of its
    root.include_router(mlflow.api, max_body_size=MAX_MLFLOW_BYTES)
    root.include_router(mlflow.proxy)
    return root.routes


@functools.cache
def _page_files(base_path: str) -> PageFiles:
    return PageFiles(base_path=base_path)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for service in SERVICES:
            await stack.enter_async_context(service(app.state.halving))
        await stack.enter_async_context(app.state.write_log.run())
        yield
    await asyncio.to_thread(app.state.halving.close)

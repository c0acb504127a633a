"""The application: routes, what stands around them, and the services that run beside requests."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from fastapi import APIRouter, Depends, FastAPI, Security
from fastapi.security import HTTPBearer
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from halving import __version__
from server import agents, routes
from server.access.addresses import ReadableAddresses
from server.access.authentication import Authentication
from server.access.body_limit import BodyLimit
from server.access.csrf import CsrfTokens, SameOrigin
from server.access.guard import Guard
from server.access.head_requests import HeadAsGet
from server.access.headers import SecurityHeaders, content_policy
from server.access.local_hosts import LocalHosts
from server.access.policy import MAX_BODY, FindPolicy
from server.access.project_limits import Routes, check_projects
from server.access.streams import EndStreams, OpenStreams
from server.access.write_log import LogWrites, WriteLog
from server.alert_service import send_alerts
from server.base_path import BasePath
from server.daily_retention import begin_retention
from server.errors import AnswerErrors, add_error_handlers, error_responses
from server.index_refresher import keep_index_fresh
from server.links.opening import SharedLinks
from server.mlflow import routes as mlflow
from server.mlflow.refusals import MlflowProblems
from server.pages import PageFiles, Pages
from server.settings import Settings
from server.state import State


@contextlib.asynccontextmanager
async def publish_models(state: State) -> AsyncIterator[None]:
    """Publish changes of models for the length of the ``with`` block.

    The first are those that an earlier server has left.
    """
    state.publisher.start()
    try:
        yield
    finally:
        await asyncio.to_thread(state.publisher.stop)


SERVICES: list[Callable[[State], AbstractAsyncContextManager[object]]] = [
    keep_index_fresh,
    publish_models,
    begin_retention,
    send_alerts,
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
    servers = None
    if settings.base_path:
        servers = [{"url": settings.base_path}]
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
        servers=servers,
    )
    state = State.of(settings)
    app.state.halving = state
    app.state.authentication = Authentication(state)
    app.state.routes = Routes(app.routes)
    app.state.streams = OpenStreams()
    app.state.write_log = WriteLog(state.access_catalog, app.state.routes, settings.write_log_days)
    add_error_handlers(app, state.store.root)
    app.user_middleware += _middleware(app, settings)
    return app


def _middleware(app: FastAPI, settings: Settings) -> list[Middleware]:
    """What a request passes before its route, from the outside in; its answer passes it the other way."""
    page = _page_files(settings.base_path)
    authentication = app.state.authentication
    middleware = [
        Middleware(MlflowProblems),  # translates the refusals of all others
        Middleware(FindPolicy, policies=[*routes.POLICIES, *mlflow.POLICIES, *agents.POLICIES]),
        Middleware(EndStreams, streams=app.state.streams),
        Middleware(SecurityHeaders, content_policy=content_policy(page.html)),
        Middleware(HeadAsGet),
        # It knows who has written after the guard has let them in, and records errors as they are answered.
        Middleware(LogWrites, write_log=app.state.write_log),
        Middleware(AnswerErrors),
        Middleware(LocalHosts, authentication=authentication),
        # It answers by itself: what stands further inside never sees what was sent to a view-only link.
        Middleware(SharedLinks, state=app.state.halving, authentication=authentication),
        Middleware(ReadableAddresses),
        Middleware(BodyLimit),
        Middleware(SameOrigin, authentication=authentication),
        Middleware(Guard, authentication=authentication),
        # The guard has found the session.
        Middleware(CsrfTokens, authentication=authentication),
        Middleware(Pages, files=page),
    ]
    if settings.base_path:
        middleware.insert(0, Middleware(BasePath, base_path=settings.base_path))
    return middleware


@functools.cache
def _routes() -> list[BaseRoute]:
    """The routes, shared by all servers of a process.

    Building them takes longer than starting a server.
    """
    # The scheme is for OpenAPI; the guard has looked at the token before.
    bearer = HTTPBearer(auto_error=False, description="A token: hlv_…")
    api = APIRouter(
        prefix=routes.PREFIX,
        dependencies=[Security(bearer), Depends(check_projects)],
        responses=error_responses(400, 401, 403, 404, 405, 409, 413, 421, 422, 429, 503),
    )
    for router in routes.ROUTERS:
        api.include_router(router, max_body_size=MAX_BODY)
    root = APIRouter(routes=[agents.ROUTE])
    root.include_router(api)
    root.include_router(mlflow.text)
    root.include_router(mlflow.page)  # before the API, whose paths would take some of its
    root.include_router(mlflow.api, max_body_size=mlflow.MAX_BODY)
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

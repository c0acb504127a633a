"""The application: routes, errors and the page's files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI

from halving import __version__
from server import routes
from server.errors import add_error_handlers
from server.index_refresher import IndexRefresher
from server.pages import add_pages
from server.settings import Settings
from server.state import State


def create_app(settings: Settings) -> FastAPI:
    """The server on its store and catalog."""
    app = FastAPI(
        title="Halving", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/v1/openapi.json", lifespan=_lifespan
    )
    app.state.halving = State.of(settings)
    add_error_handlers(app)
    api = APIRouter(prefix="/api/v1")
    for router in routes.ROUTERS:
        api.include_router(router)
    app.include_router(api)
    add_pages(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """What runs beside the requests."""
    refresher = IndexRefresher(app.state.halving)
    refresher.start()
    try:
        yield
    finally:
        await asyncio.to_thread(refresher.stop)

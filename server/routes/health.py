"""Whether the server lives, and whether it reaches its catalog."""

from fastapi import APIRouter
from sqlalchemy import text

from halving import __version__
from server.access.policy import RoutePolicy
from server.state import Shared

router = APIRouter(tags=["health"])
POLICIES = [RoutePolicy("/health", open=("GET",)), RoutePolicy("/ready", open=("GET",))]


@router.get("/health")
async def health() -> dict[str, str]:
    """The process lives."""
    return {"status": "ok", "version": __version__}


@router.get("/ready")
def ready(state: Shared) -> dict[str, str]:
    """The catalog answers."""
    with state.catalog.read() as session:
        session.execute(text("SELECT 1"))
    return {"status": "ok"}

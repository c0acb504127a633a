"""Who asks: logging a browser in and out; and what was changed by whom."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import BaseModel, Field, SecretStr

from server.access.authentication import Authentication
from server.access.policy import RoutePolicy
from server.access.write_log import entries
from server.answers import answer
from server.errors import problem
from server.identity.caller import LOCAL, Caller, Viewer
from server.identity.origins import host_name, is_loopback
from server.identity.sessions import Session, clear_cookie, set_cookie
from server.state import Shared, State

router = APIRouter(tags=["access"])
POLICIES = [
    # Who may only read can end their session as well.
    RoutePolicy("/session", scope="read", open=("POST",)),
    RoutePolicy("/write-log", scope="admin"),
]


class Who(BaseModel):
    """Who asks, and what they may do."""

    actor: str = Field(description="The token's name; local where no tokens are asked for.", examples=["ada"])
    scopes: list[str] = Field(examples=[["read", "write"]])
    projects: list[str] | None = Field(
        description="The only projects that it may see; null: all.", examples=[None]
    )
    dagster_url: str | None = Field(description="Where Dagster's UI is.", examples=["http://127.0.0.1:3000"])
    auth: bool = Field(description="Whether tokens are asked for.")
    csrf: str | None = Field(
        description="What writes of a browser's session carry in X-CSRF-Token; null without a session."
    )


class Entry(BaseModel):
    """A write."""

    id: int
    at: datetime
    actor: str = Field(examples=["ada"])
    method: str = Field(examples=["POST"])
    route: str = Field(examples=["/api/v1/hpo/studies/{study}/pause"])
    target: str = Field(examples=["/api/v1/hpo/studies/digits-7f3a/pause"])
    status: int = Field(examples=[200])


class WriteLog(BaseModel):
    """The newest writes first."""

    entries: list[Entry]


@router.get("/session", response_model=Who)
def who(request: Request, state: Shared, caller: Viewer) -> Response:
    """Who asks, and what they may do."""
    return answer(_who(request, state, caller, request.scope.get("halving.session")))


@router.post("/session", response_model=Who)
async def log_in(
    request: Request,
    state: Shared,
    token: Annotated[SecretStr, Body(embed=True, description="A token: hlv_…", max_length=200)],
) -> Response:
    """Open a browser's session.

    The answer sets a cookie, which is as good as the token until that is revoked or a week is over.
    """
    authentication: Authentication = request.app.state.authentication
    if not authentication.asks:
        return answer(_who(request, state, LOCAL, None))
    holder = await authentication.find_by_text(token.get_secret_value())
    if holder is None:
        address = ""
        if request.client:
            address = request.client.host
        wait = await authentication.delay_refusal(address)
        if wait is not None:
            return problem(
                429,
                "too many tokens that do not hold were sent from this address",
                {"Retry-After": str(wait)},
            )
        return problem(401, "this token does not hold: it is wrong, revoked or too old")
    session, cookie = authentication.sessions.open(holder.name)
    caller = holder.caller(session=True)
    request.scope["halving.caller"] = caller  # for the write log
    response = answer(_who(request, state, caller, session))
    set_cookie(response, cookie, base_path=state.settings.base_path, secure=_secure(request))
    return response


@router.delete("/session", status_code=204)
def log_out(request: Request, state: Shared) -> Response:
    """End the browser's session."""
    response = Response(status_code=204)
    clear_cookie(response, base_path=state.settings.base_path, secure=_secure(request))
    return response


@router.get("/write-log", response_model=WriteLog)
def list_writes(
    state: Shared,
    actor: Annotated[str | None, Query(description="Only this token's.")] = None,
    since: Annotated[datetime | None, Query(description="Only from then on.")] = None,
    before: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="Only entries with a smaller id: the next page.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Who changed what, and how it was answered: the newest writes first. For administrators."""
    return answer({"entries": entries(state.catalog, actor=actor, since=since, before=before, limit=limit)})


def _who(request: Request, state: State, caller: Caller, session: Session | None) -> dict[str, Any]:
    authentication: Authentication = request.app.state.authentication
    csrf = None
    if session:
        csrf = authentication.sessions.csrf(session)
    return {
        "actor": caller.actor,
        "scopes": caller.scopes,
        "projects": caller.visible_projects,
        "dagster_url": state.settings.dagster_url,
        "auth": authentication.asks,
        "csrf": csrf,
    }


def _secure(request: Request) -> bool:
    """Whether the cookie is for TLS alone: everywhere but on this machine."""
    return not is_loopback(host_name(request.headers.get("host", "")))

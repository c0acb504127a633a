"""Tokens that are limited to projects.

Which routes show a caller only their own projects, and the check that runs before every route.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_type_hints

from fastapi import HTTPException, Request
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute

from server.identity.caller import Caller, caller_of

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_OF_ALL = ("/alerts/events", "/health", "/ready", "/session", "/signed/{address}", "/signed/parts/{address}")
"""Routes that name no run, sweep or model."""


class Routes:
    """Looks up an application's routes by the functions that answer them.

    Args:
        routes: the application's; looked at when they are asked for, after all of them were added.
    """

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._routes = routes
        self._paths: dict[Any, str] | None = None

    @property
    def paths(self) -> dict[Any, str]:
        """The template of each route's path, by its function."""
        if self._paths is None:
            self._paths = {
                route.endpoint: route.path_format or ""
                for route in iter_route_contexts(self._routes)
                if route.endpoint
            }
        return self._paths

    def template(self, endpoint: Callable[..., Any] | None) -> str:
        """The path's template; ``-`` where no route was found."""
        return self.paths.get(endpoint, "-")

    def limits(self, endpoint: Callable[..., Any]) -> bool:
        """Whether a route shows a caller only their own projects.

        It does if its path names a project, or if it takes the caller.
        """
        path = self.paths.get(endpoint, "")
        return "{project}" in path or path.endswith(_OF_ALL) or _takes_caller(endpoint)


def foreign_is_forbidden(endpoint: _Endpoint) -> _Endpoint:
    """Mark a route that answers 403, not 404, for a project that is not the caller's.

    A client that writes must know why it may not.
    """
    endpoint.foreign_is_forbidden = True  # type: ignore[attr-defined]
    return endpoint


async def check_projects(request: Request) -> None:
    """Refuse other projects than the caller's, and routes that would show them; runs before every API route.

    A coroutine, so that it waits for none of the server's threads.

    Raises:
        NotFound: the path or the query names another project.
        HTTPException: the same where the route forbids it, or the route knows no limits.
    """
    caller: Caller | None = request.scope.get("halving.caller")
    if caller is None or caller.projects is None:  # where nobody is known, the guard has let everybody in
        return
    endpoint = request.scope["endpoint"]
    check: Callable[[str], None] = caller.check
    if getattr(endpoint, "foreign_is_forbidden", False):
        check = caller.check_writes
    if project := request.path_params.get("project"):
        check(project)
    for project in request.query_params.getlist("project"):
        check(project)
    for run in request.query_params.getlist("run"):
        if "/" in run:
            caller.check(run.partition("/")[0], f"run {run!r}")
    routes: Routes = request.app.state.routes
    if not routes.limits(endpoint):
        raise HTTPException(403, "this is of all projects, and the token is limited to some")


def _takes_caller(endpoint: Callable[..., Any]) -> bool:
    if not inspect.isfunction(endpoint):
        return False
    hints = get_type_hints(endpoint, include_extras=True)
    return any(
        getattr(annotation, "dependency", None) is caller_of
        for hint in hints.values()
        for annotation in getattr(hint, "__metadata__", ())
    )

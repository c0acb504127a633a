"""The caller of a request, and what a route may show to them."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, HTTPException, Request

from halving.errors import NotFound

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
"""From the least to the most; each may do what those before it may."""


@dataclass(frozen=True)
class Caller:
    """Who sent a request, and what they may do.

    Attributes:
        actor: the token's name; ``local`` where no tokens are asked for.
        scope: the most that it may do.
        projects: the only projects whose runs, sweeps and models it may see and change; None is all.
        session: whether a browser sent its cookie, and not a program its token.
    """

    actor: str
    scope: Scope
    projects: frozenset[str] | None = None
    session: bool = False

    @property
    def scopes(self) -> list[Scope]:
        """All scopes that the caller has, from the least."""
        return list(SCOPES[: SCOPES.index(self.scope) + 1])

    @property
    def visible_projects(self) -> list[str] | None:
        """The projects that it may see, sorted; None is all."""
        return None if self.projects is None else sorted(self.projects)

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes

    def sees(self, project: str) -> bool:
        """Whether the caller may know that the project exists."""
        return self.projects is None or project in self.projects

    def check(self, project: str | None, subject: str | None = None) -> None:
        """Refuse a project that is not the caller's as if it did not exist.

        Args:
            project: None is that of something that is indeed not there: the answer must not tell which of
                both it is.
            subject: what was asked for, for the message; by default the project itself.

        Raises:
            NotFound: it is not among the caller's projects.
        """
        if self.projects is not None and project not in self.projects:
            raise NotFound(
                f"no {subject or f'project {project!r}'}; this token may see the projects "
                f"{', '.join(sorted(self.projects))}"
            )

    def check_writes(self, project: str) -> None:
        """Refuse to write into a project that is not the caller's.

        It says nothing about whether there is such a project.

        Raises:
            HTTPException: 403.
        """
        if not self.sees(project):
            raise HTTPException(
                403,
                f"this token may not write into project {project!r}: it may into "
                f"{', '.join(sorted(self.projects or ()))}",
            )


LOCAL = Caller("local", "admin")
"""Everybody, where the server listens on this machine alone and asks for no tokens."""


def caller_of(request: Request) -> Caller:
    """The caller that the guard found for a request.

    A request for which it found none is not answered.
    """
    caller: Caller = request.scope["halving.caller"]
    return caller


Viewer = Annotated[Caller, Depends(caller_of)]
"""In a route's arguments: who asks.

A route that lists things of several projects leaves out those that it does not :meth:`~Caller.sees`; one that
is given an id checks the id's project with :meth:`~Caller.check`. Paths with ``{project}``, and the query's
``project`` and ``run=PROJECT/RUN``, are checked before the route is called. A token that is limited to
projects is refused by routes that do neither.
"""

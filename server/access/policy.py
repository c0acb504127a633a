"""What the checks before a request have to know of the routes at its address.

A module hands in the policies of those of its routes that differ from the rest, and the application collects
them: the checks know no route by name.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from starlette.types import ASGIApp, Receive, Scope, Send

from server.identity.caller import Scope as TokenScope

MAX_BODY = 1_000_000
"""Bytes of a request's body where no policy says otherwise."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""

ANY_METHOD = ("*",)
"""For :attr:`RoutePolicy.open`."""

_POLICY = "halving.policy"  # in a request's scope


@dataclass(frozen=True)
class RoutePolicy:
    """What the routes at an address, or below it, ask of a request.

    Attributes:
        prefix: the address; if it ends with a slash, everything below it, unless another policy's prefix is a
            longer part of the request's address.
        scope: what a token needs for any method; None: ``write`` for requests that change something, and
            ``read`` for the rest.
        reads: whether no method changes anything, not even POST: such requests ask for more than fits into a
            URL.
        max_body: the most bytes that a request may announce as its body; None: its route limits the body.
        open: methods that are answered whoever asks.
    """

    prefix: str
    scope: TokenScope | None = None
    reads: bool = False
    max_body: int | None = MAX_BODY
    open: Collection[str] = ()

    def below(self, path: str) -> "RoutePolicy":
        """The policy of the same routes where they are included below a path."""
        return replace(self, prefix=path + self.prefix)

    def is_open(self, method: str) -> bool:
        """Whether a method is answered whoever asks."""
        return self.open == ANY_METHOD or method in self.open

    def writes(self, method: str) -> bool:
        """Whether a request with this method may change something."""
        return not self.reads and method not in SAFE_METHODS

    def needed_scope(self, method: str) -> TokenScope:
        """The scope that a token needs for a method."""
        if self.scope is not None:
            return self.scope
        if self.writes(method):
            return "write"
        return "read"


class FindPolicy:
    """ASGI middleware that finds the policy for each request's address; :func:`policy_of` returns it."""

    def __init__(self, app: ASGIApp, policies: Iterable[RoutePolicy]) -> None:
        self._app = app
        policies = sorted(policies, key=lambda policy: len(policy.prefix), reverse=True)
        self._by_address = {policy.prefix: policy for policy in policies}
        self._folders = [policy for policy in policies if policy.prefix.endswith("/")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[_POLICY] = self._find(scope["path"])
        await self._app(scope, receive, send)

    def _find(self, path: str) -> RoutePolicy | None:
        # The web framework's patterns end with $, which matches before a line break too.
        path = path.removesuffix("\n")
        if path in self._by_address:
            return self._by_address[path]
        return next((policy for policy in self._folders if path.startswith(policy.prefix)), None)


def policy_of(scope: Scope) -> RoutePolicy | None:
    """The policy for a request's address; None: it belongs to the page, which everybody may read."""
    policy: RoutePolicy | None = scope.get(_POLICY)
    return policy

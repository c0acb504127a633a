"""Which policy is that of an address, and what it asks of a request."""

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from server.access.policy import ANY_METHOD, FindPolicy, RoutePolicy, policy_of

API = RoutePolicy("/api/")
CURVES = RoutePolicy("/api/curves", reads=True)
FILES = RoutePolicy("/api/files/", max_body=None)
PARTS = RoutePolicy("/api/files/parts/", open=ANY_METHOD)


def policy_for(path: str, kind: str = "http") -> RoutePolicy | None:
    policies: list[RoutePolicy | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        policies.append(policy_of(scope))

    async def unused(*arguments: Any) -> Any:
        raise AssertionError(arguments)

    asyncio.run(FindPolicy(app, [API, FILES, CURVES, PARTS])({"type": kind, "path": path}, unused, unused))
    return policies[0]


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("/api/curves", CURVES),
        ("/api/curves/1", API),
        ("/api/curves\n", CURVES),  # it is routed as without the line break
        ("/api/files", API),
        ("/api/files/a", FILES),
        ("/api/files/parts/1", PARTS),
        ("/api/", API),
        ("/api", None),
        ("/", None),
    ],
)
def test_the_policy_of_an_address_is_its_own_or_that_of_the_longest_prefix(
    path: str, policy: RoutePolicy | None
) -> None:
    assert policy_for(path) == policy


def test_what_is_no_request_has_no_policy() -> None:
    assert policy_for("/api/curves", "lifespan") is None


def test_the_method_says_which_scope_is_needed_where_the_policy_does_not() -> None:
    methods = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "BREW")
    assert [API.needed_scope(method) for method in methods] == ["read"] * 3 + ["write"] * 3
    assert {CURVES.needed_scope(method) for method in methods} == {"read"}
    assert {RoutePolicy("/", scope="admin").needed_scope(method) for method in methods} == {"admin"}


def test_an_address_is_open_for_the_methods_that_its_policy_names() -> None:
    health = RoutePolicy("/health", open=("GET",)).below("/api")
    assert health.prefix == "/api/health"
    assert (health.is_open("GET"), health.is_open("POST"), API.is_open("GET")) == (True, False, False)
    assert PARTS.is_open("BREW")

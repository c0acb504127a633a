"""Saved views over HTTP."""

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from resources.backend import Backend
from resources.tenancy.projects import set_project

PATH = "/api/v1/views/digits/best%20by%20lr"


@pytest.fixture(autouse=True)
def project(backend: Backend) -> None:
    set_project(backend.catalog, "digits", weight=1)


def test_a_view_is_saved_replaced_and_deleted_by_its_name(local: TestClient) -> None:
    saved = local.put(PATH, json={"query": "?filter=status = finished&tab=diff"})
    assert saved.status_code == 200, saved.text
    view = saved.json()
    assert (view["name"], view["query"]) == ("best by lr", "filter=status+%3D+finished&tab=diff")
    assert view["by"] == "local"
    assert local.get(PATH).json() == view
    assert local.get("/api/v1/views", params={"project": "digits"}).json() == {"views": [view]}
    changed = local.put(PATH, json={"query": "tab=media", "revision": view["revision"]}).json()
    assert changed["revision"] != view["revision"]
    late = local.put(PATH, json={"query": "tab=system", "revision": view["revision"]})
    assert (late.status_code, changed["revision"] in late.json()["detail"]) == (409, True)
    assert local.delete(PATH, params={"revision": view["revision"]}).status_code == 409
    assert local.delete(PATH).json() == changed
    assert local.get(PATH).status_code == 404
    entries = local.get("/api/v1/write-log").json()["entries"]
    logged = {(entry["method"], entry["status"]) for entry in entries}
    assert logged == {("PUT", 200), ("PUT", 409), ("DELETE", 200)}, "alike refusals are one entry"
    assert {entry["target"] for entry in entries} == {"/api/v1/views/digits/best by lr"}


def test_what_is_no_view_is_refused_by_its_field(local: TestClient) -> None:
    for query, field in (("top=many", "top = 'many'"), ("secret=1", "'secret'"), ("filter=a+==", "filter")):
        refused = local.put(PATH, json={"query": query})
        assert (refused.status_code, field in refused.json()["detail"]) == (422, True)
    assert local.put("/api/v1/views/digts/a", json={"query": ""}).status_code == 404  # a misspelt project
    assert local.put("/api/v1/views/digits/%20", json={"query": ""}).status_code == 422


def test_a_repeated_save_is_answered_as_before(local: TestClient) -> None:
    key = {"Idempotency-Key": "0b1c"}
    first, again = (local.put(PATH, json={"query": "tab=diff"}, headers=key) for _ in range(2))
    assert (first.json(), again.status_code) == (again.json(), 200)


def test_a_token_that_may_only_read_saves_nothing(
    guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    reader = bearer("ben")
    writer = bearer("ada", scope="write", projects=["digits"])
    assert guarded.put(PATH, json={"query": ""}, headers=reader).status_code == 403
    assert guarded.put(PATH, json={"query": ""}, headers=writer).status_code == 200
    assert guarded.delete(PATH, headers=reader).status_code == 403
    assert guarded.get(PATH, headers=reader).status_code == 200
    stranger = bearer("eve", scope="write", projects=["other"])
    for request in (guarded.get, guarded.delete):
        assert request(PATH, headers=stranger).status_code == 404
    assert guarded.put(PATH, json={"query": ""}, headers=stranger).status_code == 404
    assert guarded.get("/api/v1/views", headers=stranger).json() == {"views": []}

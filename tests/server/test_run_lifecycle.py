"""Runs that are tagged, archived, deleted and restored over HTTP, by our API and by MLflow's alike."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import halving
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from tests.backends import add_version

RUNS = "/api/v1/runs"


@pytest.fixture
def run(backend: Backend) -> str:
    """``digits/a``, in the index."""
    halving.init("digits", {}, Path(backend.store.root), id="a", system_metrics=None).finish()
    Refresher(backend.store, backend.catalog).refresh()
    return "digits/a"


def list_ids(local: TestClient, **query: str) -> list[str]:
    return [run["id"] for run in local.get(RUNS, params=query).json()["runs"]]


def test_a_run_is_archived_deleted_and_restored_and_listed_at_once_as_it_is(
    local: TestClient, run: str
) -> None:
    for does, lifecycle, listed_ids in (
        ("archive", "archived", []),
        ("delete", "deleted", []),
        ("restore", "active", [run]),
    ):
        assert local.post(f"{RUNS}/{run}/{does}").json() == {
            "id": run,
            "lifecycle": lifecycle,
            "changed": True,
        }
        assert list_ids(local) == listed_ids
        assert list_ids(local, filter=f"lifecycle = {lifecycle}") == [run]
        assert local.get(f"{RUNS}/{run}").json()["lifecycle"] == lifecycle
    assert local.post(f"{RUNS}/{run}/restore").json()["changed"] is False
    assert local.post(f"{RUNS}/digits/none/delete").status_code == 404
    targets = [entry["target"] for entry in local.get("/api/v1/write-log").json()["entries"]]
    assert f"{RUNS}/{run}/delete" in targets


def test_tags_are_set_and_taken_away(local: TestClient, run: str) -> None:
    assert local.post(f"{RUNS}/{run}/tags", json={"tags": {"team": "vision", "wip": "1"}}).json()["tags"] == {
        "team": "vision",
        "wip": "1",
    }
    assert local.post(f"{RUNS}/{run}/tags", json={"tags": {"wip": None}}).json()["tags"] == {"team": "vision"}
    assert local.post(f"{RUNS}/{run}/tags", json={"tags": {"": "x"}}).status_code == 422


def test_a_needed_run_is_not_deleted_and_a_token_of_another_project_does_not_see_it(
    backend: Backend, local: TestClient, guarded: TestClient, bearer: Callable[..., dict[str, str]], run: str
) -> None:
    with backend.catalog.write() as session:
        add_version(session, model="digits", version="1.0.0", stage="champion", run="a")
    refused = local.post(f"{RUNS}/{run}/delete")
    assert (refused.status_code, "which is champion" in refused.json()["detail"]) == (422, True)
    for scope, projects, status in (
        ("read", None, 403),
        ("write", ["text"], 404),
        ("write", ["digits"], 200),
    ):
        header = bearer(f"{scope}-{status}", scope=scope, projects=projects)
        assert guarded.post(f"{RUNS}/{run}/archive", headers=header).status_code == status


def test_mlflows_clients_and_ours_mean_the_same_by_deleted(
    local: TestClient, backend: Backend, mlflow_grammar: None
) -> None:
    def api(endpoint: str, **fields: Any) -> dict[str, Any]:
        answer = local.post(f"/api/2.0/mlflow/{endpoint}", json=fields)
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def stage() -> str:
        return str(
            local.get("/api/2.0/mlflow/runs/get", params={"run_id": tracked}).json()["run"]["info"][
                "lifecycle_stage"
            ]
        )

    def ours() -> str:
        return str(local.get(f"{RUNS}/Default/{tracked}").json()["lifecycle"])

    tracked = api("runs/create", experiment_id="0")["run"]["info"]["run_id"]
    api("runs/delete", run_id=tracked)
    assert (stage(), ours()) == ("deleted", "deleted")
    assert local.post(f"{RUNS}/Default/{tracked}/restore").status_code == 200
    assert (stage(), ours()) == ("active", "active")
    local.post(f"{RUNS}/Default/{tracked}/archive")
    assert (stage(), ours()) == ("active", "archived")
    api("runs/set-tag", run_id=tracked, key="team", value="vision")
    assert (
        local.post(f"{RUNS}/Default/{tracked}/tags", json={"tags": {"paper": "3"}}).json()["tags"]["team"]
        == "vision"
    )
    assert ours() == "archived"
    local.post(f"{RUNS}/Default/{tracked}/delete")
    assert stage() == "deleted"
    made = api("experiments/create", name="others")["experiment_id"]
    others = [api("runs/create", experiment_id=made)["run"]["info"]["run_id"] for _ in range(2)]
    Refresher(backend.store, backend.catalog).refresh()
    api("experiments/delete", experiment_id=made)
    assert list_ids(local, project="others") == [], (
        "at once, in the index too, by which retention finds what has expired"
    )
    assert sorted(list_ids(local, filter="lifecycle = deleted", project="others")) == sorted(
        f"others/{run}" for run in others
    )
    assert {local.get(f"{RUNS}/others/{run}").json()["lifecycle"] for run in others} == {"deleted"}
    api("experiments/restore", experiment_id=made)
    assert {local.get(f"{RUNS}/others/{run}").json()["lifecycle"] for run in others} == {"active"}

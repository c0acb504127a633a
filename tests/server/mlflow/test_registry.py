"""The registry as MLflow's clients know it, and as our own API shows it."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog.models import champion_of
from resources.sweep_spec import SweepSpec
from tests.server.mlflow.conftest import Api
from tests.server.mlflow.registered import EXISTS, INVALID, NONE, names, numbers, register, version
from tests.server.registry import promote_winner

PROXY = "http://127.0.0.1:3001/api/2.0/mlflow-artifacts/artifacts"


OURS = "http://127.0.0.1:3001/api/v1/models"


def test_a_model_is_what_was_said_of_it(api: Api, model: str) -> None:
    form = api("registered-models/get", "GET", name=model)["registered_model"]
    assert (form["description"], form["tags"]) == ("of digits", [{"key": "team", "value": "vision"}])
    assert "latest_versions" not in form
    changed = api("registered-models/update", "PATCH", name=model, description="of numbers")[
        "registered_model"
    ]
    assert (changed["description"], changed["last_updated_timestamp"] >= form["last_updated_timestamp"]) == (
        "of numbers",
        True,
    )
    assert api("registered-models/rename", name=model, new_name=model)["registered_model"]["name"] == model
    api("registered-models/set-tag", name=model, key="stage", value=None)
    api("registered-models/set-tag", name=model, key="stage", value="größe")
    api("registered-models/delete-tag", "DELETE", name=model, key="team")
    api("registered-models/delete-tag", "DELETE", name=model, key="team")
    assert api("registered-models/get", "GET", name=model)["registered_model"]["tags"] == [
        {"key": "stage", "value": "größe"}
    ]
    assert api("registered-models/create", answered=400, name=model)["error_code"] == EXISTS


def test_a_name_that_no_model_can_have_is_refused(api: Api) -> None:
    for name in ("", " ", "a/b", "a:b", "..", "a" * 257, 7, None):
        assert api("registered-models/create", answered=400, name=name)["error_code"] == INVALID, name
    assert names(api) == []


def test_versions_count_from_one_and_a_deleted_one_leaves_its_number(api: Api, model: str) -> None:
    assert [register(api, model)["version"] for _ in range(3)] == ["1", "2", "3"]
    api("model-versions/delete", "DELETE", name=model, version="3")
    assert api("model-versions/get", "GET", answered=404, name=model, version="3")["error_code"] == NONE
    assert register(api, model)["version"] == "4"
    assert (
        api("model-versions/create", answered=404, name="another", source="s3://bucket/net")["error_code"]
        == NONE
    )
    assert api("model-versions/get", "GET", answered=400, name=model, version="x")["error_code"] == INVALID


def test_a_version_keeps_what_was_said_of_it(api: Api, model: str, run: str, source: str) -> None:
    fields = {
        "run_id": run,
        "run_link": "http://there",
        "description": "the first",
        "tags": [{"key": "a", "value": "b"}],
    }
    made = register(api, model, source=source, **fields)
    expected = {
        **fields,
        "name": model,
        "version": "1",
        "source": source,
        "current_stage": "None",
        "status": "READY",
    }
    assert {name: made[name] for name in expected} == expected
    api("model-versions/update", "PATCH", name=model, version="1", description="better")
    api("model-versions/set-tag", name=model, version="1", key="c", value="d")
    api("model-versions/delete-tag", "DELETE", name=model, version="1", key="a")
    form = version(api, model, 1)
    assert (form["description"], form["tags"]) == ("better", [{"key": "c", "value": "d"}])
    assert api("model-versions/get-download-uri", "GET", name=model, version="1") == {"artifact_uri": source}


SOURCES_OUT = [
    "/etc/passwd",
    "file:///etc/passwd",
    "mlflow-artifacts:/0/another/artifacts/model",
    "mlflow-artifacts:/0/RUN/artifacts/../../../other",
    "mlflow-artifacts:/0/RUN/artifacts/%2e%2e/other",
    "http://127.0.0.1:3001/api/2.0/mlflow-artifacts/artifacts/0/another/artifacts",
    "s3://bucket/a/../b",
    "runs:/another/model",
    "models:/m-0123",
    "models://elsewhere/m-0123",
    "models:/",
    "models:/a/b/c",
    "",
]


def test_a_source_out_of_the_run_that_is_named_is_refused(api: Api, model: str, run: str) -> None:
    for source in SOURCES_OUT:
        fields = {"name": model, "source": source.replace("RUN", run), "run_id": run}
        assert api("model-versions/create", answered=400, **fields)["error_code"] == INVALID, source
    assert numbers(api) == []


def test_a_logged_model_becomes_a_version_and_knows_it(
    api: Api, model: str, run: str, client: TestClient
) -> None:
    logged = api("logged-models", experiment_id="0", source_run_id=run)["model"]["info"]
    made = register(api, model, source=f"models:/{logged['model_id']}", model_id=logged["model_id"])
    assert made["run_id"] == run
    assert (
        api("model-versions/get-download-uri", "GET", name=model, version="1")["artifact_uri"]
        == logged["artifact_uri"]
    )
    folder = logged["artifact_uri"].removeprefix("mlflow-artifacts:/")
    client.put(f"{PROXY}/{folder}/MLmodel", content=b"net")
    (tag,) = api(f"logged-models/{logged['model_id']}", "GET")["model"]["info"]["tags"]
    assert tag == {"key": "mlflow.modelVersions", "value": '[{"name": "My model", "version": 1}]'}
    api(f"logged-models/{logged['model_id']}", "DELETE")
    assert client.get(f"{PROXY}/{folder}/MLmodel").content == b"net"  # the version stays what it is
    assert client.put(f"{PROXY}/{folder}/MLmodel", content=b"other").status_code == 404


@pytest.mark.parametrize("meant", ["1", "Production", "latest", "@best"])
def test_a_copy_has_the_files_and_the_run_of_what_it_is_a_copy_of(
    api: Api, model: str, run: str, source: str, meant: str
) -> None:
    register(api, model, source=source, run_id=run)
    api("model-versions/transition-stage", name=model, version="1", stage="Production")
    api("registered-models/alias", name=model, alias="best", version="1")
    api("registered-models/create", name="copies")
    made = register(api, "copies", source=f"models:/{model}{meant if meant.startswith('@') else f'/{meant}'}")
    assert (made["source"], made["run_id"]) == (f"models:/{model}/1", run)
    assert api("model-versions/get-download-uri", "GET", name="copies", version="1")["artifact_uri"] == source


def test_stages_move_and_the_latest_of_each_is_known(api: Api, model: str) -> None:
    for _ in range(4):
        register(api, model)
    for number, stage in ((1, "staging"), (2, "Production"), (3, "PRODUCTION")):
        api("model-versions/transition-stage", name=model, version=str(number), stage=stage)
    latest = api("registered-models/get-latest-versions", name=model)["model_versions"]
    assert {row["current_stage"]: row["version"] for row in latest} == {
        "Staging": "1",
        "Production": "3",
        "None": "4",
    }
    only = api("registered-models/get-latest-versions", "GET", name=model, stages=["production"])[
        "model_versions"
    ]
    assert [row["version"] for row in only] == ["3"]
    api(
        "model-versions/transition-stage",
        name=model,
        version="4",
        stage="Production",
        archive_existing_versions=True,
    )
    assert [version(api, model, number)["current_stage"] for number in (1, 2, 3, 4)] == [
        "Staging",
        "Archived",
        "Archived",
        "Production",
    ]
    for stage, archived in (("Nowhere", False), ("Archived", True)):
        transition = {"name": model, "version": "1", "stage": stage, "archive_existing_versions": archived}
        assert api("model-versions/transition-stage", answered=400, **transition)["error_code"] == INVALID


def test_aliases_are_set_moved_and_deleted(api: Api, model: str) -> None:
    for _ in range(2):
        register(api, model)
    for number in (1, 2):
        api("registered-models/alias", name=model, alias="best", version=str(number))
    api("registered-models/alias", name=model, alias="also", version="2")
    assert version(api, model, 2)["aliases"] == ["also", "best"]
    api("registered-models/alias", "DELETE", name=model, alias="also")
    assert (version(api, model, 2)["aliases"], version(api, model, 1).get("aliases")) == (["best"], None)
    assert api("registered-models/alias", "GET", name=model, alias="best")["model_version"]["version"] == "2"
    assert (
        api("registered-models/alias", "GET", name=model, alias="latest")["model_version"]["version"] == "2"
    )
    assert api("registered-models/get", "GET", name=model)["registered_model"]["aliases"] == [
        {"alias": "best", "version": "2"}
    ]
    api("registered-models/alias", "DELETE", name=model, alias="best")
    assert (
        api("registered-models/alias", "GET", answered=400, name=model, alias="best")["error_code"] == INVALID
    )
    for alias in ("v1", "Latest", "a b", "", "a" * 256):
        assert (
            api("registered-models/alias", answered=400, name=model, alias=alias, version="1")["error_code"]
            == INVALID
        )
    assert (
        api("registered-models/alias", answered=404, name=model, alias="best", version="9")["error_code"]
        == NONE
    )


def test_what_clients_promote_is_our_champion_and_the_other_way_round(
    api: Api, model: str, client: TestClient
) -> None:
    for _ in range(2):
        register(api, model)
    api("registered-models/alias", name=model, alias="champion", version="1")
    champion = client.get(f"{OURS}/{model}/champion").json()
    assert (champion["version"], champion["checkpoint"], champion["url"], champion["source"]) == (
        "1.0.0",
        None,
        None,
        "s3://bucket/net",
    )
    assert client.post(f"{OURS}/{model}/versions/1.0.1/promote").json()["stage"] == "champion"
    assert (
        api("registered-models/alias", "GET", name=model, alias="champion")["model_version"]["version"] == "2"
    )
    assert [version(api, model, number)["current_stage"] for number in (1, 2)] == ["Archived", "Production"]
    api("registered-models/alias", name=model, alias="champion", version="1")
    api("registered-models/alias", name=model, alias="champion", version="2")
    assert [version(api, model, number)["current_stage"] for number in (1, 2)] == ["Archived", "Production"]
    client.post(f"{OURS}/{model}/versions/1.0.1/archive")
    assert (
        api("registered-models/alias", "GET", answered=400, name=model, alias="champion")["error_code"]
        == INVALID
    )


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("registered-models/alias", {"alias": "champion"}),
        ("model-versions/transition-stage", {"stage": "production", "archive_existing_versions": True}),
    ],
)
def test_clients_do_not_promote_a_version_whose_report_is_gone(
    api: Api, either_backend: Backend, small_spec: Callable[..., SweepSpec], path: str, fields: dict[str, Any]
) -> None:
    rows = [promote_winner(either_backend, small_spec(seed=seed), page=b"<p>%d" % seed) for seed in (0, 1)]
    either_backend.store.delete(blob_name(str(rows[1].report)))
    refused = api(path, answered=400, name="small", version="2", **fields)
    assert "small 1.0.1 is not promoted: its report is gone" in refused["message"]
    assert version(api, "small", 1)["current_stage"] == "Production"


def test_our_own_api_has_the_models_of_clients(
    api: Api, model: str, run: str, source: str, client: TestClient
) -> None:
    api("registered-models/create", name="empty")
    register(api, model, source=source, run_id=run, description="the first")
    api("registered-models/alias", name=model, alias="best", version="1")
    empty, full = sorted(client.get(OURS).json()["models"], key=lambda form: len(form["versions"]))
    assert (empty["model"], empty["versions"], client.get(f"{OURS}/empty").status_code) == ("empty", [], 200)
    assert (full["model"], full["description"], full["tags"], full["aliases"]) == (
        model,
        "of digits",
        {"team": "vision"},
        {"best": "1.0.0"},
    )
    (only_version,) = full["versions"]
    expected = {
        "version": "1.0.0",
        "number": 1,
        "stage": "staging",
        "project": "Default",
        "run": run,
        "source": source,
        "sweep": None,
    }
    assert {name: only_version[name] for name in expected} == expected


def test_the_winner_of_a_sweep_is_a_version_whose_checkpoint_clients_can_fetch(
    api: Api, client: TestClient, either_backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    row = promote_winner(either_backend, small_spec(), checkpoint=b"the weights")
    with either_backend.catalog.read() as session:
        champion = champion_of(session, row.model)
    assert champion is not None
    form = api("registered-models/alias", "GET", name=row.model, alias="champion")["model_version"]
    assert (form["version"], form["run_id"], form["current_stage"]) == ("1", row.run, "Production")
    address = api("model-versions/get-download-uri", "GET", name=row.model, version="1")["artifact_uri"]
    folder = address.removeprefix("mlflow-artifacts:/")
    assert client.get(PROXY, params={"path": folder}).json() == {
        "files": [{"path": "checkpoint", "is_dir": False, "file_size": 11}]
    }
    assert client.get(f"{PROXY}/{folder}/checkpoint").content == b"the weights"
    assert client.get(f"{PROXY}/{folder}/other").status_code == 404
    refused = api("model-versions/delete", "DELETE", answered=400, name=row.model, version="1")
    assert (refused["error_code"], "archive it instead" in refused["message"]) == (INVALID, True)


def test_a_token_of_other_projects_sees_and_changes_no_model(
    guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    anybody = bearer("root", scope="write")
    ada = bearer("ada", scope="write", projects=["letters"])
    below = "/api/2.0/mlflow"
    guarded.post(f"{below}/registered-models/create", json={"name": "digits"}, headers=anybody)
    guarded.post(
        f"{below}/model-versions/create",
        json={"name": "digits", "source": "s3://bucket/net"},
        headers=anybody,
    )
    for method, path, fields in (
        ("POST", "registered-models/create", {}),
        ("DELETE", "registered-models/delete", {}),
        ("POST", "registered-models/rename", {"new_name": "letters"}),
        ("POST", "registered-models/alias", {"alias": "best", "version": "1"}),
        ("POST", "model-versions/create", {"source": "s3://bucket/net"}),
        ("POST", "model-versions/transition-stage", {"version": "1", "stage": "Production"}),
    ):
        answer = guarded.request(method, f"{below}/{path}", json={"name": "digits", **fields}, headers=ada)
        assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED"), path
    for path in ("registered-models/get?name=digits", "model-versions/get?name=digits&version=1"):
        assert guarded.get(f"{below}/{path}", headers=ada).status_code == 403
    for path in ("registered-models/search", "model-versions/search"):
        assert guarded.get(f"{below}/{path}", headers=ada).json() == {}
    run = guarded.post(f"{below}/runs/create", json={"experiment_id": "0"}, headers=anybody).json()["run"][
        "info"
    ]["run_id"]
    guarded.post(f"{below}/registered-models/create", json={"name": "letters"}, headers=ada)
    theirs = {"name": "letters", "source": f"runs:/{run}/model", "run_id": run}
    assert guarded.post(f"{below}/model-versions/create", json=theirs, headers=ada).status_code == 403

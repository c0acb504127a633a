"""Experiments as MLflow's clients see them, and the projects that they are."""

import base64

import pytest
from fastapi.testclient import TestClient

from tests.server.mlflow.conftest import Api

pytestmark = pytest.mark.usefixtures("without_services")


def test_there_is_a_default_experiment_before_anybody_made_one(api: Api) -> None:
    assert api("experiments/get", "GET", experiment_id="0")["experiment"]["name"] == "Default"


def test_an_experiment_is_found_by_id_and_by_name(api: Api) -> None:
    made = api("experiments/create", name="digits", tags=[{"key": "team", "value": "vision"}])[
        "experiment_id"
    ]
    experiment = api("experiments/get", "GET", experiment_id=made)["experiment"]
    assert experiment == api("experiments/get-by-name", "GET", experiment_name="digits")["experiment"]
    assert (experiment["name"], experiment["lifecycle_stage"], experiment["tags"]) == (
        "digits",
        "active",
        [{"key": "team", "value": "vision"}],
    )
    assert experiment["artifact_location"] == f"mlflow-artifacts:/{made}"
    assert isinstance(experiment["creation_time"], int)


@pytest.mark.parametrize("name", ["My digits/größer", "..", "a" * 500, "实验", "/etc/passwd"])
def test_any_name_makes_an_experiment_whose_runs_are_in_a_project_of_ours(
    api: Api, client: TestClient, name: str
) -> None:
    made = api("experiments/create", name=name)["experiment_id"]
    api("runs/create", experiment_id=made)
    folders = [folder.name for folder in (client.app.state.halving.store.folder / "runs").iterdir()]  # type: ignore[attr-defined]
    assert len(folders) == 1
    assert api("experiments/get", "GET", experiment_id=made)["experiment"]["name"] == name


def test_names_that_make_one_project_name_are_two_projects(api: Api, client: TestClient) -> None:
    for name in ("a b", "a/b", "a-b"):
        api("runs/create", experiment_id=api("experiments/create", name=name)["experiment_id"])
    folders = {folder.name for folder in (client.app.state.halving.store.folder / "runs").iterdir()}  # type: ignore[attr-defined]
    assert len(folders) == 3


def test_a_name_is_used_once_also_by_a_deleted_experiment(api: Api) -> None:
    made = api("experiments/create", name="digits")["experiment_id"]
    api("experiments/delete", experiment_id=made)
    assert api("experiments/create", answered=400, name="digits")["error_code"] == "RESOURCE_ALREADY_EXISTS"


def test_a_deleted_experiment_takes_no_runs_and_deletes_its_own_until_restored(
    api: Api,
) -> None:
    made = api("experiments/create", name="digits")["experiment_id"]
    run = api("runs/create", experiment_id=made)["run"]["info"]["run_id"]
    api("experiments/delete", experiment_id=made)
    assert api("runs/create", answered=400, experiment_id=made)["error_code"] == "INVALID_PARAMETER_VALUE"
    assert api("runs/get", "GET", run_id=run)["run"]["info"]["lifecycle_stage"] == "deleted"
    assert (
        api("experiments/delete", answered=404, experiment_id=made)["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    )
    assert [
        experiment["name"]
        for experiment in api("experiments/search", view_type="DELETED_ONLY")["experiments"]
    ] == ["digits"]
    api("experiments/restore", experiment_id=made)
    assert api("runs/get", "GET", run_id=run)["run"]["info"]["lifecycle_stage"] == "active"


def test_an_experiment_is_renamed_unless_another_one_has_the_name(api: Api) -> None:
    made = api("experiments/create", name="digits")["experiment_id"]
    api("experiments/update", experiment_id=made, new_name="letters")
    assert api("experiments/get", "GET", experiment_id=made)["experiment"]["name"] == "letters"
    assert (
        api("experiments/update", answered=400, experiment_id=made, new_name="Default")["error_code"]
        == "RESOURCE_ALREADY_EXISTS"
    )


def test_tags_are_set_and_deleted(api: Api) -> None:
    api("experiments/set-experiment-tag", experiment_id="0", key="a", value="b")
    assert api("experiments/get", "GET", experiment_id="0")["experiment"]["tags"] == [
        {"key": "a", "value": "b"}
    ]
    api("experiments/set-experiment-tag", experiment_id="0", key="a", value=None)
    api("experiments/delete-experiment-tag", experiment_id="0", key="a")
    assert "tags" not in api("experiments/get", "GET", experiment_id="0")["experiment"]
    assert (
        api("experiments/delete-experiment-tag", answered=404, experiment_id="0", key="a")["error_code"]
        == "RESOURCE_DOES_NOT_EXIST"
    )


def test_a_search_goes_page_by_page_and_knows_mlflows_filters_and_orders(api: Api) -> None:
    for name in ("c", "a", "b"):
        api("experiments/create", name=name)
    first = api("experiments/search", max_results=3)
    assert [experiment["name"] for experiment in first["experiments"]] == ["b", "a", "c"]
    rest = api("experiments/search", "GET", max_results=3, page_token=first["next_page_token"])
    assert [experiment["name"] for experiment in rest["experiments"]] == ["Default"]
    assert "next_page_token" not in rest
    answer = api("experiments/search", filter="name != 'Default'", order_by=["name ASC"])
    assert [experiment["name"] for experiment in answer["experiments"]] == ["a", "b", "c"]
    assert (
        api("experiments/search", answered=400, filter="nonsense")["error_code"] == "INVALID_PARAMETER_VALUE"
    )


REFUSED: list[tuple[str, dict[str, object], str, int]] = [
    ("experiments/create", {}, "INVALID_PARAMETER_VALUE", 400),
    ("experiments/create", {"name": 7}, "INVALID_PARAMETER_VALUE", 400),
    ("experiments/create", {"name": "a" * 501}, "INVALID_PARAMETER_VALUE", 400),
    ("experiments/create", {"name": "a\0b"}, "INVALID_PARAMETER_VALUE", 400),
    ("experiments/delete", {"experiment_id": "abc"}, "INVALID_PARAMETER_VALUE", 400),
    ("experiments/delete", {"experiment_id": "9" * 30}, "RESOURCE_DOES_NOT_EXIST", 404),
    ("experiments/delete", {"experiment_id": 1.5}, "INVALID_PARAMETER_VALUE", 400),
    ("experiments/delete", {"experiment_id": True}, "INVALID_PARAMETER_VALUE", 400),
    ("experiments/delete", {"experiment_id": float("inf")}, "INVALID_PARAMETER_VALUE", 400),
    ("runs/search", {"run_view_type": [1]}, "INVALID_PARAMETER_VALUE", 400),
    (
        "experiments/search",
        {"page_token": base64.b64encode(b"[" * 200_000).decode()},
        "INVALID_PARAMETER_VALUE",
        400,
    ),
    ("runs/log-batch", {"run_id": "a", "metrics": [[]] * 500_001}, "INVALID_PARAMETER_VALUE", 400),
    ("runs/create", {"experiment_id": []}, "INVALID_PARAMETER_VALUE", 400),
    (
        "experiments/set-experiment-tag",
        {"experiment_id": "0", "key": "../a", "value": "b"},
        "INVALID_PARAMETER_VALUE",
        400,
    ),
    (
        "experiments/create",
        {"name": "a", "tags": [{"key": "a", "value": "b"}] * 2},
        "RESOURCE_ALREADY_EXISTS",
        400,
    ),
    (
        "experiments/create",
        {"name": "a", "artifact_location": "mlflow-artifacts://host/a"},
        "INVALID_PARAMETER_VALUE",
        400,
    ),
    (
        "experiments/create",
        {"name": "a", "artifact_location": "https://host/a"},
        "INVALID_PARAMETER_VALUE",
        400,
    ),
    ("experiments/create", {"name": "a", "artifact_location": "s3://b/#a"}, "INVALID_PARAMETER_VALUE", 400),
    (
        "experiments/create",
        {"name": "a", "artifact_location": "s3://" + "a" * 2_048},
        "INVALID_PARAMETER_VALUE",
        400,
    ),
    ("runs/create", {"experiment_id": "0", "tags": [{"key": "a", "value": "b"}] * 2}, "BAD_REQUEST", 400),
    ("experiments/search", {"max_results": 0}, "INVALID_PARAMETER_VALUE", 400),
    ("experiments/search", {"page_token": "xx"}, "INVALID_PARAMETER_VALUE", 400),
    ("experiments/nothing-like-it", {}, "ENDPOINT_NOT_FOUND", 404),
    ("scorers/register", {}, "NOT_IMPLEMENTED", 501),
]


def test_what_is_not_accepted_is_refused_with_mlflows_code(api: Api) -> None:
    for path, fields, code, status in REFUSED:
        assert api(path, answered=status, **fields)["error_code"] == code, (path, str(fields)[:200])


@pytest.mark.parametrize("value", ["0", 0])
def test_an_experiments_id_is_text_or_a_number(api: Api, value: object) -> None:
    assert api("runs/create", experiment_id=value)["run"]["info"]["experiment_id"] == "0"
    assert len(api("runs/search", experiment_ids=[value])["runs"]) == 1


def test_a_run_of_an_experiment_that_is_deleted_takes_nothing_until_that_is_restored(api: Api) -> None:
    made = api("experiments/create", name="digits")["experiment_id"]
    run = api("runs/create", experiment_id=made)["run"]["info"]["run_id"]
    api("experiments/delete", experiment_id=made)
    metric = {"key": "loss", "value": 1, "timestamp": 1}
    assert (
        api("runs/log-batch", answered=400, run_id=run, metrics=[metric])["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )
    api("experiments/restore", experiment_id=made)
    api("runs/log-batch", run_id=run, metrics=[metric])
    assert len(api("metrics/get-history", "GET", run_id=run, metric_key="loss")["metrics"]) == 1

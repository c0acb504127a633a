"""Logged models, which MLflow 3 keeps beside runs."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.server.mlflow.conftest import Api

pytestmark = pytest.mark.usefixtures("without_services")

PROXY = "http://127.0.0.1:3001/api/2.0/mlflow-artifacts/artifacts"


@pytest.fixture
def model(api: Api, run: str) -> str:
    """The id of a new model of the run."""
    fields = {
        "experiment_id": "0",
        "source_run_id": run,
        "name": "net",
        "params": [{"key": "depth", "value": "3"}],
    }
    return str(api("logged-models", **fields)["model"]["info"]["model_id"])


def read_model(api: Api, model: str) -> dict[str, Any]:
    message: dict[str, Any] = api(f"logged-models/{model}", "GET")["model"]
    return message


def test_a_model_is_pending_until_it_is_finalized(api: Api, run: str, model: str) -> None:
    info = read_model(api, model)["info"]
    assert (info["name"], info["source_run_id"], info["status"]) == ("net", run, "LOGGED_MODEL_PENDING")
    assert info["artifact_uri"] == f"mlflow-artifacts:/0/models/{model}/artifacts"
    done = api(f"logged-models/{model}", "PATCH", status="LOGGED_MODEL_READY")["model"]["info"]
    assert done["status"] == read_model(api, model)["info"]["status"] == "LOGGED_MODEL_READY"
    assert (
        api(f"logged-models/{model}", "PATCH", answered=400, status="DONE")["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )


def test_params_stay_and_tags_change(api: Api, model: str) -> None:
    api(f"logged-models/{model}/params", params=[{"key": "width", "value": "8"}])
    assert read_model(api, model)["data"]["params"] == [
        {"key": "depth", "value": "3"},
        {"key": "width", "value": "8"},
    ]
    assert (
        api(f"logged-models/{model}/params", answered=400, params=[{"key": "depth", "value": "4"}])[
            "error_code"
        ]
        == "INVALID_PARAMETER_VALUE"
    )
    for value in ("a", "b"):
        api(f"logged-models/{model}/tags", "PATCH", tags=[{"key": "of/what", "value": value}])
    assert read_model(api, model)["info"]["tags"] == [{"key": "of/what", "value": "b"}]
    api(f"logged-models/{model}/tags/of/what", "DELETE")
    assert read_model(api, model)["info"]["tags"] == []


def test_a_metric_that_names_a_model_is_the_runs_and_the_models(api: Api, run: str, model: str) -> None:
    for step, value in ((2, 0.25), (1, 1.0), (1, 0.5)):
        api("runs/log-metric", run_id=run, model_id=model, key="loss", value=value, timestamp=step, step=step)
    metrics = read_model(api, model)["data"]["metrics"]
    assert [(metric["key"], metric["value"], metric["step"], metric["run_id"]) for metric in metrics] == [
        ("loss", 0.5, 1, run),
        ("loss", 0.25, 2, run),
    ]
    assert api("runs/get", "GET", run_id=run)["run"]["data"]["metrics"][0]["key"] == "loss"


def test_a_metric_of_a_model_that_there_is_not_is_refused_and_leaves_nothing(
    api: Api, client: TestClient, run: str
) -> None:
    api("runs/log-metric", answered=404, run_id=run, model_id="m-none", key="loss", value=1, timestamp=1)
    store = client.app.state.halving.store  # type: ignore[attr-defined]
    assert not list(store.files(f"metrics/project=Default/run={run}"))


def test_runs_that_evaluate_each_others_models_lose_nothing_and_do_not_deadlock(
    api: Api, run: str, model: str
) -> None:
    other = api("runs/create", experiment_id="0")["run"]["info"]["run_id"]
    its = api("logged-models", experiment_id="0", source_run_id=other, name="net")["model"]["info"][
        "model_id"
    ]
    values = range(12)

    def evaluate(of: str, on: str) -> None:
        for step in values:
            api("runs/log-metric", run_id=of, model_id=on, key="loss", value=step, timestamp=step, step=step)

    def describe(model_id: str) -> None:
        for step in values:
            api(f"logged-models/{model_id}/tags", "PATCH", tags=[{"key": str(step), "value": "x"}])

    with ThreadPoolExecutor(4) as threads:
        for done in [
            *(threads.submit(evaluate, *pair) for pair in ((run, its), (other, model))),
            *(threads.submit(describe, model_id) for model_id in (model, its)),
        ]:
            done.result()
    for model_id in (model, its):
        assert [metric["step"] for metric in read_model(api, model_id)["data"]["metrics"]] == list(values)
        assert len(read_model(api, model_id)["info"]["tags"]) == len(values)


def test_a_model_is_among_what_its_run_made_and_another_used(api: Api, run: str, model: str) -> None:
    api("runs/outputs", run_id=run, models=[{"model_id": model, "step": 7}])
    other = api("runs/create", experiment_id="0")["run"]["info"]["run_id"]
    api("runs/log-inputs", run_id=other, models=[{"model_id": model}])
    assert api("runs/get", "GET", run_id=run)["run"]["outputs"] == {
        "model_outputs": [{"model_id": model, "step": 7}]
    }
    assert api("runs/get", "GET", run_id=other)["run"]["inputs"] == {"model_inputs": [{"model_id": model}]}


def test_a_models_files_are_its_own(api: Api, run: str, model: str, client: TestClient) -> None:
    address = f"{PROXY}/0/models/{model}/artifacts"
    assert client.put(f"{address}/data/model.pkl", content=b"weights").status_code == 200
    assert client.get(f"{address}/data/model.pkl").content == b"weights"
    assert api("artifacts/list", "GET", run_id=run) == {"root_uri": f"mlflow-artifacts:/0/{run}/artifacts"}
    listed = api(f"logged-models/{model}/artifacts/directories", "GET", artifact_directory_path="data")[
        "files"
    ]
    assert listed == [{"path": "data/model.pkl", "is_dir": False, "file_size": 7}]
    assert client.get(PROXY, params={"path": f"0/models/{model}/artifacts"}).json() == {
        "files": [{"path": "data", "is_dir": True}]
    }


SEARCHES = [
    ("", "c b a"),
    ("name = 'a'", "a"),
    ("name LIKE '%' AND params.n = '1'", "b"),
    ("metrics.loss >= 1", "c b"),
    ("tags.k != 'x'", ""),
    ("attributes.status = 'LOGGED_MODEL_PENDING' and name ILIKE 'C'", "c"),
    ("name IN ('a', 'c')", "c a"),
    ("params.n NOT IN ('0', '1')", "c"),
    ("creation_time > 0 AND last_updated_timestamp_ms < 1e15", "c b a"),
    ("creation_timestamp <= 0", ""),
    ("lifecycle_stage = 'active' AND experiment_id = '0'", "c b a"),
    ("name LIKE '%a%a%a%a%a%a%'", ""),
]
"""Filters, and the names of the models that a search has."""


def test_a_search_finds_models(api: Api, run: str) -> None:
    for number, name in enumerate("abc"):
        params = [{"key": "n", "value": str(number)}]
        made = api("logged-models", experiment_id="0", source_run_id=run, name=name, params=params)["model"][
            "info"
        ]["model_id"]
        api("runs/log-metric", run_id=run, model_id=made, key="loss", value=number, timestamp=1)
    order = [{"field_name": "metrics.loss", "ascending": False}]
    for text, names in SEARCHES:
        models = api("logged-models/search", experiment_ids=["0"], filter=text, order_by=order).get(
            "models", []
        )
        assert " ".join(model["info"]["name"] for model in models) == names, text


def test_a_search_by_datasets_finds_models_by_their_metrics_on_them(api: Api, run: str) -> None:
    for name, dataset, value in (("a", "digits", 1.0), ("b", "letters", 2.0), ("c", "digits", 3.0)):
        made = api("logged-models", experiment_id="0", source_run_id=run, name=name)["model"]["info"][
            "model_id"
        ]
        more = {"model_id": made, "dataset_name": dataset, "dataset_digest": "x"}
        api("runs/log-batch", run_id=run, metrics=[{"key": "loss", "value": value, "timestamp": 1, **more}])

    def names(**query: Any) -> str:
        models = api("logged-models/search", experiment_ids=["0"], **query).get("models", [])
        return " ".join(sorted(row["info"]["name"] for row in models))

    assert names(datasets=[{"dataset_name": "digits"}]) == "a c"
    assert (
        names(datasets=[{"dataset_name": "digits", "dataset_digest": "x"}], filter="metrics.loss > 2") == "c"
    )
    assert names(datasets=[{"dataset_name": "digits", "dataset_digest": "y"}]) == ""
    assert names(datasets=[{"dataset_name": "letters"}, {"dataset_name": "digits"}]) == "a b c"
    assert (
        api("logged-models/search", answered=400, experiment_ids=["0"], datasets=[{}])["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )


def test_a_filter_by_a_metric_looks_at_each_value_and_an_order_at_the_latest(api: Api, run: str) -> None:
    for name, values in (("a", (0.9, 0.1)), ("b", (0.2, 0.3)), ("c", ())):
        made = api("logged-models", experiment_id="0", source_run_id=run, name=name)["model"]["info"][
            "model_id"
        ]
        for step, value in enumerate(values):
            more = {"model_id": made, "dataset_name": "digits" if step else "letters", "dataset_digest": "x"}
            api(
                "runs/log-batch",
                run_id=run,
                metrics=[{"key": "loss", "value": value, "timestamp": 1, "step": step, **more}],
            )

    def names(text: str = "", **order: Any) -> str:
        models = api(
            "logged-models/search", experiment_ids=["0"], filter=text, order_by=[order] if order else []
        ).get("models", [])
        return " ".join(row["info"]["name"] for row in models)

    assert names("metrics.loss > 0.5") == "a"
    assert names("metrics.loss > 0", field_name="metrics.loss") == "a b"
    assert names(field_name="metrics.loss", ascending=False) == "b a c"
    assert names(field_name="metrics.loss", dataset_name="letters") == "b a c"
    assert names(field_name="metrics.loss", dataset_name="letters", dataset_digest="y") == names()
    assert names(field_name="name") == "a b c"
    for name, value in (("d", "NaN"), ("e", 0.2)):  # a loss that has diverged is behind those that have not
        made = api("logged-models", experiment_id="0", source_run_id=run, name=name)["model"]["info"][
            "model_id"
        ]
        api("runs/log-metric", run_id=run, model_id=made, key="loss", value=value, timestamp=1)
    assert names("metrics.loss != 7", field_name="metrics.loss", ascending=None) == "a e b"
    assert names(field_name="metrics.loss") == "a e b d c"


def test_pages_of_a_search_are_of_its_own_question(api: Api, run: str) -> None:
    for number in range(60):
        api("logged-models", experiment_id="0", source_run_id=run, name=f"m{number}")
    first = api("logged-models/search", experiment_ids=["0"])
    assert len(first["models"]) == 50
    token = first["next_page_token"]
    second = api("logged-models/search", experiment_ids=["0"], page_token=token)
    assert sorted(row["info"]["name"] for row in [*first["models"], *second["models"]]) == sorted(
        f"m{number}" for number in range(60)
    )
    for other in (
        {"filter": "name LIKE '%'"},
        {"order_by": [{"field_name": "name"}]},
        {"experiment_ids": ["0", "1"]},
    ):
        refused = api(
            "logged-models/search", answered=400, **{"experiment_ids": ["0"], **other}, page_token=token
        )
        assert refused["error_code"] == "INVALID_PARAMETER_VALUE"
    assert len(api("logged-models/search", experiment_ids=["0"], max_results=5_000)["models"]) == 60
    assert (
        api("logged-models/search", answered=400, experiment_ids=["0"], max_results=-1)["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )


REFUSED_SEARCHES = [
    "name",
    "metrics.loss > 'x'",
    "a OR b",
    "created <> 1",
    "colour = 'red'",
    "name IN (1",
    "name IN (7)",
    "name = ('a')",
    "creation_time = 'x'",
    "name LIKE (5)",
    "name ILIKE (b'x')",
]


def test_a_search_that_is_not_accepted_is_refused(api: Api, model: str) -> None:
    for text in REFUSED_SEARCHES:
        assert (
            api("logged-models/search", answered=400, experiment_ids=["0"], filter=text)["error_code"]
            == "INVALID_PARAMETER_VALUE"
        ), text


@pytest.mark.parametrize("order", ["colour", "params.depth", "tags.of", ""])
def test_an_order_that_is_not_accepted_is_refused(api: Api, model: str, order: str) -> None:
    query = {"experiment_ids": ["0"], "order_by": [{"field_name": order}]}
    assert api("logged-models/search", answered=400, **query)["error_code"] == "INVALID_PARAMETER_VALUE"


def test_a_deleted_model_is_not_found(api: Api, model: str) -> None:
    api(f"logged-models/{model}", "DELETE")
    assert api(f"logged-models/{model}", "GET", answered=404)["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    assert api("logged-models/search", experiment_ids=["0"]) == {}


def test_a_model_of_no_run_is_refused(api: Api, run: str) -> None:
    assert (
        api("logged-models", answered=404, experiment_id="0", source_run_id="0" * 32)["error_code"]
        == "RESOURCE_DOES_NOT_EXIST"
    )
    assert (
        api("logged-models", answered=400, experiment_id="0", source_run_id=run, name="a/b")["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )


def test_a_model_without_a_run_keeps_files_and_metrics_and_is_in_no_run_search(
    api: Api, client: TestClient, run: str
) -> None:
    made = api("logged-models", experiment_id="0", name="net", params=[{"key": "depth", "value": "3"}])[
        "model"
    ]["info"]
    model = made["model_id"]
    assert "source_run_id" not in made
    assert made["artifact_uri"] == f"mlflow-artifacts:/0/models/{model}/artifacts"
    assert client.put(f"{PROXY}/0/models/{model}/artifacts/code/net.py", content=b"net").is_success
    assert client.get(f"{PROXY}/0/models/{model}/artifacts/code/net.py").content == b"net"
    assert api(f"logged-models/{model}/artifacts/directories", "GET")["files"] == [
        {"path": "code", "is_dir": True}
    ]
    api("runs/log-metric", run_id=run, model_id=model, key="loss", value=0.5, timestamp=1, step=1)
    api(f"logged-models/{model}", "PATCH", status="LOGGED_MODEL_READY")
    assert (
        read_model(api, model)["info"]["status"],
        read_model(api, model)["data"]["metrics"][0]["run_id"],
    ) == (
        "LOGGED_MODEL_READY",
        run,
    )
    assert [
        row["info"]["model_id"] for row in api("logged-models/search", experiment_ids=["0"])["models"]
    ] == [model]
    for view in ("ACTIVE_ONLY", "ALL"):
        for more in ({}, {"filter": "attributes.status = 'FINISHED'"}):
            searched = api("runs/search", experiment_ids=["0"], run_view_type=view, **more).get("runs", [])
            assert {row["info"]["run_id"] for row in searched} <= {run}
    api("registered-models/create", name="netz")
    version = api("model-versions/create", name="netz", source=f"models:/{model}", model_id=model)[
        "model_version"
    ]
    assert (
        api("model-versions/get-download-uri", "GET", name="netz", version=version["version"])["artifact_uri"]
        == made["artifact_uri"]
    )


def test_a_model_of_a_deleted_or_unknown_experiment_is_refused(api: Api) -> None:
    experiment = api("experiments/create", name="gone")["experiment_id"]
    api("experiments/delete", experiment_id=experiment)
    assert (
        api("logged-models", answered=400, experiment_id=experiment, name="net")["error_code"]
        == "INVALID_PARAMETER_VALUE"
    )
    assert (
        api("logged-models", answered=404, experiment_id="77", name="net")["error_code"]
        == "RESOURCE_DOES_NOT_EXIST"
    )
    assert api("logged-models", answered=400, name="net")["error_code"] == "INVALID_PARAMETER_VALUE"

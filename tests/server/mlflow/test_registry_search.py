"""Models and versions are searched as MLflow does."""

from typing import Any

from tests.server.mlflow.conftest import Api
from tests.server.mlflow.registered import EXISTS, INVALID, NONE, names, numbers, register

SEARCHES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["a", "b-one", "b-two"]),
    ({"filter": "name = 'a'"}, ["a"]),
    ({"filter": "name LIKE 'b%'"}, ["b-one", "b-two"]),
    ({"filter": "name ILIKE 'B-T%'"}, ["b-two"]),
    ({"filter": "tags.kind = 'x'"}, ["a", "b-two"]),
    ({"filter": "tags.kind = 'x' and name != 'a'"}, ["b-two"]),
    ({"order_by": ["name DESC"]}, ["b-two", "b-one", "a"]),
    ({"order_by": ["timestamp DESC", "name"], "filter": "name = 'a'"}, ["a"]),
    ({"filter": "tags.`mlflow.prompt.is_prompt` = 'true'"}, ["greeting"]),
]


def test_models_are_searched_as_mlflow_does(api: Api) -> None:
    for name, tags in (
        ("b-two", {"kind": "x"}),
        ("a", {"kind": "x"}),
        ("b-one", {}),
        ("greeting", {"mlflow.prompt.is_prompt": "true"}),
    ):
        api(
            "registered-models/create",
            name=name,
            tags=[{"key": key, "value": value} for key, value in tags.items()],
        )
    for fields, expected in SEARCHES:
        assert names(api, **fields) == expected, fields


def test_pages_of_a_search_join(api: Api) -> None:
    for number in range(5):
        api("registered-models/create", name=f"m{number}")
        register(api, f"m{number}", tags=[{"key": "n", "value": str(number)}])
    first = api("registered-models/search", "GET", max_results=3)
    assert [row["name"] for row in first["registered_models"]] == ["m0", "m1", "m2"]
    assert names(api, max_results=3, page_token=first["next_page_token"]) == ["m3", "m4"]
    page = api("model-versions/search", "GET", max_results=4, order_by=["name ASC"])
    rest = api(
        "model-versions/search",
        "GET",
        max_results=4,
        order_by=["name ASC"],
        page_token=page["next_page_token"],
    )
    assert [row["name"] for row in [*page["model_versions"], *rest["model_versions"]]] == [
        f"m{number}" for number in range(5)
    ]
    assert [
        row["name"] for row in api("model-versions/search", "GET", filter="tags.n = '3'")["model_versions"]
    ] == ["m3"]
    assert "next_page_token" not in rest


def test_versions_are_searched_as_mlflow_does(api: Api, model: str, run: str, source: str) -> None:
    register(api, model, source=source, run_id=run)
    register(api, model)
    register(api, model, source="s3://bucket/other")
    assert numbers(api, filter=f"name = '{model}'") == ["3", "2", "1"]
    api("model-versions/update", "PATCH", name=model, version="1", description="changed last")
    assert numbers(api)[0] == "1"
    assert numbers(api, filter=f"run_id = '{run}'") == ["1"]
    assert numbers(api, filter="source_path = 's3://bucket/net'") == ["2"]
    assert numbers(api, filter="version_number >= 2", order_by=["version_number ASC"]) == ["2", "3"]
    for wrong in ("nothing = 'a'", "name > 'a'", "name = a", "metrics.a = 1"):
        assert api("model-versions/search", "GET", answered=400, filter=wrong)["error_code"] == INVALID
    for query in ({"order_by": ["size"]}, {"order_by": ["name ASC", "name DESC"]}, {"max_results": 200_001}):
        assert api("model-versions/search", "GET", answered=400, **query)["error_code"] == INVALID


def test_a_renamed_model_is_found_by_its_new_name_alone(api: Api, model: str) -> None:
    register(api, model)
    api("registered-models/create", name="taken")
    assert api("registered-models/rename", answered=400, name=model, new_name="taken")["error_code"] == EXISTS
    form = api("registered-models/rename", name=model, new_name="better")["registered_model"]
    assert (form["name"], form["latest_versions"][0]["name"]) == ("better", "better")
    assert api("registered-models/get", "GET", answered=404, name=model)["error_code"] == NONE
    api("registered-models/delete", "DELETE", name="better")
    assert names(api) == ["taken"]
    assert numbers(api) == []

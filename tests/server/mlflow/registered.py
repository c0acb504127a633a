"""Models and versions as MLflow's clients register and read them."""

from typing import Any

from tests.server.mlflow.conftest import Api

INVALID = "INVALID_PARAMETER_VALUE"
EXISTS = "RESOURCE_ALREADY_EXISTS"
NONE = "RESOURCE_DOES_NOT_EXIST"


def register(api: Api, name: str, **fields: Any) -> dict[str, Any]:
    form: dict[str, Any] = api("model-versions/create", name=name, **{"source": "s3://bucket/net", **fields})[
        "model_version"
    ]
    return form


def version(api: Api, name: str, number: int) -> dict[str, Any]:
    form: dict[str, Any] = api("model-versions/get", "GET", name=name, version=str(number))["model_version"]
    return form


def names(api: Api, **query: Any) -> list[str]:
    return [
        model["name"]
        for model in api("registered-models/search", "GET", **query).get("registered_models", [])
    ]


def numbers(api: Api, **query: Any) -> list[str]:
    return [row["version"] for row in api("model-versions/search", "GET", **query).get("model_versions", [])]

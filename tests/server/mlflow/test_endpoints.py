"""Every endpoint of MLflow is supported or has a reason, as the documentation's table says."""

import os
from pathlib import Path

import pytest

from server.mlflow.endpoints import ENDPOINTS, PROXY, reason_of

PAGE = Path("docs/mlflow.md")
_API = "/mlflow/"
_PROXY = "/mlflow-artifacts/"


@pytest.fixture(scope="module")
def described() -> set[tuple[str, str]]:
    """Method and path of every endpoint, by the options of MLflow's protobuf services."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow.protos import databricks_pb2, mlflow_artifacts_pb2, model_registry_pb2, service_pb2

    return {
        (endpoint.method, f"/{endpoint.path.lstrip('/')}")
        for module in (service_pb2, model_registry_pb2, mlflow_artifacts_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        for endpoint in method.GetOptions().Extensions[databricks_pb2.rpc].endpoints
    }


def row(method: str, path: str) -> str:
    """An endpoint's row of the table."""
    if path.startswith(_PROXY):
        key = (method, path.removeprefix(_PROXY))
        is_proxy = key in PROXY
        about = ""
        reason = reason_of(key[1])
    else:
        key = (method, path.removeprefix(_API))
        endpoint = ENDPOINTS.get(key)
        is_proxy = endpoint is not None
        about = endpoint.about if endpoint else ""
        reason = reason_of(key[1])
    return f"| `{method} {path}` | {'yes' if is_proxy else 'no'} | {about if is_proxy else reason} |"


def test_every_endpoint_of_mlflow_is_answered_or_it_is_said_why_not(described: set[tuple[str, str]]) -> None:
    assert [name for name in sorted(described) if row(*name).endswith("| None |")] == []


def test_every_endpoint_that_is_answered_is_one_of_mlflows(described: set[tuple[str, str]]) -> None:
    ours = {(method, f"{_API}{path}") for method, path in ENDPOINTS} | {
        (method, f"{_PROXY}{path}") for method, path in PROXY
    }
    assert ours - described == set()


def test_the_documentation_has_the_table_as_the_code_has_it(described: set[tuple[str, str]]) -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert lines == [row(*name) for name in sorted(described, key=lambda name: (name[1], name[0]))]

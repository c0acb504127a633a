"""What MLflow's own page asks beside its API."""

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from tests.server.mlflow.conftest import Api

pytestmark = pytest.mark.usefixtures("without_services")

HOST = "http://127.0.0.1:3001"
API = f"{HOST}/ajax-api/2.0/mlflow"
PROXY = f"{HOST}/api/2.0/mlflow-artifacts/artifacts"
WORD = "été 7.json"


@pytest.fixture
def kept(client: TestClient, run: str) -> str:
    """A run with a file in a folder."""
    assert client.post(
        f"{API}/upload-artifact", params={"run_uuid": run, "path": f"a/{WORD}"}, content=b"[7]"
    ).is_success
    return run


def test_a_file_that_is_uploaded_is_sent_to_be_saved(api: Api, client: TestClient, kept: str) -> None:
    answer = client.get(f"{HOST}/get-artifact", params={"run_id": kept, "path": f"a/{WORD}"})
    assert (answer.content, answer.headers["content-type"]) == (b"[7]", "text/plain")
    assert (
        answer.headers["content-disposition"]
        == "attachment; filename=\"ete 7.json\"; filename*=UTF-8''%C3%A9t%C3%A9%207.json"
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert [file["path"] for file in api("artifacts/list", "GET", run_id=kept, path="a")["files"]] == [
        f"a/{WORD}"
    ]


def test_a_file_of_a_version_and_of_a_logged_model_are_sent(api: Api, client: TestClient, kept: str) -> None:
    api("registered-models/create", name="net")
    api("model-versions/create", name="net", source=f"runs:/{kept}/a", run_id=kept)
    api("model-versions/create", name="net", source=f"mlflow-artifacts:/0/{kept}/artifacts/a", run_id=kept)
    answer = client.get(
        f"{HOST}/model-versions/get-artifact", params={"name": "net", "version": "2", "path": WORD}
    )
    assert answer.content == b"[7]", answer.text
    elsewhere = client.get(
        f"{HOST}/model-versions/get-artifact", params={"name": "net", "version": "1", "path": WORD}
    )
    assert elsewhere.json()["error_code"] == "INVALID_PARAMETER_VALUE"
    model = api("logged-models", experiment_id="0", source_run_id=kept)["model"]["info"]["model_id"]
    assert client.put(f"{PROXY}/0/models/{model}/artifacts/net.bin", content=b"net").is_success
    file = client.get(
        f"{API}/logged-models/{model}/artifacts/files", params={"artifact_file_path": "net.bin"}
    )
    assert (file.content, file.headers["content-type"]) == (b"net", "application/octet-stream")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("../a", 400, "INVALID_PARAMETER_VALUE"),
        ("/etc/passwd", 400, "INVALID_PARAMETER_VALUE"),
        ("a/%2e%2e/b", 400, "INVALID_PARAMETER_VALUE"),
        ("", 400, "INVALID_PARAMETER_VALUE"),
        ("a", 400, "INVALID_PARAMETER_VALUE"),  # a folder
        ("b", 404, "RESOURCE_DOES_NOT_EXIST"),
    ],
)
def test_an_address_that_is_no_files_is_refused(
    client: TestClient, kept: str, path: str, status: int, code: str
) -> None:
    answer = client.get(f"{HOST}/get-artifact", params={"run_id": kept, "path": path})
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    if status == 400:
        sent = client.post(f"{API}/upload-artifact", params={"run_uuid": kept, "path": path}, content=b"7")
        assert (sent.status_code, sent.json()["error_code"]) == (status, code)


def test_histories_of_several_runs_come_run_by_run(api: Api, client: TestClient) -> None:
    runs = sorted(api("runs/create", experiment_id="0")["run"]["info"]["run_id"] for _ in range(2))
    for run in runs:
        for step in (1, 0):
            api("runs/log-metric", run_id=run, key="loss", value=step / 2, timestamp=step, step=step)
    query = {"run_id": runs[::-1], "metric_key": "loss"}
    metrics = client.get(f"{API}/metrics/get-history-bulk", params=query).json()["metrics"]
    assert [(metric["run_id"], metric["step"], metric["value"]) for metric in metrics] == [
        (run, step, step / 2) for run in runs for step in (0, 1)
    ]
    assert (
        len(
            client.get(f"{API}/metrics/get-history-bulk", params={**query, "max_results": 3}).json()[
                "metrics"
            ]
        )
        == 3
    )
    assert client.get(
        f"{API}/metrics/get-history-bulk", params={"run_id": runs, "metric_key": "none"}
    ).json() == {"metrics": []}
    assert client.get(f"{API}/metrics/get-history-bulk", params={"metric_key": "loss"}).status_code == 400


def test_nothing_of_another_project_is_sent_or_taken(
    guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    anybody = bearer("root", scope="write")
    eve = bearer("eve", scope="write", projects=["digits"])
    run = guarded.post(f"{API}/runs/create", json={"experiment_id": "0"}, headers=anybody).json()["run"][
        "info"
    ]["run_id"]
    query = {"run_id": run, "path": "a"}
    assert guarded.post(f"{API}/upload-artifact", params=query, content=b"7", headers=anybody).is_success
    made = guarded.post(
        f"{API}/logged-models", json={"experiment_id": "0", "source_run_id": run}, headers=anybody
    )
    model = made.json()["model"]["info"]["model_id"]
    for address, params in (
        (f"{HOST}/get-artifact", query),
        (f"{API}/logged-models/{model}/artifacts/files", {"artifact_file_path": "a"}),
        (f"{API}/metrics/get-history-bulk", {"run_id": run, "metric_key": "loss"}),
    ):
        answer = guarded.get(address, params=params, headers=eve)
        assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED")
        assert (
            guarded.get(address, params=params).status_code,
            "hlv_" in guarded.get(address, params=params).text,
        ) == (401, True)
    answer = guarded.post(f"{API}/upload-artifact", params=query, content=b"8", headers=eve)
    assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED")
    assert guarded.get(f"{HOST}/get-artifact", params=query, headers=anybody).content == b"7"

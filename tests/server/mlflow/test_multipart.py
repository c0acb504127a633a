"""Artifacts that are uploaded in parts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.sdk.imports.tools import python_with, run_script
from tests.server.mlflow.conftest import Api
from tests.server.mlflow.scripts import UPLOAD
from tests.server.processes import server_of

pytestmark = pytest.mark.usefixtures("without_services")

PARTS = "http://127.0.0.1:3001/api/2.0/mlflow-artifacts/mpu"
PROXY = "http://127.0.0.1:3001/api/2.0/mlflow-artifacts/artifacts"
CONTENTS = [b"a" * 1_200_000, b"b" * 1_200_000, b"rest"]


def begun(client: TestClient, run: str, count: int = 3) -> dict[str, Any]:
    answer = client.post(
        f"{PARTS}/create/0/{run}/artifacts/deep", json={"path": "/home/ada/weights", "num_parts": count}
    )
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def sent(client: TestClient, upload: dict[str, Any]) -> list[dict[str, Any]]:
    """What a client says of its parts."""
    parts = []
    for credential, content in zip(upload["credentials"], CONTENTS, strict=False):
        answer = client.put(credential["url"], content=content)
        assert answer.status_code == 200, answer.text
        parts.append(
            {
                "part_number": credential["part_number"],
                "etag": answer.headers["etag"],
                "url": credential["url"],
            }
        )
    return parts


def complete(
    client: TestClient, run: str, upload: dict[str, Any], parts: list[dict[str, Any]], path: str = "weights"
) -> Any:
    fields = {"path": path, "upload_id": upload["upload_id"], "parts": parts}
    return client.post(f"{PARTS}/complete/0/{run}/artifacts/deep", json=fields)


def test_a_file_is_there_once_its_parts_are_joined_and_not_before(
    api: Api, run: str, client: TestClient
) -> None:
    upload = begun(client, run)
    parts = sent(client, upload)
    assert "files" not in api("artifacts/list", "GET", run_id=run)
    for _ in range(2):  # the first answer was lost on its way
        assert complete(client, run, upload, parts).json() == {}
    assert client.get(f"{PROXY}/0/{run}/artifacts/deep/weights").content == b"".join(CONTENTS)


def test_parts_that_are_not_those_of_the_upload_are_refused_and_leave_nothing(
    api: Api, run: str, client: TestClient
) -> None:
    upload = begun(client, run)
    other = begun(client, run)
    parts = sent(client, upload)
    others = sent(client, other)
    digest = {"part_number": 1, "etag": "sha256:" + 64 * "0"}
    for wrong in (
        [],
        parts[:2],
        parts[::-1],
        [parts[0], parts[0], parts[2]],
        others,
        [digest, *parts[1:]],
        [{**parts[1], "part_number": 1}],
    ):
        answer = complete(client, run, upload, wrong)
        assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert complete(client, run, upload, parts, "another").status_code == 400
    assert complete(client, run, {"upload_id": upload["upload_id"] + "x"}, parts).status_code == 400
    assert "files" not in api("artifacts/list", "GET", run_id=run)


def test_an_upload_that_is_given_up_leaves_the_run_as_it_was(api: Api, run: str, client: TestClient) -> None:
    upload = begun(client, run)
    sent(client, upload)
    fields = {"path": "weights", "upload_id": upload["upload_id"]}
    assert client.post(f"{PARTS}/abort/0/{run}/artifacts/deep", json=fields).json() == {}
    assert "files" not in api("artifacts/list", "GET", run_id=run)


@pytest.mark.parametrize("count", [0, -1, 10_001, "many"])
def test_a_number_of_parts_that_no_upload_has_is_refused(run: str, client: TestClient, count: object) -> None:
    answer = client.post(f"{PARTS}/create/0/{run}/artifacts", json={"path": "weights", "num_parts": count})
    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


@pytest.mark.parametrize(
    ("folder", "path"), [("deep%2f%2e%2e%2f%2e%2e", "a"), ("", ".."), ("%252e%252e", "a"), ("", "a\x01")]
)
def test_an_upload_that_would_leave_its_run_is_refused(
    run: str, client: TestClient, folder: str, path: str
) -> None:
    answer = client.post(f"{PARTS}/create/0/{run}/artifacts/{folder}".rstrip("/"), json={"path": path})
    assert answer.status_code in (400, 404), answer.text


def test_a_part_needs_no_token_and_only_its_own_address(
    guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    ada = bearer("ada", scope="write")
    eve = bearer("eve", scope="write", projects=["digits"])
    api = "http://127.0.0.1:3001/api/2.0/mlflow"
    run = guarded.post(f"{api}/runs/create", json={"experiment_id": "0"}, headers=ada).json()["run"]["info"][
        "run_id"
    ]
    fields = {"path": "weights", "num_parts": 1}
    assert guarded.post(f"{PARTS}/create/0/{run}/artifacts", json=fields).status_code == 401
    assert guarded.post(f"{PARTS}/create/0/{run}/artifacts", json=fields, headers=eve).status_code == 403
    upload = guarded.post(f"{PARTS}/create/0/{run}/artifacts", json=fields, headers=ada).json()
    (credential,) = upload["credentials"]
    put = guarded.put(credential["url"], content=b"weights")
    assert put.status_code == 200
    assert guarded.put(f"{credential['url']}x", content=b"weights").status_code == 404
    assert guarded.put(credential["url"].replace("/parts/", "/"), content=b"weights").status_code in (
        404,
        405,
    )
    done = {
        "path": "weights",
        "upload_id": upload["upload_id"],
        "parts": [{"part_number": 1, "etag": put.headers["etag"]}],
    }
    assert guarded.post(f"{PARTS}/complete/0/{run}/artifacts", json=done, headers=eve).status_code == 403
    assert guarded.post(f"{PARTS}/complete/0/{run}/artifacts", json=done, headers=ada).status_code == 200


def test_a_deleted_run_takes_no_parts_together(api: Api, run: str, client: TestClient) -> None:
    upload = begun(client, run)
    parts = sent(client, upload)
    api("runs/delete", run_id=run)
    assert complete(client, run, upload, parts).status_code == 400


@pytest.mark.slow
def test_mlflows_own_client_uploads_a_file_in_parts(tmp_path: Path) -> None:
    python = python_with("mlflow", "mlflow==3.17.2")
    with server_of(str(tmp_path / "root")) as server:
        run_script(python, UPLOAD, tmp_path / "work", server.address)

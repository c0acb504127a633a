"""Artifacts through the proxy, and where they are then."""

from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from resources.backend import Backend
from server.ingest import bodies
from tests.server.mlflow.conftest import Api

pytestmark = pytest.mark.usefixtures("without_services")

PROXY = "http://127.0.0.1:3001/api/2.0/mlflow-artifacts/artifacts"


def list_files(api: Api, run: str, path: str = "") -> list[tuple[str, int | None]]:
    files = api("artifacts/list", "GET", run_id=run, **({"path": path} if path else {})).get("files", [])
    return [(file["path"], file.get("file_size")) for file in files]


def test_files_are_listed_and_read_as_they_were_written(api: Api, run: str, client: TestClient) -> None:
    for path, content in (
        ("a.txt", b"hello"),
        ("deep/er/a b.bin", bytes(range(256)) * 9_000),
        ("deep/größe.txt", b""),
    ):
        assert client.put(f"{PROXY}/0/{run}/artifacts/{path}", content=content).status_code == 200
        answer = client.get(f"{PROXY}/0/{run}/artifacts/{path}")
        assert answer.content == content
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert list_files(api, run) == [("a.txt", 5), ("deep", None)]
    assert list_files(api, run, "deep") == [("deep/er", None), ("deep/größe.txt", 0)]
    assert list_files(api, run, "a.txt") == []
    assert client.get(PROXY, params={"path": f"0/{run}/artifacts/deep"}).json()["files"][0] == {
        "path": "er",
        "is_dir": True,
    }


def test_a_file_that_is_written_again_has_the_new_content_alone(
    api: Api, run: str, client: TestClient
) -> None:
    for content in (b"first", b"second", b"second", b"third"):
        client.put(f"{PROXY}/0/{run}/artifacts/a.txt", content=content)
        assert client.get(f"{PROXY}/0/{run}/artifacts/a.txt").content == content
    assert list_files(api, run) == [("a.txt", 5)]
    store = client.app.state.halving.store  # type: ignore[attr-defined]
    assert len(store.names(f"runs/project=Default/{run}/artifacts")) == 1


def test_paths_that_make_one_name_are_two_files(run: str, client: TestClient) -> None:
    for path in ("a/b", "a-b", "a b"):
        client.put(f"{PROXY}/0/{run}/artifacts/{path}", content=path.encode())
    for path in ("a/b", "a-b", "a b"):
        assert client.get(f"{PROXY}/0/{run}/artifacts/{path}").content == path.encode()


def test_all_of_a_runs_artifacts_are_deleted_at_once(api: Api, run: str, client: TestClient) -> None:
    for path in ("a", "d/b"):
        client.put(f"{PROXY}/0/{run}/artifacts/{path}", content=b"x")
    assert client.delete(f"{PROXY}/0/{run}/artifacts").status_code == 200
    assert list_files(api, run) == []


@pytest.mark.parametrize("end", ["", "/"])
def test_what_is_of_no_run_is_not_deleted_all_at_once(client: TestClient, end: str) -> None:
    client.put(f"{PROXY}/free/a", content=b"x")
    assert client.delete(f"{PROXY}{end}").status_code == 400
    assert client.get(f"{PROXY}/free/a").content == b"x"


def test_a_long_path_is_kept_or_refused_on_either_database(run: str, client: TestClient) -> None:
    for path, status in (("木" * 640, 200), ("木" * 1_900, 400)):
        assert client.put(f"{PROXY}/0/{run}/artifacts/{path}", content=b"x").status_code == status
        assert client.get(f"{PROXY}/0/{run}/artifacts/{path}").status_code == status


def test_a_folder_is_deleted_with_what_is_in_it(api: Api, run: str, client: TestClient) -> None:
    for path in ("d/a", "d/b/c", "dd"):
        client.put(f"{PROXY}/0/{run}/artifacts/{path}", content=b"x")
    assert client.delete(f"{PROXY}/0/{run}/artifacts/d").status_code == 200
    assert list_files(api, run) == [("dd", 1)]
    client.put(f"{PROXY}/0/{run}/artifacts/d/a", content=b"new")
    assert client.get(f"{PROXY}/0/{run}/artifacts/d/a").content == b"new"


BESIDE_MODEL = [
    "Model/a",
    "MODEL",
    "mODEL/a/b",
    "model0",
    "model-x/a",
    "model.pt",
    "mode%/a",
    "m_del/a",
    "mode",
    "model 􏿿",
    "modelé/a",
]


def test_a_folder_has_what_is_below_it_to_the_letter(api: Api, run: str, client: TestClient) -> None:
    """Letters of another case, and what a pattern of SQL's would match, are other names."""
    below = ["model/b", "model/􏿿", "model/-/c", "model/0"]
    for path in [*BESIDE_MODEL, *below]:
        assert (
            client.put(f"{PROXY}/0/{run}/artifacts/{quote(path)}", content=path.encode()).status_code == 200
        ), path
    assert list_files(api, run, "model") == [
        ("model/-", None),
        ("model/0", 7),
        ("model/b", 7),
        ("model/􏿿", 10),
    ]
    assert list_files(api, run, "Model") == [("Model/a", 7)]
    for pattern in ("mode%", "m_del"):
        assert list_files(api, run, pattern) == [(f"{pattern}/a", len(f"{pattern}/a"))]
    assert client.delete(f"{PROXY}/0/{run}/artifacts/model").status_code == 200
    for path in BESIDE_MODEL:
        assert client.get(f"{PROXY}/0/{run}/artifacts/{quote(path)}").content == path.encode()
    for path in below:
        assert client.get(f"{PROXY}/0/{run}/artifacts/{quote(path)}").status_code == 404


PATHS_OUT = [
    "../a",
    "a/../../b",
    "%2e%2e/a",
    "a/%2e%2e/%2e%2e/b",
    "/etc/passwd",
    ".",
    "a/..",
    "a/.././",
    "a\\b",
    "%252e%252e/a",
    "a%00b",
    "a" * 2_001,
    "a%2f..%2f..%2fb",
    "..%5ca",
    "%2fetc%2fpasswd",
    "%252fetc",
    "a%0ab",
    "a/%25252e%25252e/b",
    "deep/../../a",
]
"""Of artifacts that are sent: as an address has them."""


def test_paths_that_could_leave_the_run_are_refused(api: Api, run: str, client: TestClient) -> None:
    for path in PATHS_OUT:
        answer = client.put(f"{PROXY}/0/{run}/artifacts/{path}", content=b"x")
        assert answer.status_code in (400, 404), (path, answer.text)
        assert set(answer.json()) == {"error_code", "message"}, path
        assert list_files(api, run) == [], path


@pytest.mark.parametrize(
    "path", ["a%FF", "caf%E9.txt", "%C3", "%C3/%A9", "%ED%A0%80", "%F4%90%80%80", "%c0%af", "a?b%FF"]
)
def test_bytes_that_are_no_utf8_are_no_name(api: Api, run: str, client: TestClient, path: str) -> None:
    """Two such names would be one, with � in the place of both's bytes."""
    query = f"run_uuid={run}&path={path.replace('?', '%3F')}"
    uploads = f"http://127.0.0.1:3001/ajax-api/2.0/mlflow/upload-artifact?{query}"
    requests = [(method, f"{PROXY}/0/{run}/artifacts/{path}") for method in ("PUT", "GET", "DELETE")]
    lists = f"http://127.0.0.1:3001/api/2.0/mlflow/artifacts/list?run_id={run}&path={path}"
    page = f"http://127.0.0.1:3001/get-artifact?run_uuid={run}&path={path}"
    addresses = ("GET", lists), ("GET", page), ("GET", f"{PROXY}?path=0/{run}/artifacts/{path}")
    for method, address in [*requests, ("POST", uploads), *addresses]:
        answer = client.request(method, address, content=b"x" if method in ("PUT", "POST") else None)
        assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), (
            method,
            address,
        )
        assert "is no UTF-8; write names in UTF-8 and percent-encode that" in answer.json()["message"]
    assert list_files(api, run) == []
    name = "caf\ufffd"  # which may be meant
    assert client.put(f"{PROXY}/0/{run}/artifacts/{quote(name)}", content=b"x").status_code == 200
    assert list_files(api, run) == [(name, 1)]


NAMES = [
    "what?.txt",
    "what?a=b&c",
    "50%.csv",
    "a+b=c&d.txt",
    "#3 résumé.md",
    "model [best].pt",
    "it's.txt",
    "日本語.json",
    ".a",
    "A",
    "a",
]


def test_a_file_has_the_name_that_its_client_gave_it(
    api: Api, run: str, client: TestClient, either_backend: Backend
) -> None:
    for name in NAMES:
        # as MLflow's client sends a question mark: what comes after it is a query
        sent = quote(name, safe="?=&")
        assert client.put(f"{PROXY}/0/{run}/artifacts/d/{sent}", content=name.encode()).status_code == 200
        assert client.get(f"{PROXY}/0/{run}/artifacts/d/{sent}").content == name.encode()
    assert [name for name, _ in list_files(api, run, "d")] == sorted(f"d/{name}" for name in NAMES)
    listed_artifacts = client.get(f"http://127.0.0.1:3001/api/v1/runs/Default/{run}").json()["artifacts"]
    assert {
        row["name"]: either_backend.store.get_blob(row["digest"]).decode() for row in listed_artifacts
    } == {f"d/{name}": name for name in NAMES}
    for name in NAMES:
        assert client.delete(f"{PROXY}/0/{run}/artifacts/d/{quote(name)}").status_code == 200
    assert list_files(api, run) == []


def test_a_path_may_be_written_in_any_way_that_stays_in_the_run(
    api: Api, run: str, client: TestClient
) -> None:
    for path in ("a.txt", "deep//er/./b.txt", "deep/x/../c.txt"):
        assert (
            client.put(f"{PROXY}/0/{run}/artifacts/{quoted_dots(path)}", content=path.encode()).status_code
            == 200
        )
    root = [("a.txt", 5), ("deep", None)]
    deep = [("deep/c.txt", 15), ("deep/er", None)]
    for path, expected in {
        ".": root,
        "./": root,
        "/": root,
        "deep/..": root,
        "deep/er/../..": root,
        "nothing/..": root,
        "deep": deep,
        "deep/": deep,
        "./deep/./er/..": deep,
        "deep//er//..": deep,
    }.items():
        assert list_files(api, run, path) == expected, path
        at_proxy = client.get(PROXY, params={"path": f"0/{run}/artifacts/{path.strip('/')}"}).json()["files"]
        assert [file["path"] for file in at_proxy] == [name.rpartition("/")[2] for name, _ in expected], path
    for path in ("./a.txt", "deep/../a.txt", "deep/.././/a.txt"):
        answer = client.get(f"{PROXY}/0/{run}/artifacts/{quoted_dots(path)}")
        assert (answer.content, answer.headers["content-disposition"]) == (
            b"a.txt",
            "attachment; filename=a.txt",
        )
        assert (
            client.get("http://127.0.0.1:3001/get-artifact", params={"run_uuid": run, "path": path}).content
            == b"a.txt"
        )


def test_a_path_that_leads_out_of_the_run_is_refused_by_each_way_to_read(
    api: Api, run: str, client: TestClient
) -> None:
    other = api("runs/create", experiment_id="0")["run"]["info"]["run_id"]
    for owner in (run, other):
        client.put(f"{PROXY}/0/{owner}/artifacts/deep/a", content=owner.encode())
    to_other = f"deep/../../{other}/artifacts/deep/a"
    for path in (
        "..",
        "../",
        "deep/../..",
        "./../a",
        "/etc",
        "/",
        "deep\\..",
        "%2e%2e",
        "deep/%2E%2E",
        "a\nb",
        to_other,
    ):
        if path != "/":  # of a list that is the run's own folder, as without a path
            assert (
                api("artifacts/list", "GET", answered=400, run_id=run, path=path)["message"] == "Invalid path"
            ), path
        assert (
            client.get(
                "http://127.0.0.1:3001/get-artifact", params={"run_uuid": run, "path": path}
            ).status_code
            == 400
        ), path
        assert client.get(f"{PROXY}/0/{run}/artifacts/{quoted_dots(path)}").status_code in (400, 404), path


@pytest.mark.parametrize(
    "path", [".", "deep/..", "deep/../", "./deep", "deep//a", "deep/", "deep/er/../../deep"]
)
def test_only_what_is_named_plainly_is_deleted(api: Api, run: str, client: TestClient, path: str) -> None:
    client.put(f"{PROXY}/0/{run}/artifacts/deep/a", content=b"x")
    assert client.delete(f"{PROXY}/0/{run}/artifacts/{quoted_dots(path)}").status_code == 400
    assert list_files(api, run, "deep") == [("deep/a", 1)]


def test_a_file_whose_name_never_came_is_refused_with_the_reason(run: str, client: TestClient) -> None:
    answer = client.put(f"{PROXY}/0/{run}/artifacts/", content=b"x")  # of "#1.txt"
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "Invalid path: the file has no name (MLflow's clients send nothing of a name from # on)",
    )


def quoted_dots(path: str) -> str:
    """A path whose dots no client removes on its way."""
    return quote(path).replace(".", "%2E")


@pytest.mark.parametrize("path", ["C:/a", "C%3a%5ca", "c:a", "..%c0%af..%c0%afb"])
def test_windows_drives_and_slashes_in_wrong_utf8_are_plain_names_or_refused(
    api: Api, run: str, client: TestClient, path: str
) -> None:
    answer = client.put(f"{PROXY}/0/{run}/artifacts/{path}", content=b"x")
    assert answer.status_code in (200, 400)
    assert len(list_files(api, run)) == (answer.status_code == 200)


@pytest.mark.parametrize(
    ("name", "kind", "saved"),
    [
        ("a.txt", "text/plain", "attachment; filename=a.txt"),
        ("MLmodel", "text/plain", "attachment; filename=MLmodel"),
        ("a b.json", "text/plain", 'attachment; filename="a b.json"'),
        ("é.html", "text/html", "attachment; filename=e.html; filename*=UTF-8''%C3%A9.html"),
        ("net", "application/octet-stream", "attachment; filename=net"),
    ],
)
def test_a_file_is_sent_to_be_saved_as_what_its_name_says(
    run: str, client: TestClient, name: str, kind: str, saved: str
) -> None:
    client.put(f"{PROXY}/0/{run}/artifacts/d/{name}", content=b"<script>")
    headers = client.get(f"{PROXY}/0/{run}/artifacts/d/{name}").headers
    assert (headers["content-type"], headers["content-disposition"]) == (kind, saved)
    assert client.get(f"{PROXY}/0/{run}/artifacts/d").status_code == 400


@pytest.mark.parametrize(
    "location",
    [
        "mlflow-artifacts:/my/path",
        "mlflow-artifacts:custom",
        "mlflow-artifacts:///custom",
        "mlflow-artifacts:/",
    ],
)
def test_artifacts_are_where_their_experiment_says(api: Api, client: TestClient, location: str) -> None:
    made = api("experiments/create", name="there", artifact_location=location)["experiment_id"]
    info = api("runs/create", experiment_id=made)["run"]["info"]
    model = api("logged-models", experiment_id=made, source_run_id=info["run_id"])["model"]["info"][
        "artifact_uri"
    ]
    for root in (info["artifact_uri"], model):
        address = root.removeprefix("mlflow-artifacts:").lstrip("/")
        assert client.put(f"{PROXY}/{address}/a.txt", content=b"x").is_success
        assert client.get(f"{PROXY}/{address}/a.txt").content == b"x"
    assert list_files(api, info["run_id"]) == [("a.txt", 1)]


def test_an_address_of_no_run_is_free_and_shown_as_no_run(api: Api, client: TestClient) -> None:
    assert client.get(PROXY).json() == client.get(PROXY, params={"path": "nope"}).json() == {}
    assert client.delete(f"{PROXY}/dir").is_success
    for name in ("a", "b"):
        assert client.put(f"{PROXY}/dir/{name}.txt", content=name.encode()).is_success
    assert client.get(f"{PROXY}/dir/b.txt").content == b"b"
    assert client.get(PROXY).json() == {"files": [{"path": "dir", "is_dir": True}]}
    assert [file["path"] for file in client.get(PROXY, params={"path": "dir"}).json()["files"]] == [
        "a.txt",
        "b.txt",
    ]
    assert client.delete(f"{PROXY}/dir/a.txt").is_success
    assert client.get(f"{PROXY}/dir/a.txt").status_code == 404
    assert api("runs/search", experiment_ids=["0"], run_view_type="ALL") == {}
    assert (
        api("runs/get", "GET", answered=404, run_id="mlflow-artifacts")["error_code"]
        == "RESOURCE_DOES_NOT_EXIST"
    )
    assert client.get("http://127.0.0.1:3001/api/v1/runs").json()["runs"] == []


def test_a_path_is_a_file_or_a_folder(run: str, client: TestClient) -> None:
    client.put(f"{PROXY}/0/{run}/artifacts/a", content=b"x")
    assert client.put(f"{PROXY}/0/{run}/artifacts/a/b", content=b"x").status_code == 400
    client.put(f"{PROXY}/0/{run}/artifacts/d/b", content=b"x")
    assert client.put(f"{PROXY}/0/{run}/artifacts/d", content=b"x").status_code == 400


def test_an_address_of_no_run_is_not_found(run: str, client: TestClient) -> None:
    for address in (f"1/{run}/artifacts/a", f"0/{'0' * 32}/artifacts/a"):
        answer = client.put(f"{PROXY}/{address}", content=b"x")
        assert (answer.status_code, answer.json()["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
    assert client.get(f"{PROXY}/0/{run}/artifacts/none").status_code == 404


def test_a_deleted_run_takes_no_artifacts(api: Api, run: str, client: TestClient) -> None:
    api("runs/delete", run_id=run)
    assert client.put(f"{PROXY}/0/{run}/artifacts/a", content=b"x").status_code == 400


def test_a_file_is_larger_than_other_bodies_may_be(run: str, client: TestClient) -> None:
    content = b"0123456789abcdef" * 1_200_000
    client.put(f"{PROXY}/0/{run}/artifacts/big", content=content)
    assert client.get(f"{PROXY}/0/{run}/artifacts/big").content == content


def test_a_disk_without_room_is_one_clear_error_and_nothing_is_left(
    api: Api, run: str, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of temporary files: a real one that is always full."""
    monkeypatch.setattr(bodies, "temporary_file", lambda: Path("/dev/full").open("r+b", buffering=0))  # noqa: SIM115
    answer = client.put(f"{PROXY}/0/{run}/artifacts/a", content=bytes(3_000_000))
    assert (answer.status_code, answer.json()["error_code"]) == (507, "INTERNAL_ERROR")
    assert "no room left on the server's disk" in answer.json()["message"]
    monkeypatch.undo()
    assert list_files(api, run) == []
    assert client.put(f"{PROXY}/0/{run}/artifacts/a", content=b"x").status_code == 200

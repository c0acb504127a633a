"""The server below a path, behind a proxy that takes the path off and behind one that leaves it."""

import base64
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

import halving
from halving.errors import InvalidInput
from resources.backend import Backend
from server.app import create_app
from server.base_path import OWN
from server.links.opening import ROOT
from server.pages import PATHS, STATIC
from server.settings import Settings
from tests.sdk.imports.tools import python_with, run_script
from tests.server import plain_http
from tests.server.clients import ADDRESS, client_of
from tests.server.mlflow.scripts import UPLOAD
from tests.server.prefix_proxy import proxy_before
from tests.server.processes import Stream, server_of
from tests.waiting import wait_for

BASE = "/user/ada/proxy/3001"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
both = pytest.mark.parametrize("sent", ["", BASE], ids=["stripped", "left"])
"""What of the base path comes to the server."""


@pytest.fixture
def below(backend: Backend) -> Iterator[TestClient]:
    with client_of(Settings(root=backend.store.root, base_path=BASE)) as client:
        yield client


def addresses_of(html: str) -> list[str]:
    """All that a browser asks for because of the page."""
    addresses = re.findall(r'(?:href|src)="([^"]+)"', html)
    modules = [address for value in re.findall(r'data-modules="([^"]+)"', html) for address in value.split()]
    mapped = re.findall(r'": "([^"]+)"', html)
    return [*addresses, *modules, *mapped]


@both
def test_bytes_that_are_no_utf8_are_refused_below_the_path(below: TestClient, sent: str) -> None:
    answer = below.get(f"{sent}/api/v1/runs/a/caf%E9")
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(
        "address '/api/v1/runs/a/caf%E9' is not accepted: its byte %E9 is no UTF-8"
    )
    assert below.get(f"{sent}/api/v1/runs/a/caf%C3%A9").status_code == 422


@both
def test_all_that_the_page_asks_for_is_below_the_path(below: TestClient, sent: str) -> None:
    addresses: set[str] = set()
    for path in (
        "/",
        "/?filter=a",
        "/sweeps",
        "/sweeps/a",
        "/runs/p/r",
        "/models/m?version=v",
        "/datasets",
        "/login",
    ):
        html = below.get(sent + path).text
        addresses_of_page = addresses_of(html)
        assert len(addresses_of_page) > 20, path
        assert f'data-base="{BASE}"' in html, path
        addresses.update(addresses_of_page)
    for address in addresses:
        assert address.startswith(f"{BASE}/static/"), address
        assert below.get(sent + address.removeprefix(BASE)).status_code == 200, address


@both
def test_the_import_map_is_allowed_as_it_is_sent(below: TestClient, sent: str) -> None:
    answer = below.get(f"{sent}/")
    (imports,) = re.findall(r'<script type="importmap">(.*?)</script>', answer.text, re.DOTALL)
    assert (
        f"'sha256-{base64.b64encode(sha256(imports.encode()).digest()).decode()}'"
        in answer.headers["Content-Security-Policy"]
    )


ADDRESSES = [
    (BASE, 200),
    (f"{BASE}/", 200),
    (f"{BASE}/lib/api.js", 200),
    (f"{BASE}/api/v1/health", 200),
    ("/api/v1/health", 200),
    (f"{BASE}/health", 200),  # as MLflow's clients ask
    (f"{BASE}/nothing", 404),
    (f"{BASE}{BASE}/api/v1/health", 404),
    ("/user/adam/proxy/3001/api/v1/health", 404),
    (f"{BASE}0/api/v1/health", 404),
    (f"{BASE.upper()}/api/v1/health", 404),
    ("/user/ada/api/v1/health", 404),
    ("/user/ada%2Fproxy/3001/api/v1/health", 200),  # as ASGI decodes a path; nothing else has this address
]
"""Addresses, and with which status a server below the base path answers."""


def test_only_the_whole_base_path_is_taken_off_and_once(below: TestClient) -> None:
    assert [(address, below.get(address).status_code) for address, _ in ADDRESSES] == ADDRESSES


@pytest.mark.parametrize(
    "base_path",
    [
        BASE,
        "/halving",
        "/a/b/c/d/e",
        "/user/ada%40example.org",
        "/user/ada@example.org",
        "/~ada/x.y_z-1+2",
        "/user/%C3%A9va",
        "/HALVING",
    ],
)
def test_a_base_path_is_found_however_its_signs_are_sent(backend: Backend, base_path: str) -> None:
    with client_of(Settings(root=backend.store.root, base_path=base_path)) as client:
        for sent in (base_path, base_path.replace("%40", "@"), base_path.replace("@", "%40"), ""):
            assert client.get(f"{sent}/api/v1/health").status_code == 200, sent
        assert all(
            address.startswith(f"{base_path}/static/") for address in addresses_of(client.get("/").text)
        )


@both
def test_a_page_that_is_not_there_is_said_by_the_page(below: TestClient, sent: str) -> None:
    answer = below.get(f"{sent}/nothing", headers=BROWSER)
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert f"{BASE}/static/" in answer.text
    assert (
        below.get(f"{sent}/api/v1/nothing", headers=BROWSER).headers["Content-Type"]
        == "application/problem+json"
    )
    assert below.get(f"{sent}/api/2.0/mlflow/nothing").json()["error_code"], (
        "MLflow's errors are those of its clients"
    )


@both
def test_a_browser_logs_in_and_out_below_the_path(
    backend: Backend, bearer: Callable[..., dict[str, str]], sent: str
) -> None:
    token = bearer("ada", scope="write")["Authorization"].removeprefix("Bearer ")
    with client_of(Settings(root=backend.store.root, tokens=True, base_path=BASE)) as client:
        answer = client.post(f"{sent}/api/v1/session", json={"token": token})
        cookie = answer.headers["Set-Cookie"]
        assert f"Path={BASE}/api;" in cookie
        kept = {"Cookie": cookie.partition(";")[0]}
        assert client.get(f"{sent}/api/v1/session", headers=kept).json()["actor"] == "ada"
        assert client.get(f"{sent}/api/v1/runs", headers=kept).status_code == 200
        left = client.delete(
            f"{sent}/api/v1/session", headers={**kept, "X-CSRF-Token": answer.json()["csrf"]}
        )
        assert f"Path={BASE}/api;" in left.headers["Set-Cookie"]
        entries = client.get(f"{sent}/api/v1/write-log", headers=bearer("admin", scope="admin")).json()[
            "entries"
        ]
        assert {entry["target"] for entry in entries} == {"/api/v1/session"}, (
            "the write log has the server's own addresses"
        )


def test_a_server_without_a_base_path_has_the_cookie_and_the_page_that_it_had(
    local: TestClient, guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    token = bearer("ada")["Authorization"].removeprefix("Bearer ")
    assert "Path=/api;" in guarded.post("/api/v1/session", json={"token": token}).headers["Set-Cookie"]
    html = local.get("/").text
    assert '<html lang="en" data-base="">' in html
    assert all(address.startswith("/static/") for address in addresses_of(html))
    assert local.get(f"{BASE}/api/v1/health").status_code == 404
    assert "servers" not in local.get("/api/v1/openapi.json").json()


@both
def test_files_of_a_run_come_whole_and_in_ranges_by_the_addresses_of_the_api(
    below: TestClient, backend: Backend, sent: str
) -> None:
    with halving.init("p", {}, root=backend.store.root, system_metrics=None) as run:
        run.log({"note": halving.Text("0123456789")}, step=0)
    (medium,) = below.get(f"{sent}/api/v1/media", params={"run": f"p/{run.id}"}).json()["media"]
    assert medium["url"].startswith("/api/v1/blobs/"), (
        "who asks puts the server's address before it, with its path"
    )
    assert below.get(sent + medium["url"]).text == "0123456789"
    part = below.get(sent + medium["url"], headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.text) == (206, "234")


@both
def test_parts_of_an_upload_go_below_the_path(below: TestClient, mlflow_grammar: None, sent: str) -> None:
    run = below.post(f"{sent}/api/2.0/mlflow/runs/create", json={"experiment_id": "0"}).json()["run"]["info"][
        "run_id"
    ]
    address = f"{sent}/api/2.0/mlflow-artifacts"
    begun = below.post(
        f"{address}/mpu/create/0/{run}/artifacts", json={"path": "weights", "num_parts": 1}
    ).json()
    (part,) = begun["credentials"]
    assert part["url"].startswith(f"{ADDRESS}{BASE}/api/v1/signed/parts/")
    put = below.put(sent + part["url"].removeprefix(ADDRESS + BASE), content=b"weights")
    joined = {
        "path": "weights",
        "upload_id": begun["upload_id"],
        "parts": [{"part_number": 1, "etag": put.headers["etag"]}],
    }
    assert below.post(f"{address}/mpu/complete/0/{run}/artifacts", json=joined).json() == {}
    assert below.get(f"{address}/artifacts/0/{run}/artifacts/weights").content == b"weights"
    assert (
        below.get(f"{sent}/get-artifact", params={"run_uuid": run, "path": "weights"}).content == b"weights"
    )


def test_what_is_sent_again_past_the_proxy_is_done_once(below: TestClient) -> None:
    key = {"Idempotency-Key": "one"}
    new = {"project": "p", "run": "r", "params": {}, "token": "0123456789abcdef"}
    answers = [below.post(f"{sent}/api/v1/ingest/begin", json=new, headers=key) for sent in ("", BASE)]
    assert [answer.status_code for answer in answers] == [answers[0].status_code] * 2
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-Prefix", "X-Script-Name", "X-Forwarded-Context", "X-ProxyContextPath", "X-Original-URI"],
)
def test_nobody_is_trusted_with_the_path_who_only_sends_a_request(
    below: TestClient, local: TestClient, header: str
) -> None:
    evil = {header: "/evil"}
    assert below.get("/", headers=evil).text == below.get("/").text
    assert local.get("/", headers=evil).text == local.get("/").text
    assert below.get("/evil/api/v1/health", headers=evil).status_code == 404


def test_clients_that_are_made_of_the_openapi_document_ask_below_the_path(below: TestClient) -> None:
    assert below.get("/api/v1/openapi.json").json()["servers"] == [{"url": BASE}]


@pytest.mark.parametrize(
    ("base_path", "kept"),
    [
        ("", ""),
        ("/", ""),
        ("/a", "/a"),
        ("/a/", "/a"),
        ("/user/ada/proxy/3001/", BASE),
        ("/a%20b", "/a%20b"),
        ("/...", "/..."),
    ],
)
def test_a_slash_at_the_end_says_nothing(base_path: str, kept: str) -> None:
    assert Settings(base_path=base_path).base_path == kept


@pytest.mark.parametrize(
    "base_path",
    [
        "user",
        "user/ada",
        '/a"b',
        "/a'b",
        "/a<b",
        "/a;b",
        "/a b",
        "/a\nb",
        "/a\n",
        "/a?b",
        "/a#b",
        "/ä",
        "//",
        "//evil.example",
        "/a//b",
        "/a//",
        "/a/../b",
        "/./a",
        "/a/%2e%2e/b",
        "/a%2Fb",
        "/a%5Cb",
        "/a%00b",
        "/a%ff",
        "/a%",
        "/a%2",
        "/{base}",
        "http://example.org/a",
        "\\a",
    ],
)
def test_what_is_no_path_is_refused(base_path: str) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"^base_path = .* is not accepted: give the path below which a proxy shows the server",
    ):
        Settings(base_path=base_path)


@pytest.mark.parametrize("first", sorted(OWN))
def test_a_base_path_that_could_be_an_address_of_the_servers_own_is_refused(first: str) -> None:
    for base_path in (f"/{first}", f"/{first}/halving"):
        with pytest.raises(InvalidInput, match=rf"addresses of the server's own begin with /{first}"):
            Settings(base_path=base_path)
    assert Settings(base_path=f"/halving/{first}").base_path == f"/halving/{first}"


def test_it_is_known_what_the_servers_own_addresses_begin_with(backend: Backend) -> None:
    app = create_app(Settings(root=backend.store.root))
    routes = [route.path_format or "/" for route in iter_route_contexts(app.routes)]
    folders = [f"/{path.name}" for path in STATIC.iterdir() if path.is_dir()]
    begun = {
        path.split("/")[1].partition("{")[0] for path in [*routes, *PATHS, *folders, "/static/", ROOT]
    } - {""}
    assert begun == OWN


TRAINING = """
import os, sys
from pathlib import Path
os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
import mlflow
from mlflow import MlflowClient

mlflow.set_experiment("digits")
with mlflow.start_run() as run:
    mlflow.log_param("lr", 0.1)
    mlflow.log_metric("loss", 0.5, step=3)
    Path("a note.txt").write_text("as it is")
    mlflow.log_artifact("a note.txt", "deep/er")
client, first = MlflowClient(), run.info.run_id
assert client.get_run(first).data.params == {"lr": "0.1"}
assert [one.value for one in client.get_metric_history(first, "loss")] == [0.5]
assert [one.path for one in client.list_artifacts(first, "deep/er")] == ["deep/er/a note.txt"]
assert Path(client.download_artifacts(first, "deep/er/a note.txt")).read_text() == "as it is"
runs = client.search_runs([run.info.experiment_id], "params.lr = '0.1'")
assert [run.info.run_id for run in runs] == [first]
"""


@pytest.mark.slow
@pytest.mark.parametrize("strips", [True, False])
def test_mlflows_own_client_logs_below_the_path(tmp_path: Path, strips: bool) -> None:
    python = python_with("mlflow", "mlflow==3.17.2")
    with (
        server_of(str(tmp_path / "root"), BASE) as server,
        proxy_before(server.address, BASE, strips=strips) as proxy,
    ):
        run_script(python, TRAINING, tmp_path / "training", proxy.url)
        run_script(python, UPLOAD, tmp_path / "upload", f"{proxy.url}/")
        assert proxy.strays == []


@pytest.mark.slow
@pytest.mark.parametrize(("base_path", "strips"), [(BASE, True), (BASE, False), ("", True)])
def test_a_run_is_sent_and_seen_live_below_the_path(tmp_path: Path, base_path: str, strips: bool) -> None:
    """A program needs the path in its address; the server must know it only where the proxy leaves it."""
    (tmp_path / "note.txt").write_text("as it is")
    with (
        server_of(str(tmp_path / "root"), base_path) as server,
        proxy_before(server.address, BASE, strips=strips) as proxy,
    ):
        with halving.init("p", {"lr": 0.1}, url=proxy.url, system_metrics=None) as run:
            run.log({"loss": 0.5}, step=0)
            run.log_artifact(tmp_path / "note.txt")
            live = Stream(f"{proxy.url}/api/v1/live", {"run": f"p/{run.id}", "key": "loss"})
        wait_for(lambda: live.events_named("end"), 60, "the stream says that the run has ended")
        live.close()
        assert set(live.points().values()) == {0.5}
        content = plain_http.get(f"{proxy.url}/api/v1/runs/p/{run.id}").json()
        assert (content["status"], content["params"]) == ("finished", {"lr": 0.1})
        assert [artifact["name"] for artifact in content["artifacts"]] == ["note.txt"]
        assert proxy.strays == []

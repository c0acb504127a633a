"""Whoever has a link tries to get further by it; all of it is refused."""

from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import product
from typing import Any

import pytest

from server.settings import Settings
from tests.server.browser.conftest import serving
from tests.server.links.conftest import Place

API = [
    ("GET", "/api/v1/session"),
    ("GET", "/api/v1/runs"),
    ("GET", "/api/v1/runs/mine/a"),
    ("GET", "/api/v1/runs/other/a"),
    ("GET", "/api/v1/runs/diff?run=mine/a&run=other/a"),
    ("GET", "/api/v1/curves?run=mine/a&key=loss"),
    ("POST", "/api/v1/curves"),
    ("GET", "/api/v1/live?run=mine/a&key=loss"),
    ("GET", "/api/v1/media?run=mine/a"),
    ("GET", "/api/v1/blobs/sha256:00?run=mine/a"),
    ("GET", "/api/v1/hpo/studies"),
    ("POST", "/api/v1/hpo/studies"),
    ("GET", "/api/v1/models"),
    ("GET", "/api/v1/datasets"),
    ("GET", "/api/v1/reports"),
    ("GET", "/api/v1/write-log"),
    ("GET", "/api/v1/links"),
    ("POST", "/api/v1/links"),
    ("GET", "/api/v1/views"),
    ("PUT", "/api/v1/views/mine/a"),
    ("PUT", "/api/v1/blobs/sha256:00"),
    ("POST", "/api/v1/ingest/begin"),
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/api/2.0/mlflow/experiments/search"),
    ("POST", "/api/2.0/mlflow/runs/search"),
    ("GET", "/ajax-api/2.0/mlflow/experiments/search"),
    ("GET", "/get-artifact?path=a&run_id=a"),
]
CREDENTIALS = [
    lambda secret: {"Authorization": f"Bearer {secret}"},
    lambda secret: {"Authorization": f"Basic {secret}"},
    lambda secret: {"Cookie": f"halving_session={secret}"},
    lambda secret: {"Cookie": f"halving_shared={secret}; secret={secret}"},
    lambda secret: {"X-CSRF-Token": secret, "Referer": f"http://127.0.0.1:3001/shared/{secret}"},
]


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.access.authentication._WRONG_SECONDS", 0.0)
    monkeypatch.setattr("server.identity.wrong_tokens._PER_MINUTE", 10_000)


@pytest.fixture(params=["run", "view", "sweep", "report"])
def path(request: pytest.FixtureRequest, place: Place) -> str:
    """The address of a link of each kind, which shows its page."""
    bodies: dict[str, dict[str, Any]] = {
        "run": {"target": "mine/a"},
        "view": {"target": "filter=run+=+a", "projects": ["mine"]},
        "sweep": {"target": place.sweep},
        "report": {"target": place.sweep},
    }
    header = place.header("ada", scope="admin")
    path = str(place.create(header, kind=request.param, **bodies[request.param])["path"])
    assert place.client.get(path).status_code == 200
    place.client.cookies.clear()
    return path


def test_the_secret_is_no_credential_of_the_api(place: Place, path: str) -> None:
    secret = path.rpartition("/")[2]
    for (method, address), credential in product(API, CREDENTIALS):
        answer = place.client.request(method, address, headers=credential(secret))
        assert answer.status_code == 401, (method, address, answer.text)
    for method, address in API:
        sign = "&" if "?" in address else "?"
        for name in ("token", "secret", "access_token", "link"):
            assert place.client.request(method, f"{address}{sign}{name}={secret}").status_code == 401


@pytest.fixture
def connection(place: Place) -> Iterator[HTTPConnection]:
    """A connection to a real server, on which an address is sent as it stands.

    Other clients would take dots out of a path.
    """
    with serving(Settings(root=place.backend.store.root, tokens=True)) as url:
        connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
        yield connection
        connection.close()


def test_no_path_leads_from_a_link_to_anything_else(
    place: Place, path: str, connection: HTTPConnection
) -> None:
    def get(address: str) -> tuple[int, str]:
        connection.putrequest("GET", address)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    assert get(path)[0] == 200
    secret = path.rpartition("/")[2]
    tricks = [
        *(
            f"{path}{end}"
            for end in ("/", "//", "/.", "/..", "/../", "%0A", "%0a", "%00", "%20", ";a", ".html")
        ),
        *(
            f"{path}/{end}"
            for end in ("api/v1/runs", "../api/v1/runs", "../../api/v1/runs", "%2e%2e/api/v1/runs")
        ),
        *(f"{path}/{end}" for end in ("..%2f..%2fapi/v1/runs", "%2e%2e%2f%2e%2e%2fapi%2fv1%2fruns")),
        *(f"{path}%2f{end}" for end in ("..%2fapi", "%2e%2e/%2e%2e/api/v1/runs")),
        *(f"/shared/{end}" for end in ("", ".", "..", "%2e%2e/api/v1/runs", "../api/v1/runs", f"x/{secret}")),
        *(
            f"{start}{secret}"
            for start in ("//shared/", "/shared//", "/SHARED/", "/api/v1/shared/", "/static/")
        ),
        *(f"/shared/{wrong}" for wrong in (secret[:-1], f"{secret}A", secret.swapcase(), f"*{secret}", "%")),
        "/shared",
        f"/api{path}",
    ]
    for trick in tricks:
        status, text = get(trick)
        assert status in (400, 401, 404), (trick, text[:200])
        assert "mine" not in text, trick


def test_a_link_is_only_read_and_answers_other_methods_alike_whoever_asks(place: Place, path: str) -> None:
    unknown = f"/shared/hlk_{'x' * 32}"
    for method in ("HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"):
        answers = [place.client.request(method, each) for each in (path, unknown)]
        assert [answer.status_code for answer in answers] == [405, 405]
        assert answers[0].content == answers[1].content
        assert "mine" not in answers[0].text


def test_what_else_is_sent_changes_nothing_of_the_page(place: Place, path: str) -> None:
    header = place.header("ben", scope="admin")
    for address, headers in (
        (f"{path}?run=other/a&filter=project+=+other&project=other&kind=run&target=other/a", {}),
        (path, header),
        (
            path,
            {
                "Cookie": "halving_session=x",
                "X-Forwarded-Host": "elsewhere",
                "X-Original-URL": "/api/v1/runs",
            },
        ),
        (path, {"Range": "bytes=0-10", "If-None-Match": "*", "Origin": "https://elsewhere.example"}),
    ):
        answer = place.client.get(address, headers=headers)
        assert answer.status_code == 200
        assert "other/a" not in answer.text
        assert not [
            name for name in answer.headers if name.lower().startswith(("access-control", "set-cookie"))
        ]

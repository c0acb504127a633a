"""While the catalog or the store is away the server says so, shows what it can, and recovers."""

import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
from pathlib import Path

import pytest
from sqlalchemy import make_url

import halving
from halving import Store
from resources.backend import Backend
from resources.sweep_spec import parse_spec
from server import store_threads
from server.errors import STORE_AWAY
from server.identity.tokens import create_token
from server.routes import run_records
from server.settings import Settings
from server.store_threads import StoreThreads
from tests.backends import SMALL
from tests.postgres import Postgres
from tests.s3 import S3, Gate
from tests.server.clients import ADDRESS, client_of
from tests.server.registry import promote_winner
from tests.waiting import wait_for

STUDIES = "/api/v1/hpo/studies"


@pytest.fixture
def gate(postgres: Postgres) -> Iterator[tuple[Gate, str]]:
    """A gate before a new database, and the database's URL through it."""
    direct = make_url(postgres.database(f"t{secrets.token_hex(6)}"))
    assert direct.host is not None
    assert direct.port is not None
    gate = Gate((direct.host, direct.port))
    host, _, port = gate.endpoint.partition(":")
    yield gate, direct.set(host=host, port=int(port)).render_as_string(hide_password=False)
    gate.shut()


@pytest.mark.parametrize(
    "outage", [pytest.param(Gate.shut, id="refused"), pytest.param(Gate.swallow, id="silent")]
)
@pytest.mark.parametrize("tokens", [False, True])
def test_without_its_catalog_the_server_says_so_within_seconds_to_everybody(
    gate: tuple[Gate, str], tmp_path: Path, outage: object, tokens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, url = gate
    with client_of(Settings(root=str(tmp_path / "root"), catalog_url=url, tokens=tokens)) as client:
        state = client.app.state.halving
        authentication = client.app.state.authentication
        headers = {"Authorization": f"Bearer {create_token(state.catalog, 'ada')}"}
        halving.init("digits", {"lr": 0.1}, str(tmp_path / "root"), id="a", system_metrics=None).finish()
        assert client.get(STUDIES, headers=headers).status_code == 200
        outage(line)  # type: ignore[operator]
        state.access_catalog.close()
        state.catalog.close()  # a connection that hangs is another matter: the operating system gives it up
        # What is known of the token is asked for again at once.
        monkeypatch.setattr(sys.modules[type(authentication).__module__], "FRESH_SECONDS", 0.0)
        with ThreadPoolExecutor(30) as pool:
            began = time.monotonic()
            answers = list(pool.map(lambda _: client.get(STUDIES, headers=headers), range(30)))
            took = time.monotonic() - began
        assert {answer.status_code for answer in answers} == {503}
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
        assert {answer.json()["detail"] for answer in answers} == {"the catalog does not answer; try again"}
        assert took < 10
        run = client.get("/api/v1/runs/digits/a", headers=headers).json()
        assert (run["params"], run["index"], run["unavailable"]) == (
            {"lr": 0.1},
            None,
            "the catalog does not answer; try again",
        )
        assert client.get("/api/v1/ready").status_code == 503
        assert client.get("/api/v1/health").status_code == client.get("/").status_code == 200
        line.open()
        wait_for(
            lambda: client.get(STUDIES, headers=headers).status_code == 200, 60, "the catalog to be back"
        )


def test_without_its_store_the_server_shows_what_the_catalog_has(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    line = Gate((s3.host, s3.port))
    root = s3.root(secrets.token_hex(6), endpoint=line.endpoint)
    url = f"sqlite:///{tmp_path}/catalog.db"
    version = promote_winner(Backend(root=root, catalog_url=url), parse_spec({**SMALL, "max_trials": 1}))
    with client_of(Settings(root=root, catalog_url=url)) as client:
        page = f"/api/v1/reports/{version.sweep}/page"
        assert client.get(page).status_code == 200
        line.shut()
        answer = client.get(page)
        assert (answer.status_code, bool(answer.headers["Retry-After"])) == (503, True)
        assert client.get(f"{STUDIES}/{version.sweep}").status_code == 200
        assert client.get("/api/v1/models/small/champion").status_code == 200
        line.open()
        assert client.get(page).status_code == 200


@pytest.mark.parametrize(
    "outage", [pytest.param(Gate.shut, id="refused"), pytest.param(Gate.swallow, id="silent")]
)
def test_without_its_store_the_server_shows_the_index_and_hides_the_address(
    s3: S3,
    tmp_path: Path,
    outage: Callable[[Gate], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    line = Gate((s3.host, s3.port))
    bucket = secrets.token_hex(6)
    root = s3.root(bucket, endpoint=line.endpoint)
    with halving.init(
        "p", {"lr": 0.1, "optimizer": {"name": "adam"}}, root, id="a", tags={"team": "x"}, system_metrics=None
    ) as run:
        run.log({"loss": 0.5}, step=1)
    with client_of(
        Settings(root=root, catalog_url=f"sqlite:///{tmp_path}/catalog.db"), f"{ADDRESS}/api/v1"
    ) as client:
        state = client.app.state.halving  # type: ignore[attr-defined]
        wait_for(lambda: client.get("/runs").json()["total"] == 1, 60, "the run to be indexed")
        whole = client.get("/runs/p/a").json()
        if outage is Gate.swallow:
            monkeypatch.setattr(StoreThreads, "read", partialmethod(StoreThreads.read, seconds=0.5))
            monkeypatch.setattr(run_records, "_FILES_SECONDS", 0.5)
            monkeypatch.setattr(state.curves._limiter, "seconds", 0.5)
        outage(line)
        try:
            requests = (
                "/curves?run=p/a&key=loss",
                "/media?run=p/a",
                "/runs/diff?run=p/a&run=p/b",
                "/live?run=p/a&key=loss",
                "/runs/p/b",
            )
            with ThreadPoolExecutor(10) as pool:
                paths = ("/runs/p/a", *requests, "/training-runs/p/a/metrics?key=loss")
                refused = dict(zip(paths, pool.map(client.get, paths), strict=True))
            run_answer = refused.pop("/runs/p/a")
        finally:
            line.shut()
        assert {path: answer.status_code for path, answer in refused.items()} == dict.fromkeys(refused, 503)
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused.values())
        said = " ".join(answer.text for answer in (*refused.values(), run_answer))
        assert [
            word for word in (bucket, line.endpoint, "experiments", "AWS", "127.0.0.1") if word in said
        ] == []
        assert run_answer.status_code == 200
        body = run_answer.json()
        assert {name: body[name] for name in ("status", "tags", "index")} == {
            name: whole[name] for name in ("status", "tags", "index")
        }
        assert (body["params"], body["metrics"]["loss"]["last"]) == (
            {"lr": 0.1, "optimizer/name": "adam"},
            0.5,
        )
        assert (body["attempts"], body["files"]) == (None, None)
        assert body["unavailable"].startswith(STORE_AWAY)
        assert "without determinism, provenance, attempts" in body["unavailable"]
    if outage is Gate.shut:
        assert bucket in caplog.text


def test_a_store_that_hangs_holds_up_only_what_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers_again = threading.Event()
    reads = []

    true_names = Store.names

    def hang(store: Store, name: str) -> list[str]:
        if name.startswith("runs/project=p/r/"):
            reads.append(name)
            answers_again.wait(60)
        return true_names(store, name)

    query = {"run": "p/r"}
    with client_of(Settings(root=str(tmp_path / "root"))) as client, ThreadPoolExecutor(80) as pool:
        monkeypatch.setattr(client.app.state.halving.store_threads, "_seconds", 0.1)  # type: ignore[attr-defined]
        monkeypatch.setattr(Store, "names", hang)
        try:
            media = [pool.submit(client.get, "/api/v1/media", params=query) for _ in range(60)]
            wait_for(
                lambda: sum(request.done() for request in media) == 60 - store_threads.THREADS,
                60,
                "those without a thread are refused",
            )
            refused = [request.result() for request in media if request.done()]
            assert {answer.status_code for answer in refused} == {503}
            assert "wait for the store" in refused[0].json()["detail"]
            assert len(reads) == store_threads.THREADS
            for path in ("/api/v1/health", "/api/v1/ready", "/api/v1/runs", STUDIES, "/"):
                assert pool.submit(client.get, path).result(20).status_code == 200, path
        finally:
            answers_again.set()
        assert {request.result(20).status_code for request in media} == {503, 404}


def test_a_champion_on_s3_is_fetched_from_there_by_a_presigned_address(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import urllib.request

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = s3.root(secrets.token_hex(6))
    url = f"sqlite:///{tmp_path}/catalog.db"
    promote_winner(
        Backend(root=root, catalog_url=url),
        parse_spec({**SMALL, "max_trials": 1}),
        checkpoint=b"weights on S3",
    )
    with client_of(Settings(root=root, catalog_url=url)) as client:
        address = client.get("/api/v1/models/small/champion").json()["url"]
    assert address.startswith(f"http://{s3.endpoint}/")
    assert "X-Amz-Expires=900" in address
    with urllib.request.urlopen(address, timeout=30) as answer:
        assert answer.read() == b"weights on S3"

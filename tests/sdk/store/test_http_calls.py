"""Calls of a server: broken answers, waiting as it asks, proxies, certificates, and foreign errors."""

import contextlib
import errno
import ssl
import subprocess
import threading
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from halving.errors import AlreadyExists, BatchMissing, InvalidInput, StoreError, StoreUnavailable
from halving.store.http_calls import HttpCalls
from halving.store.retry import retry_while_unavailable
from halving.store.server_store import ServerStore

Answering = Callable[[BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def _serving(answer: Answering, certificate: Path | None = None) -> Iterator[str]:
    """A server's address; each GET, PUT and POST is answered by the function."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer(self)

        do_PUT = do_POST = do_CONNECT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _send(
    request: BaseHTTPRequestHandler, status: int, body: bytes, length: int | None = None, **headers: str
) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body) if length is None else length), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)
    request.close_connection = length is not None


def test_an_answer_that_breaks_off_is_a_server_that_is_away_and_no_damaged_file() -> None:
    digest = f"sha256:{'0' * 64}"
    with (
        _serving(lambda request: _send(request, 200, b"half", 1000)) as url,
        contextlib.closing(ServerStore(url)) as store,
    ):
        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.read("runs/project=p/r/record.json")
        with pytest.raises(StoreUnavailable, match="does not answer"), store.blob_file(digest):
            pass


def test_what_the_callers_own_block_raises_is_not_blamed_on_the_server() -> None:
    with (
        _serving(lambda request: _send(request, 200, b"whole" * 1000)) as url,
        contextlib.closing(HttpCalls(url)) as calls,
    ):
        full = OSError(errno.ENOSPC, "No space left on device")
        with pytest.raises(OSError, match="No space left") as raised, calls.stream("/files/f"):
            raise full
        assert raised.value is full
        with calls.stream("/files/f") as stream:
            assert stream.read() == b"whole" * 1000
        with pytest.raises(FileNotFoundError):
            calls.call("PUT", "/files/f", content=Path("/nowhere"))


def test_a_server_is_left_alone_for_as_long_as_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = iter(
        [
            (429, {"Retry_After": "7"}),
            (503, {"Retry_After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
            (503, {"Retry_After": "9999"}),
        ]
    )
    waited: list[float] = []
    now = [0.0]

    def answer(request: BaseHTTPRequestHandler) -> None:
        status, headers = next(requests, (200, {}))
        _send(request, status, b"{}", **headers)

    def sleep(seconds: float) -> None:
        now[0] += seconds
        waited[-1] += seconds

    def call() -> int:
        waited.append(0.0)
        return calls.call("GET", "/files/f").status

    monkeypatch.setattr("halving.store.retry.time.sleep", sleep)
    monkeypatch.setattr("halving.store.retry.time.monotonic", lambda: now[0])
    with _serving(answer) as url, contextlib.closing(HttpCalls(url)) as calls, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert retry_while_unavailable(ServerStore(url), "a test", call) == 200
    assert len(waited) == 4
    assert waited[0] >= 7.25
    assert 0.5 <= waited[1] < 2
    assert 60 < waited[2] < 64


def test_a_conflict_says_which_batch_is_missing() -> None:
    bodies = iter([b'{"detail": "comes too early", "next": 3}', b'{"detail": "another one"}'])
    with (
        _serving(lambda request: _send(request, 409, next(bodies))) as url,
        contextlib.closing(HttpCalls(url)) as calls,
    ):
        with pytest.raises(BatchMissing, match="comes too early") as missing:
            calls.call("POST", "/ingest")
        assert missing.value.next == 3
        with pytest.raises(AlreadyExists, match="another one"):
            calls.call("POST", "/ingest")


@pytest.mark.parametrize("secret", ["", "ada:p%40ss@"])
def test_a_server_is_reached_through_the_proxy_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    requests: list[tuple[str, str | None, str | None]] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        requests.append((request.path, request.headers["Host"], request.headers["Proxy-Authorization"]))
        _send(request, 200, b"by the proxy")

    with _serving(answer) as proxy:
        monkeypatch.setenv("http_proxy", proxy.replace("//", f"//{secret}"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with contextlib.closing(HttpCalls("http://halving.test:3001/below")) as calls:
            assert calls.call("GET", "/files/f", {"a": 1}).body == b"by the proxy"
        allowed = f"Basic {b64encode(b'ada:p@ss').decode()}" if secret else None
        assert requests == [
            ("http://halving.test:3001/below/api/v1/files/f?a=1", "halving.test:3001", allowed)
        ]
        monkeypatch.setenv("no_proxy", "halving.test")
        with (
            contextlib.closing(HttpCalls("http://halving.test:3001")) as direct,
            pytest.raises(StoreUnavailable),
        ):
            direct.call("GET", "/files/f")
    with (
        _serving(lambda request: _send(request, 200, b"direct")) as url,
        contextlib.closing(HttpCalls(url)) as calls,  # on this machine there is no proxy
    ):
        assert calls.call("GET", "/files/f").body == b"direct"


def test_through_a_proxy_tls_is_spoken_with_the_server_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, str]] = []

    def refuse(request: BaseHTTPRequestHandler) -> None:
        requests.append((request.command, request.path))
        _send(request, 502, b"")

    with _serving(refuse) as proxy:
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with (
            contextlib.closing(HttpCalls("https://halving.test")) as calls,
            pytest.raises(StoreUnavailable, match="Tunnel connection failed"),
        ):
            calls.call("GET", "/files/f")
    assert requests == [("CONNECT", "halving.test:443")]


@pytest.mark.parametrize("proxy", ["socks5://ada:secret@host:1", "http://host:port", "http://"])
def test_a_proxy_that_is_none_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(InvalidInput, match="HTTP_PROXY is not accepted: give http://HOST:PORT") as refused:
        HttpCalls("http://halving.test")
    assert "secret" not in str(refused.value)


@pytest.mark.slow
def test_a_certificate_that_does_not_hold_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "own.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject],
        check=True,
        capture_output=True,
    )
    certificate.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    with _serving(lambda request: _send(request, 200, b"safe"), certificate) as url:
        with contextlib.closing(HttpCalls(url)) as calls:
            with pytest.raises(
                StoreError, match=r"certificate that does not hold here .*self-signed.*SSL_CERT_FILE"
            ) as refused:
                calls.call("GET", "/files/f")
            assert not isinstance(refused.value, StoreUnavailable)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        with contextlib.closing(HttpCalls(url)) as calls:
            assert calls.call("GET", "/files/f").body == b"safe"

"""A proxy that shows a server below a path of its own host, as JupyterHub and most ingresses do."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding"}


class PrefixProxy(ThreadingHTTPServer):
    """The proxy; it streams what is answered, and leaves ``Host`` as it was sent.

    Args:
        address: of the server.
        base_path: below which it is shown.
        strips: whether the server is asked without the base path.
    """

    daemon_threads = True

    def __init__(self, address: str, base_path: str, *, strips: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server = urlsplit(address).netloc
        self.base_path = base_path
        self.strips = strips
        self.host = f"http://127.0.0.1:{self.server_address[1]}"
        self.url = f"{self.host}{base_path}"
        self.strays: list[str] = []
        """What was asked beside the base path, where another application may be."""


class _Handler(BaseHTTPRequestHandler):
    server: PrefixProxy

    def _pass_on(self) -> None:
        base_path = self.server.base_path
        if self.path != base_path and not self.path.startswith((f"{base_path}/", f"{base_path}?")):
            self.server.strays.append(self.path)
            self.send_error(404, "another application's path")
            return
        rest = self.path.removeprefix(base_path)
        stripped = rest if rest.startswith("/") else f"/{rest}"
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in _OF_A_CONNECTION
        }
        connection = http.client.HTTPConnection(self.server.server, timeout=60)
        try:
            connection.request(
                self.command, stripped if self.server.strips else self.path, self._body(), headers
            )
            self._answer(connection.getresponse())
        except ConnectionError:
            pass  # who asked has left, or the server was stopped
        finally:
            connection.close()
            self.close_connection = True

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_A_CONNECTION:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while piece := answer.read1():
            self.wfile.write(piece)
            self.wfile.flush()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing: what is asked is no news."""


@contextmanager
def proxy_before(address: str, base_path: str, *, strips: bool = True) -> Iterator[PrefixProxy]:
    """A proxy before a server for the length of the ``with`` block."""
    proxy = PrefixProxy(address, base_path, strips=strips)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()

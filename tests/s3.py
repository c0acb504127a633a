"""An S3 API of the tests' own (moto's server), and a gate before it that makes S3 unavailable."""

import contextlib
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

from pyarrow import fs

from tests.ports import free_port

# What any client needs to sign its requests; moto accepts all of them. The secret is in no file, so wherever
# it is found it has leaked.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20),
    "AWS_EC2_METADATA_DISABLED": "true",
}


# Half of what moto does for a request it would do again for each: list its own folder, and parse the times
# that it has kept as text. And nobody reads its log.
_SERVER = """
import functools
from moto import backends, server
from moto.core import serialize
from werkzeug.serving import WSGIRequestHandler
modules = frozenset(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: modules
serialize.parse_to_aware_datetime = functools.lru_cache(100_000)(serialize.parse_to_aware_datetime)
WSGIRequestHandler.log_request = lambda *_: None
server.main()
"""


class S3:
    """A running server; :meth:`root` makes an empty store in it. ``host`` may be an address that pods reach.

    Everything that is stored lives in the server's memory.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = free_port(host)
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, "-H", host, "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await()

    def root(self, name: str, *, endpoint: str | None = None) -> str:
        """The address of a store in its own bucket, at ``endpoint`` (default: the server itself)."""
        self.filesystem().create_dir(f"halving-{name}")
        server = endpoint or self.endpoint
        return f"s3://halving-{name}/experiments?endpoint_override={server}&scheme=http&region=us-east-1"

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.port}"

    def filesystem(self) -> fs.S3FileSystem:
        """The server as Arrow sees it, to look behind a store's back."""
        keys = {
            "access_key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "secret_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        }
        return fs.S3FileSystem(
            endpoint_override=self.endpoint,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            **keys,
        )

    def keep_versions(self, address: str) -> None:
        """Have the bucket of an address keep each version of its objects, which Arrow cannot ask for."""
        import boto3

        client = boto3.client("s3", endpoint_url=f"http://{self.endpoint}", region_name="us-east-1")
        client.put_bucket_versioning(
            Bucket=urlsplit(address).netloc, VersioningConfiguration={"Status": "Enabled"}
        )

    def stop(self) -> None:
        self._server.kill()
        self._server.wait()

    def _await(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.endpoint}/moto-api/", timeout=5):
                    return
            except OSError:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


class Gate:
    """A TCP proxy that can be open, :meth:`shut` (refuses and breaks), or :meth:`swallow` (answers nothing).

    Attributes:
        carried: bytes that it let through, in both directions.
        connections: how many there have been.
    """

    def __init__(self, target: tuple[str, int], host: str = "127.0.0.1") -> None:
        self._target = target
        self._place = (host, free_port(host))
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._swallowing = False
        self.carried = self.connections = 0
        self.open()

    @property
    def endpoint(self) -> str:
        return f"{self._place[0]}:{self._place[1]}"

    def open(self) -> None:
        """Let everything through (again)."""
        if self._swallowing:
            self.shut()  # what was swallowed is never answered
        self._swallowing = False
        if self._listener is None:
            self._listener = socket.create_server(self._place, backlog=128)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        """Refuse connections and break those that are open."""
        listener = self._listener
        self._listener = None
        for connection in [*([listener] if listener else []), *self._open]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._open.clear()

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Shut for the length of a ``with`` block."""
        self.shut()
        try:
            yield
        finally:
            self.open()

    def swallow(self) -> None:
        """Accept connections and requests, and answer none."""
        self._swallowing = True

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                inside, _ = listener.accept()
            except OSError:
                return  # shut
            try:
                outside = socket.create_connection(self._target)
            except OSError:
                inside.close()
                continue
            if self._listener is not listener:  # shut meanwhile
                inside.close()
                outside.close()
                return
            self._open |= {inside, outside}
            self.connections += 1
            for source, sink in ((inside, outside), (outside, inside)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not self._swallowing:
                    self.carried += len(data)
                    sink.sendall(data)
        for connection in (source, sink):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
            self._open.discard(connection)

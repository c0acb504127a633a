"""The store behind a Halving server, for programs that have only a token of the server.

They need no credentials of the server's own store.
"""

import contextlib
import copy
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from halving.errors import NotFound, StoreError
from halving.store.cold_roots import BLOBS
from halving.store.files import CHUNK
from halving.store.http_calls import HttpCalls
from halving.store.local_files import Content
from halving.store.store import Store, digest_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

TOKEN_VARIABLE = "HALVING_TOKEN"


class ServerStore(Store):
    """What a run needs of a store, over HTTP: its own records and points, and blobs.

    Args:
        url: the server's address, such as ``http://127.0.0.1:3001``.
        token: of the server (None: ``HALVING_TOKEN``; one that listens on this machine alone asks for none).
        run: ``project/run``: blobs that its records name can be read.

    Raises:
        InvalidInput: the address or the token is none.
    """

    def __init__(self, url: str, token: str | None = None, run: str | None = None) -> None:
        super().__init__(url)
        self._calls = HttpCalls(url, token or os.environ.get(TOKEN_VARIABLE) or None)
        self._run = run

    def create(self, name: str, content: bytes | Path, *, sole: bool = False) -> None:
        self._calls.call("PUT", _place(name), content=content)

    def append(self, query: Mapping[str, object], batch: bytes, headers: Mapping[str, str]) -> None:
        """Send a batch of points (see ``docs/ingest.md``), which the server has durably when this returns.

        Raises:
            AlreadyExists: there is another batch with its sequence.
            BatchMissing: a batch before it is missing, or its own place is long taken.
            StoreError: the server refuses, or does not answer.
        """
        self._calls.call("POST", "/ingest", query, batch, headers)

    def post(self, path: str, body: Mapping[str, object], *, once: str | None = None) -> dict[str, Any]:
        """Send the API a request about something other than files, and return its answer.

        Without ``once``, sending it again must do no harm.

        Args:
            path: after ``/api/v1``, with its parts quoted.
            once: the ``Idempotency-Key``, with which the server does it once however often it is sent.

        Returns:
            The answer; without fields where it has no content (204).

        Raises:
            NotFound, InvalidInput, StoreError: as :meth:`halving.store.http_calls.HttpCalls.call`.
        """
        headers = {"Content-Type": "application/json"}
        if once is not None:
            headers["Idempotency-Key"] = once
        answer = self._calls.call("POST", path, None, json.dumps(body).encode(), headers)
        content: dict[str, Any] = json.loads(answer.body or b"{}")
        return content

    def get(self, path: str, query: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Ask the API about something other than files.

        Args:
            path: after ``/api/v1``, with its parts quoted.

        Raises:
            NotFound, InvalidInput, StoreError: as :meth:`halving.store.http_calls.HttpCalls.call`.
        """
        content: dict[str, Any] = json.loads(self._calls.call("GET", path, query).body)
        return content

    def put_blob(self, content: Content) -> str:
        digest = digest_of(content)
        self._calls.call("PUT", f"/blobs/{digest}", content=content)
        return digest

    def exists(self, name: str) -> bool:
        with contextlib.suppress(NotFound):
            self._calls.call("HEAD", _place(name), self._naming(name))
            return True
        return False

    def names(self, prefix: str) -> list[str]:
        names: list[str] = json.loads(self._calls.call("GET", "/files", {"folder": prefix}).body)["names"]
        return names

    def read(self, name: str) -> bytes:
        return self._calls.call("GET", _place(name), self._naming(name)).body

    @contextlib.contextmanager
    def open_file(self, name: str) -> "Iterator[pa.NativeFile]":
        import pyarrow as pa

        with pa.BufferReader(self.read(name)) as file:
            yield file

    def parts(self, name: str) -> Iterator[bytes]:
        with self._calls.stream(_place(name), self._naming(name)) as answer:
            yield answer.read(CHUNK)
            while part := answer.read(CHUNK):
                yield part

    def of_run(self, run: str) -> "ServerStore":
        """The same server, of which the blobs of another run (``project/run``) can be read."""
        other = copy.copy(self)
        other._run = run
        return other

    def close(self) -> None:
        self._calls.close()

    @property
    def is_paid_by_request(self) -> bool:
        return False

    @property
    def filesystem(self) -> "fs.FileSystem":
        raise StoreError(
            f"{self.root} is a server, which gives a run's own process what it needs: read runs with its "
            "API, or its store"
        )

    def _in_colder_place(self, name: str) -> Store | None:
        return None  # the server looks there

    def _naming(self, name: str) -> dict[str, object] | None:
        """The query of a read: a blob is read through the run whose records name it."""
        if not name.startswith(BLOBS):
            return None
        return {"run": self._run or ""}


def _place(name: str) -> str:
    """The API's path of a file or blob of the store."""
    if name.startswith(BLOBS):
        return f"/blobs/sha256:{name.rpartition('/')[2]}"
    return f"/files/{quote(name)}"

"""Files that a snapshot has by reference: they stay where they are, and a row identifies their content.

The row has the file's ``sha256``, or what S3 reports without sending the file: its ``version`` (in a bucket
that keeps versions) or its ``etag``. Arrow reads an object as it is now and no version of the past
(apache/arrow#41310), so the object's version must still be the one of the row.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from halving.errors import InvalidInput, NotFound, StoreError
from halving.store.faults import store_faults
from halving.store.files import CHUNK
from halving.store.filesystem import open_filesystem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

IDENTITIES = ("sha256", "version", "etag")
"""The columns that identify a file's content; the first of them that a row has counts."""

_HEADERS = {"version": "VersionId", "etag": "ETag"}


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A file as a row refers to it.

    Attributes:
        location: a path, or an address as :func:`halving.store.filesystem.open_filesystem` takes it.
        kind: which of :data:`IDENTITIES` the ``value`` is.
    """

    location: str
    kind: str
    value: str

    def read(self) -> bytes:
        """Read the file's content.

        Raises:
            NotFound: it is gone.
            StoreError: it is not what it was, or cannot be read.
        """
        with self._open() as stream:
            self._check_facts(stream)
            content = bytes(stream.read())
        if self.kind == "sha256":
            self._compare(sha256(content).hexdigest())
        else:
            # The facts above were read before the content, so a write in between would go unnoticed.
            self.check()
        return content

    def check(self) -> None:
        """Check that the file is still the same.

        For its digest it is read; for its version or ETag one small request is made.

        Raises:
            NotFound, StoreError: as :meth:`read`.
        """
        with self._open() as stream:
            self._check_facts(stream)
            if self.kind == "sha256":
                hashed = sha256()
                while chunk := stream.read(CHUNK):
                    hashed.update(chunk)
                self._compare(hashed.hexdigest())

    def _check_facts(self, stream: "pa.NativeFile") -> None:
        """Check what S3 has reported of a file that was opened."""
        if self.kind != "sha256":
            self._compare(object_facts(stream).get(self.kind, "none"))

    def _compare(self, actual: str) -> None:
        """Refuse a file that has another digest, version or ETag than the row."""
        if actual != self.value:
            remedy = "put it back as it was"
            if self.kind == "version":
                remedy = "delete its newer versions"
            raise StoreError(
                f"{self.location} is not any more what the snapshot refers to: its {self.kind} is "
                f"{actual}, not {self.value}; {remedy}, or take a new snapshot"
            )

    @contextmanager
    def _open(self) -> "Iterator[pa.NativeFile]":
        """Open the file to read it from its beginning."""
        with store_faults(f"cannot read {self.location}"):
            filesystem, path = _place(self.location)
            try:
                stream = filesystem.open_input_stream(path, compression=None)
            except FileNotFoundError:
                raise NotFound(f"{self.location}, which the snapshot refers to, is gone") from None
            with stream:
                yield stream


def referenced_file(row: Mapping[str, Any]) -> ReferencedFile:
    """The file that a row refers to.

    Raises:
        InvalidInput: it refers to none.
    """
    kind = next((kind for kind in IDENTITIES if row.get(kind) is not None), None)
    if kind is None or row.get("location") is None:
        raise InvalidInput(
            f"a row with {sorted(row)} is not accepted: give one of a snapshot by reference, with location "
            "and sha256, version or etag"
        )
    return ReferencedFile(str(row["location"]), kind, str(row[kind]))


def object_facts(stream: "pa.NativeFile") -> dict[str, str]:
    """The ``etag`` and ``version`` that S3 reported when an object was opened; without those that it lacks.

    The version ``null`` does not count, because the next write would overwrite it.
    """
    facts = {
        fact: stream.metadata().get(header, b"").decode().strip('"') for fact, header in _HEADERS.items()
    }
    return {fact: value for fact, value in facts.items() if value and (fact, value) != ("version", "null")}


def location_of(base: str, path: str) -> str:
    """The location from which a file can be read again.

    Args:
        base: the folder or address in which the file was found; its options hold for the file, too.
        path: the file's path on the filesystem there.
    """
    if "://" not in base:
        return path
    parts = urlsplit(base, allow_fragments=False)
    location = f"{parts.scheme}://{quote(path)}"
    if parts.query:
        return f"{location}?{parts.query}"
    return location


def _place(location: str) -> "tuple[fs.FileSystem, str]":
    """The filesystem and the path on it that a location means."""
    from pyarrow import fs

    if "://" not in location:
        return fs.LocalFileSystem(), location
    parts = urlsplit(location)
    if parts.scheme != "s3":
        return open_filesystem(location)
    return _bucket(f"s3://{parts.netloc}?{parts.query}", os.getpid()), f"{parts.netloc}{unquote(parts.path)}"


@lru_cache(maxsize=8)
def _bucket(address: str, process: int) -> "fs.FileSystem":
    """A connection for all files of a bucket; a forked process makes its own."""
    return open_filesystem(address)[0]

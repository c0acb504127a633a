"""The store: files that are written once and never changed, and blobs under the same root.

Blobs are named by their SHA-256, so that identical content is stored once.
"""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput, NotFound, StoreError
from halving.store.cold_roots import BLOBS, ColdRoots
from halving.store.create_once import create_once
from halving.store.faults import store_faults
from halving.store.files import Files
from halving.store.local_files import Content, chunks_of, move_new, path_of, temporary_file

if TYPE_CHECKING:
    import pyarrow as pa

REFRESH_SECONDS = 86_400.0
"""The age from which a blob is written again when it is put; retention then counts from there."""


class Store(Files):
    """Create-once files and content-addressed blobs under one root.

    Old blobs may lie in a colder place (:mod:`halving.store.cold_roots`); they are read all the same, slower.
    What is put is always put here.

    Args:
        root: a folder, or an address that ``pyarrow.fs`` knows (``s3://bucket/prefix``; options for an S3
            server of one's own are in :func:`halving.store.filesystem.open_filesystem`). None reads
            ``HALVING_ROOT`` and falls back to ``./.halving``.

    Attributes:
        root: where it is; ``Store(store.root)`` is the same store.
        folder: the same as a local folder, or None.

    Raises:
        InvalidInput: the address holds credentials, or is neither an address nor a folder.
    """

    def __init__(self, root: "str | os.PathLike[str] | None" = None) -> None:
        super().__init__(root)
        self._cold = ColdRoots(Store)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cold": ColdRoots(Store)}

    @property
    def colder_places(self) -> "list[Store]":
        """The places where old blobs of this store may lie beside it.

        Raises:
            StoreError: the store cannot be listed or read.
        """
        return self._cold.all(self)

    def holder(self, name: str) -> "Store":
        """The place that has a file: this store or a colder place; this store where none has the file.

        Raises:
            StoreError: a place cannot be asked.
        """
        if super().exists(name):
            return self
        return self._in_colder_place(name) or self

    def read(self, name: str) -> bytes:
        try:
            return super().read(name)
        except NotFound:
            if (place := self._in_colder_place(name)) is None:
                raise
            return place.read(name)

    def parts(self, name: str) -> Iterator[bytes]:
        began = False
        try:
            for part in super().parts(name):
                began = True
                yield part
        except NotFound:
            if began or (place := self._in_colder_place(name)) is None:
                raise
            yield from place.parts(name)

    @contextlib.contextmanager
    def open_stream(self, name: str) -> "Iterator[pa.NativeFile]":
        with self._open_anywhere(name, super().open_stream, lambda place: place.open_stream(name)) as file:
            yield file

    @contextlib.contextmanager
    def open_file(self, name: str) -> "Iterator[pa.NativeFile]":
        with self._open_anywhere(name, super().open_file, lambda place: place.open_file(name)) as file:
            yield file

    def exists(self, name: str) -> bool:
        return super().exists(name) or self._in_colder_place(name) is not None

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        wanted = list(names)
        sizes = super().sizes(wanted)
        blobs = [name for name in wanted if name not in sizes and name.startswith(BLOBS)]
        if blobs:
            for place in self.colder_places:
                sizes |= place.sizes(blobs)
        return sizes

    def _in_colder_place(self, name: str) -> "Store | None":
        """The colder place that has a file, or None."""
        return self._cold.holding(self, name)

    @contextlib.contextmanager
    def _open_anywhere(
        self,
        name: str,
        here: "Callable[[str], AbstractContextManager[pa.NativeFile]]",
        there: "Callable[[Store], AbstractContextManager[pa.NativeFile]]",
    ) -> "Iterator[pa.NativeFile]":
        """Open a file here, or in the colder place that has it."""
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(here(name))
            except NotFound:
                if (place := self._in_colder_place(name)) is None:
                    raise
                file = stack.enter_context(there(place))
            yield file

    def put_blob(self, content: Content) -> str:
        """Store bytes, memory or a file by content and return its digest, ``sha256:<64 hex>``.

        Retention deletes a blob that no record names, a grace time after it was last put
        (:mod:`halving.maintenance.blob_collection`).

        Raises:
            StoreError: the store refused the write, or the file changed while it was read.
        """
        digest = digest_of(content)
        self.put_hashed_blob(content, digest)
        return digest

    def put_hashed_blob(self, content: Content, digest: str) -> None:
        """Store content whose digest is known.

        A file is not read once more to hash it, but checked against the digest as it is written.

        Raises:
            StoreError: the store refused the write, or the file is not what was hashed.
        """
        name = blob_name(digest)
        if isinstance(content, Path):
            size = content.stat().st_size
            chunks = partial(_check_while_reading, content, digest)
        else:
            size = len(content)
            chunks = partial(chunks_of, content)
        with store_faults(f"cannot write the blob {name} to {self.root}"):
            self._write_unless_fresh(name, size, lambda: self._overwrite(name, chunks()))

    def take_over(self, name: str, file: Path) -> None:
        """Publish a complete local file durably under a name that follows from its content, and delete it.

        In a folder on the same disk it is moved. A published file of the same size is the same; where it is
        old, retention may be about to delete it, so it is written again.

        Raises:
            StoreError: the store refused the write; the file stays.
        """
        folder = self.folder
        with store_faults(f"cannot write {self.address(name)}"):
            if folder is None or self._size_and_time(name) is not None or not move_new(folder / name, file):
                self._write_unless_fresh(
                    name, file.stat().st_size, lambda: self._overwrite(name, chunks_of(file))
                )
            file.unlink(missing_ok=True)

    def _write_unless_fresh(self, name: str, size: int, write: Callable[[], None]) -> None:
        """Write a file whose name follows from its content, unless it is there, whole and not old."""
        written = self._size_and_time(name)
        if written is None:
            write()
        elif not _is_fresh(written, size):  # damaged, or old: retention may be about to delete it
            with contextlib.suppress(FileExistsError):  # another process has just written it again
                create_once(
                    self.filesystem,
                    self.path(name),
                    lambda: _is_fresh(self._size_and_time(name), size),
                    write,
                )

    def get_blob(self, digest: str) -> bytes:
        """The bytes that a digest names, checked against it.

        Raises:
            NotFound: no such blob.
            StoreError: the bytes do not hash to the digest (damaged storage).
        """
        data = self.read(blob_name(digest))
        self._check(digest, digest_of(data))
        return data

    def has_blob(self, digest: str) -> bool:
        """Whether the blob is there, without reading it.

        Raises:
            StoreError: the store cannot be asked.
        """
        return self.exists(blob_name(digest))

    @contextlib.contextmanager
    def blob_file(self, digest: str) -> Iterator[Path]:
        """A local file with a blob's bytes, checked against the digest.

        It is the store's own file, or a temporary copy from an object store. Do not write to it; the copy is
        deleted at the end of the ``with`` block.

        Raises:
            NotFound: no such blob.
            StoreError: it cannot be read, or the bytes do not hash to the digest (damaged storage).
        """
        with contextlib.ExitStack() as stack:
            try:
                path = stack.enter_context(self._own_blob_file(digest))
            except NotFound:  # also where it was moved while it was read
                if (place := self._in_colder_place(blob_name(digest))) is None:
                    raise
                path = stack.enter_context(place.blob_file(digest))
            yield path

    @contextlib.contextmanager
    def _own_blob_file(self, digest: str) -> Iterator[Path]:
        """A local file with the bytes of a blob of this place; see :meth:`blob_file`."""
        name = blob_name(digest)
        if self.folder is not None:
            with self._reading(name):
                actual = digest_of(self.folder / name)
            self._check(digest, actual)
            yield self.folder / name
            return
        with temporary_file() as copy:
            for part in self.parts(name):
                copy.write(part)
            copy.flush()
            self._check(digest, digest_of(path_of(copy)))
            yield path_of(copy)

    def collect(self, name: str, before: float) -> bool:
        """Delete a file unless it was put again after ``before``; return whether it was deleted.

        The file's name follows from its content. ``before`` is in seconds since 1970. The time of the last
        put is the store's; where the store does not tell it, the file stays. It is safe beside a
        :meth:`put_blob` or :meth:`take_over` of the same content: that writes an old file again, and they
        take turns.

        Raises:
            StoreError: the store refused.
        """

        def stays() -> bool:
            written = self._size_and_time(name)
            # 0: the store does not say when
            return written is None or written[1] == 0 or written[1] >= before

        with store_faults(f"cannot delete {self.address(name)}"), contextlib.suppress(FileExistsError):
            create_once(self.filesystem, self.path(name), stays, lambda: self.delete(name))
            return True
        return False

    def _check(self, digest: str, actual: str) -> None:
        """Refuse a blob whose content has another digest."""
        if actual != digest:
            raise StoreError(f"the blob {digest} in {self.root} is damaged: its content hashes to {actual}")


def blob_name(digest: str) -> str:
    """The name of a digest's bytes in the store: ``artifacts/sha256/ab/abcdef…``."""
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256" or not re.fullmatch("[0-9a-f]{64}", value):
        raise InvalidInput(f"digest {digest!r} is not accepted: give sha256:<64 lowercase hex digits>")
    return f"{BLOBS}{value[:2]}/{value}"


def digest_of(content: Content) -> str:
    """The digest of a content: ``sha256:<64 hex>``."""
    digest = hashlib.sha256()
    for chunk in chunks_of(content):
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def _check_while_reading(content: Path, digest: str) -> Iterator[bytes | memoryview]:
    """A file's content, to be read once; it fails at the end unless the content has the digest."""
    actual = hashlib.sha256()
    for chunk in chunks_of(content):
        actual.update(chunk)
        yield chunk
    if f"sha256:{actual.hexdigest()}" != digest:
        raise StoreError(f"{content} changed while it was being stored; store it when it is complete")


def _is_fresh(written: tuple[int, float] | None, size: int) -> bool:
    """Whether a file is there with the right size, and was written so lately that retention lets it stay."""
    return written is not None and written[0] == size and written[1] >= time.time() - REFRESH_SECONDS

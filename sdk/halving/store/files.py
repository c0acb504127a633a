"""Files that are written once and never changed, under one root: local or on an object store.

Local files appear atomically (temporary name, fsync, link or rename). On an object store a file appears when
its upload is complete, and marker files (:mod:`halving.store.create_once`) keep two processes from creating
one name.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from halving.errors import AlreadyExists, NotFound
from halving.store.create_once import create_once
from halving.store.faults import store_faults
from halving.store.filesystem import check_address, open_filesystem, upload
from halving.store.local_files import chunks_of, link_new, sync_folder, write_temporary

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

DEFAULT_ROOT = ".halving"
CHUNK = 1 << 24  # bytes; on an object store each is a request
_FETCHED_AT_ONCE = 4  # parts of a file; one connection is much slower than an object store
# How Arrow words it that an object is gone.
_GONE = re.compile("RESOURCE_NOT_FOUND|NO_SUCH_KEY")
# Arrow says this where an error's text is longer than the bytes that were requested.
_UNREAD_ANSWER = "Failed to flush response stream"


class Files:
    """The files of a store by their names; see :class:`halving.store.store.Store`."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        if root is None:
            root = os.environ.get("HALVING_ROOT") or DEFAULT_ROOT
        address = os.fspath(root)
        self.folder: Path | None = None
        self._opened: tuple[int, fs.FileSystem, str] | None = None  # The first is the process that opened it.
        check_address(address)
        if address.startswith("file://"):
            address = unquote(urlsplit(address).path)
        if "://" in address:
            self.root = address.rstrip("/")
        else:
            self.folder = Path(address).expanduser().absolute()
            self.root = str(self.folder)

    def __repr__(self) -> str:
        return f"Store({self.root!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _remote(self) -> "tuple[fs.FileSystem, str]":
        """The filesystem of an object store, and the root's path on it."""
        if self._opened is None or self._opened[0] != os.getpid():
            # A forked child must not write into its parent's connections.
            self._opened = (os.getpid(), *open_filesystem(self.root))
        return self._opened[1:]

    def close(self) -> None:
        """Release connections to a server, if there are any; it may be used again."""

    @property
    def is_paid_by_request(self) -> bool:
        """Whether each write costs money, so that few large ones are better than many small ones."""
        return self.folder is None

    @property
    def filesystem(self) -> "fs.FileSystem":
        """The Arrow filesystem whose paths :meth:`path` gives."""
        from pyarrow import fs

        if self.folder is not None:
            return fs.LocalFileSystem()
        return self._remote[0]

    def path(self, name: str) -> str:
        """The path of ``name`` on :attr:`filesystem`."""
        if self.folder is not None:
            return str(self.folder / name)
        return f"{self._remote[1]}/{name}"

    def address(self, name: str) -> str:
        """Where ``name`` is, for people: without the options of an S3 address."""
        if self.folder is not None:
            return f"{self.root}/{name}"
        return f"{self.root.partition('?')[0]}/{name}"

    def create(self, name: str, content: bytes | Path, *, sole: bool = False) -> None:
        """Publish bytes, or the content of a local file, as ``name``, durably and once.

        Doing it again with the same bytes is allowed, so that an interrupted writer may simply start over.

        Args:
            content: a file is never held in memory as a whole.
            sole: no other process can want this name at the same time, except with the same bytes. On an
                object store it is then a single PUT, and otherwise a conditional create
                (:mod:`halving.store.create_once`).

        Raises:
            AlreadyExists: the file exists with other content.
            StoreError: the store refused the write (disk full, no permission, connection lost).
        """
        with store_faults(f"cannot write {self.address(name)}"):
            try:
                if self.folder is not None:
                    link_new(self.folder / name, chunks_of(content))
                elif not sole:
                    write = lambda: self._overwrite(name, chunks_of(content))  # noqa: E731
                    create_once(self.filesystem, self.path(name), lambda: self.exists(name), write)
                elif self.exists(name):
                    raise FileExistsError(name)
                else:
                    self._overwrite(name, chunks_of(content))
            except FileExistsError:
                if not self.exists(name):  # a part of the path is a file
                    raise
                if not self._holds(name, content):
                    raise AlreadyExists(
                        f"{self.address(name)} exists with other content; published files are immutable"
                    ) from None

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone already is fine.

        Raises:
            StoreError: the store refused.
        """
        with store_faults(f"cannot delete {self.address(name)}"), contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path(name))

    def delete_below(self, prefix: str) -> None:
        """Delete all files below the folder ``prefix``, hidden ones too, and folders that are empty then.

        Raises:
            StoreError: the store refused.
        """
        if self.folder is None:
            # In one call: where Arrow deletes the files one after the other, it leaves an empty object in the
            # folder's place.
            with (
                store_faults(f"cannot delete {self.address(prefix)}"),
                contextlib.suppress(FileNotFoundError),
            ):
                self.filesystem.delete_dir(self.path(prefix))
            return
        for name, _, _ in self.files(prefix):
            self.delete(name)
        for folder, _, _ in os.walk(self.folder / prefix, topdown=False):
            with contextlib.suppress(OSError):  # somebody has just written into it
                Path(folder).rmdir()

    def clear_abandoned(self, prefix: str, age: float = 86_400.0) -> None:
        """Delete unfinished files in the folder ``prefix`` that killed writers left ``age`` seconds ago."""
        if self.folder is None:
            return  # an object store shows nothing of an upload that was not completed
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder / prefix) as entries:
            for entry in entries:
                if (
                    entry.name.startswith(".")
                    and entry.is_file()
                    and entry.stat().st_mtime < time.time() - age
                ):
                    Path(entry.path).unlink(missing_ok=True)

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """The size in bytes of each of the files that exist."""
        from pyarrow import fs

        wanted = list(names)
        infos = self.filesystem.get_file_info([self.path(name) for name in wanted])
        return {
            name: int(info.size)
            for name, info in zip(wanted, infos, strict=True)
            if info.type == fs.FileType.File
        }

    def replace(self, name: str, content: bytes | Iterable[bytes]) -> None:
        """Put content under a name, atomically, in place of what is there.

        It is for a convenience copy of something immutable (a report's page), and for restoring what was
        damaged. Whoever reads the old file of a folder, or has it mapped, goes on with that.

        Args:
            content: parts are written as they come; where their iterator raises, nothing has changed.

        Raises:
            StoreError: the store refused the write.
        """
        with store_faults(f"cannot write {self.address(name)}"):
            if isinstance(content, bytes):
                content = [content]
            self._overwrite(name, content)

    def read(self, name: str) -> bytes:
        """The bytes of ``name``.

        Raises:
            NotFound: there is no such file.
            StoreError: it cannot be read.
        """
        if self.folder is not None:
            with self._reading(name):
                return (self.folder / name).read_bytes()
        first, *rest = Files.parts(self, name)
        if not rest:
            return first  # without a copy
        return b"".join([first, *rest])

    def parts(self, name: str) -> Iterator[bytes]:
        """The bytes of ``name`` from the beginning to the end, in parts of at most 16 MiB, at least one.

        From an object store some parts are fetched ahead, at the same time.

        Raises:
            NotFound: there is no such file.
            StoreError: it cannot be read.
        """
        with self._reading(name):
            if self.folder is not None:
                with (self.folder / name).open("rb") as local:
                    yield local.read(CHUNK)
                    while part := local.read(CHUNK):
                        yield part
                return
            with self.filesystem.open_input_file(self.path(name)) as file:
                yield from _fetch_ahead(file)

    @contextlib.contextmanager
    def open_stream(self, name: str) -> "Iterator[pa.NativeFile]":
        """Open a file to read from its beginning to its end, in parts.

        Raises:
            NotFound: there is no such file.
            StoreError: it cannot be read, also where that happens in the ``with`` block.
        """
        with (
            self._reading(name),
            self.filesystem.open_input_stream(self.path(name), compression=None) as stream,
        ):
            yield stream

    @contextlib.contextmanager
    def open_file(self, name: str) -> "Iterator[pa.NativeFile]":
        """Open a file to read at any position.

        In a folder it is memory-mapped; from an object store only what is read is fetched.

        Raises:
            NotFound: there is no such file.
            StoreError: it cannot be read, also where that happens in the ``with`` block.
        """
        import pyarrow as pa

        with self._reading(name):
            open_input = pa.memory_map
            if self.folder is None:
                open_input = self.filesystem.open_input_file
            with open_input(self.path(name)) as file:
                yield file

    @contextlib.contextmanager
    def missing_when_gone(self, path: str) -> Iterator[None]:
        """Raise FileNotFoundError also for a file that is deleted between opening and reading.

        For S3, Arrow raises another OSError.

        Args:
            path: of the file that is read, on :attr:`filesystem`.
        """
        try:
            yield
        except OSError as error:
            if _GONE.search(str(error)):
                raise FileNotFoundError(str(error)) from error
            if _UNREAD_ANSWER in str(error):
                # Opening the file again raises FileNotFoundError if that was the answer.
                self.filesystem.open_input_file(path).close()
            raise

    def exists(self, name: str) -> bool:
        """Whether there is such a file.

        Raises:
            StoreError: the store does not say.
        """
        if self.folder is not None:
            return (self.folder / name).exists()
        with store_faults(f"cannot look for {self.address(name)}"), contextlib.suppress(FileNotFoundError):
            # This is one HEAD. get_file_info would list as well, which costs tenfold.
            self.filesystem.open_input_file(self.path(name)).close()
            return True
        return False

    def names(self, prefix: str) -> list[str]:
        """The sorted names of the files directly in the folder ``prefix`` (empty when it does not exist).

        Raises:
            StoreError: it cannot be listed.
        """
        entries: list[str] = []
        with store_faults(f"cannot list {self.address(prefix)}"), contextlib.suppress(FileNotFoundError):
            if self.folder is not None:
                entries = os.listdir(self.folder / prefix)
            else:
                from pyarrow import fs

                selector = fs.FileSelector(self.path(prefix).rstrip("/"), allow_not_found=True)
                entries = [info.base_name for info in self.filesystem.get_file_info(selector)]
        return sorted(entry for entry in entries if not entry.startswith("."))

    def files(self, prefix: str) -> Iterator[tuple[str, int, float]]:
        """Name, size and time of the last write of all files below a folder, hidden ones too.

        The size is in bytes, the time in seconds since 1970, by the store's clock.

        Raises:
            StoreError: it cannot be listed.
        """
        from pyarrow import fs

        top = self.path(prefix).rstrip("/")
        with store_faults(f"cannot list {self.address(prefix)}"):
            infos = self.filesystem.get_file_info(fs.FileSelector(top, recursive=True, allow_not_found=True))
        for info in infos:
            if info.type == fs.FileType.File:
                yield prefix + info.path[len(top) :], int(info.size), (info.mtime_ns or 0) / 1e9

    def _holds(self, name: str, content: bytes | Path) -> bool:
        """Whether a file has this content."""
        if isinstance(content, bytes):
            return self.read(name) == content
        with content.open("rb") as file:
            return all(file.read(len(part)) == part for part in self.parts(name)) and not file.read(1)

    def _overwrite(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Put content under a name, atomically, whether there is a file or not."""
        if self.folder is None:
            upload(self.filesystem, self.path(name), chunks)
            return
        os.replace(write_temporary(self.folder / name, chunks), self.folder / name)
        sync_folder((self.folder / name).parent)

    def _size_and_time(self, name: str) -> tuple[int, float] | None:
        """Size in bytes and time of the last write, or None where there is no such file.

        The time is by the store's clock, 0 if it does not tell. It costs one HEAD.
        """
        with contextlib.suppress(FileNotFoundError):
            if self.folder is not None:
                status = (self.folder / name).stat()
                return status.st_size, status.st_mtime
            with self.filesystem.open_input_file(self.path(name)) as file:
                modified = (file.metadata() or {}).get("Last-Modified", b"").decode()
                written = 0.0
                if modified:
                    written = datetime.fromisoformat(modified).timestamp()
                return int(file.size()), written
        return None

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Raise NotFound for a file that is missing or goes while it is read, and StoreError for faults."""
        with store_faults(f"cannot read {self.address(name)}"):
            try:
                with self.missing_when_gone(self.path(name)):
                    yield
            except FileNotFoundError:
                raise NotFound(f"no {name} in the store {self.root}") from None


def _fetch_ahead(file: "pa.NativeFile") -> Iterator[bytes]:
    """A file's parts in order, each by one request."""
    size = file.size()
    if size <= CHUNK:
        content = b""
        if size:
            content = bytes(file.read_at(size, 0))
        yield content
        return
    from collections import deque
    from concurrent.futures import Future, ThreadPoolExecutor

    with ThreadPoolExecutor(_FETCHED_AT_ONCE, "halving-fetch") as pool:
        requests: deque[Future[bytes]] = deque()
        for start in range(0, size, CHUNK):
            requests.append(pool.submit(file.read_at, min(CHUNK, size - start), start))
            if len(requests) == _FETCHED_AT_ONCE:
                yield requests.popleft().result()
        while requests:
            yield requests.popleft().result()

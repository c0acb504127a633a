"""The store: one root, local or on an object store, of files that are written once and never changed.

Local files appear atomically (temporary name, fsync, link or rename); on an object store one PUT does the same, and claims
(:mod:`halving.store.create_once`) keep two processes from creating one name.
Blobs are named by their SHA-256, so that identical content is stored once.
"""

import contextlib
import hashlib
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from halving.errors import AlreadyExists, InvalidInput, NotFound, StoreError
from halving.store.create_once import create_alone
from halving.store.filesystem import check_address, missing_when_gone, open_filesystem, store_error

if TYPE_CHECKING:
    from pyarrow import fs

DEFAULT_ROOT = ".halving"
_CHUNK = 1 << 20


class Store:
    """Create-once files and content-addressed blobs under one root.

    Args:
        root: a folder, or an address that ``pyarrow.fs`` knows (``s3://bucket/prefix``; options for an S3 of one's own are in
            :func:`halving.store.filesystem.open_filesystem`). None reads ``HALVING_ROOT`` and falls back to ``./.halving``.

    Attributes:
        root: where it is; a store that is made of it is the same store.
        folder: the same as a local folder, or None.

    Raises:
        InvalidInput: the address holds credentials, or is neither an address nor a folder.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        address = os.fspath(root) if root is not None else os.environ.get("HALVING_ROOT") or DEFAULT_ROOT
        self.folder: Path | None = None
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

    @cached_property
    def _remote(self) -> "tuple[fs.FileSystem, str]":
        return open_filesystem(self.root)

    @property
    def filesystem(self) -> "fs.FileSystem":
        """The Arrow filesystem whose paths :meth:`path` gives."""
        from pyarrow import fs

        return fs.LocalFileSystem() if self.folder is not None else self._remote[0]

    def path(self, name: str) -> str:
        """The path of ``name`` on :attr:`filesystem`."""
        return str(self.folder / name) if self.folder is not None else f"{self._remote[1]}/{name}"

    def address(self, name: str) -> str:
        """Where ``name`` is, for people: without the options of an S3 address."""
        return f"{self.root.partition('?')[0] if self.folder is None else self.root}/{name}"

    def create(self, name: str, data: bytes, *, sole: bool = False) -> None:
        """Publish ``data`` as ``name``, durably and once.

        Doing it again with the same bytes is allowed, so that an interrupted writer may simply start over.

        Args:
            sole: nobody else can want this name at the same time, or only with the same bytes: on an object store it is then a single
                PUT, where it otherwise takes a claim, too.

        Raises:
            AlreadyExists: the file exists with other content.
            StoreError: the store refused the write (disk full, no permission, lost).
        """
        self._create(name, data, sole)

    def create_file(self, name: str, source: Path) -> None:
        """Publish the content of a local file as ``name``, as :meth:`create` does with bytes, without holding it in memory.

        Raises:
            AlreadyExists: the file exists with other content.
            StoreError: the store refused the write.
        """
        self._create(name, source, sole=False)

    def delete(self, name: str) -> None:
        """Take a file away; one that is gone already is fine.

        Raises:
            StoreError: the store refused.
        """
        try:
            self.filesystem.delete_file(self.path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(f"cannot delete {self.address(name)}", error) from error

    def clear_abandoned(self, prefix: str, age: float = 86_400.0) -> None:
        """Delete the unfinished files of writers that were killed in the folder ``prefix`` more than ``age`` seconds ago."""
        if self.folder is None:
            return  # an object store shows nothing of a write that was not completed
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.folder / prefix):
                if entry.name.startswith(".") and entry.is_file() and entry.stat().st_mtime < time.time() - age:
                    Path(entry.path).unlink(missing_ok=True)

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """The bytes of each of the files that exist."""
        from pyarrow import fs

        wanted = list(names)
        found = self.filesystem.get_file_info([self.path(name) for name in wanted])
        return {name: int(info.size) for name, info in zip(wanted, found, strict=True) if info.type == fs.FileType.File}

    def _create(self, name: str, content: bytes | Path, sole: bool) -> None:
        try:
            if self.folder is not None:
                _link_new(self.folder / name, content)
            elif not sole:
                create_alone(self.filesystem, self.path(name), lambda: self.exists(name), lambda: self._put(name, content))
            elif self.exists(name):
                raise FileExistsError(name)
            else:
                self._put(name, content)
        except FileExistsError as error:
            if not self.exists(name):  # a folder of the name is a file
                raise store_error(f"cannot write {self.address(name)}", error) from error
            if not self._holds(name, content):
                raise AlreadyExists(f"{self.address(name)} exists with other content; published files are immutable") from None
        except StoreError:
            raise
        except OSError as error:
            raise store_error(f"cannot write {self.address(name)}", error) from error

    def _holds(self, name: str, content: bytes | Path) -> bool:
        if isinstance(content, bytes):
            return self.read(name) == content
        digest = hashlib.sha256()
        with self.filesystem.open_input_stream(self.path(name)) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        return f"sha256:{digest.hexdigest()}" == digest_of(content)

    def replace(self, name: str, data: bytes) -> None:
        """Put a convenience copy of something immutable under a stable name (a report's page), atomically.

        Raises:
            StoreError: the store refused the write.
        """
        if self.folder is not None:
            temporary = _write_temporary(self.folder / name, data)
            os.replace(temporary, self.folder / name)
            return
        try:
            self._put(name, data)
        except OSError as error:
            raise store_error(f"cannot write {self.address(name)}", error) from error

    def read(self, name: str) -> bytes:
        """The bytes of ``name``.

        Raises:
            NotFound: there is no such file.
            StoreError: it cannot be read.
        """
        try:
            if self.folder is not None:
                return (self.folder / name).read_bytes()
            with missing_when_gone(), self.filesystem.open_input_stream(self.path(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            raise NotFound(f"no {name} in the store {self.root}") from None
        except OSError as error:
            raise store_error(f"cannot read {self.address(name)}", error) from error

    def exists(self, name: str) -> bool:
        """Whether there is such a file.

        Raises:
            StoreError: the store does not tell.
        """
        if self.folder is not None:
            return (self.folder / name).exists()
        try:
            self.filesystem.open_input_file(self.path(name)).close()  # one HEAD; get_file_info would list as well, which costs tenfold
        except FileNotFoundError:
            return False
        except OSError as error:
            raise store_error(f"cannot look for {self.address(name)}", error) from error
        return True

    def names(self, prefix: str) -> list[str]:
        """The sorted names of the files directly in the folder ``prefix`` (empty when it does not exist).

        Raises:
            StoreError: it cannot be listed.
        """
        try:
            if self.folder is not None:
                entries = os.listdir(self.folder / prefix)
            else:
                from pyarrow import fs

                selector = fs.FileSelector(self.path(prefix).rstrip("/"), allow_not_found=True)
                entries = [info.base_name for info in self.filesystem.get_file_info(selector)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise store_error(f"cannot list {self.address(prefix)}", error) from error
        return sorted(entry for entry in entries if not entry.startswith("."))

    def files(self, prefix: str) -> Iterator[tuple[str, int, float]]:
        """Name, bytes and time of the last write (seconds since 1970, by the store's clock) of all files below a folder, hidden ones too.

        Raises:
            StoreError: it cannot be listed.
        """
        from pyarrow import fs

        top = self.path(prefix).rstrip("/")
        try:
            found = self.filesystem.get_file_info(fs.FileSelector(top, recursive=True, allow_not_found=True))
        except OSError as error:
            raise store_error(f"cannot list {self.address(prefix)}", error) from error
        for info in found:
            if info.type == fs.FileType.File:
                yield prefix + info.path[len(top) :], int(info.size), (info.mtime_ns or 0) / 1e9

    def put_blob(self, content: bytes | Path) -> str:
        """Store bytes or a file by content and return its digest, ``sha256:<64 hex>``.

        Raises:
            StoreError: the store refused the write, or the file changed while it was read.
        """
        digest = digest_of(content)
        name = blob_name(digest)
        try:
            if self.exists(name):
                return digest
            if self.folder is not None:
                temporary = _write_temporary(self.folder / name, content)
                if isinstance(content, Path) and digest_of(temporary) != digest:
                    temporary.unlink()
                    raise StoreError(f"{content} changed while it was being stored; store it when it is complete")
                os.replace(temporary, self.folder / name)
                _sync_folder((self.folder / name).parent)
            else:
                self._put(name, content)
        except StoreError:
            raise
        except OSError as error:
            raise store_error(f"cannot write the blob {name} to {self.root}", error) from error
        return digest

    def _put(self, name: str, content: bytes | Path) -> None:
        stream, complete = self.filesystem.open_output_stream(self.path(name)), False
        try:
            for chunk in _chunks(content):
                stream.write(chunk)
            complete = True
        finally:
            stream.close()
            if not complete:  # closing publishes what there was of it, and Arrow has no other way out
                self.delete(name)

    def get_blob(self, digest: str) -> bytes:
        """The bytes behind a digest, checked against it.

        Raises:
            NotFound: no such blob.
            StoreError: the bytes do not hash to the digest (damaged storage).
        """
        data = self.read(blob_name(digest))
        if (actual := digest_of(data)) != digest:
            raise StoreError(f"the blob {digest} in {self.root} is damaged: its content hashes to {actual}")
        return data

    def has_blob(self, digest: str) -> bool:
        """Whether the store has the blob; its bytes are not read."""
        return self.exists(blob_name(digest))

    @contextlib.contextmanager
    def blob_file(self, digest: str) -> Iterator[Path]:
        """A local file with a blob's bytes, checked against the digest: the store's own file, or a temporary copy from an object store.

        Raises:
            NotFound: no such blob.
            StoreError: it cannot be read, or the bytes do not hash to the digest (damaged storage).
        """
        name = blob_name(digest)
        with tempfile.NamedTemporaryFile(prefix="halving-blob-") as copy:
            path = self.folder / name if self.folder is not None else Path(copy.name)
            try:
                if self.folder is None:
                    with missing_when_gone(), self.filesystem.open_input_stream(self.path(name)) as stream:
                        while chunk := stream.read(_CHUNK):
                            copy.write(chunk)
                    copy.flush()
                actual = digest_of(path)
            except FileNotFoundError:
                raise NotFound(f"no {name} in the store {self.root}") from None
            except OSError as error:
                raise store_error(f"cannot read {self.address(name)}", error) from error
            if actual != digest:
                raise StoreError(f"the blob {digest} in {self.root} is damaged: its content hashes to {actual}")
            yield path


def blob_name(digest: str) -> str:
    """Where a digest's bytes lie in the store: ``artifacts/sha256/ab/abcdef…``."""
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256" or not re.fullmatch("[0-9a-f]{64}", value):
        raise InvalidInput(f"digest {digest!r} is not accepted: give sha256:<64 lowercase hex digits>")
    return f"artifacts/sha256/{value[:2]}/{value}"


def digest_of(content: bytes | Path) -> str:
    """The name of a content: ``sha256:<64 hex>``."""
    digest = hashlib.sha256()
    for chunk in _chunks(content):
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def _chunks(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _write_temporary(target: Path, content: bytes | Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        with temporary.open("wb") as file:
            for chunk in _chunks(content):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _link_new(target: Path, content: bytes | Path) -> None:
    """Publish atomically and fail with FileExistsError if the name is taken: a hard link never overwrites."""
    if target.exists():
        raise FileExistsError(str(target))
    temporary = _write_temporary(target, content)
    try:
        os.link(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """A new name survives the machine only when its folder was synced too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

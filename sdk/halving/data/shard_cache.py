"""A cache of an object store's shards on this machine's disk, shared by all processes.

Shards are fetched whole, and only once; the least recently used are deleted to make room for new ones. A
shard is fetched into ``HASH.part`` under a lock, hashed as it is written, synced, and renamed to ``HASH``.
Whoever has one mapped holds a shared lock on it, so that it stays. Its time of modification is set to a
number made of its hash. A file that something else has changed since then is hashed again before it is used.
"""

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halving.data.shards import Shard, damage_of
from halving.errors import InvalidInput, StoreError, StoreUnavailable
from halving.machine.locks import lockable, try_lock
from halving.store.retry import warn_once
from halving.store.store import Store

if TYPE_CHECKING:
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]

FOLDER_VARIABLE = "HALVING_CACHE"
BYTES_VARIABLE = "HALVING_CACHE_BYTES"
_PAUSE = 0.02  # seconds between looks at a shard that another process is fetching
_TRIES = 5  # another process may delete a shard before it is opened


def cache_folder() -> Path:
    """The folder for what can be fetched or computed again: ``$HALVING_CACHE``, else ``~/.cache/halving``.

    Raises:
        InvalidInput: the variable is missing, and the user has no home.
    """
    try:
        return Path(os.environ.get(FOLDER_VARIABLE) or "~/.cache/halving").expanduser().absolute()
    except RuntimeError as error:
        raise InvalidInput(
            f"{FOLDER_VARIABLE} is missing: give a folder, for ~ is none here: {error}"
        ) from None


class NoRoom(Exception):
    """The disk does not take a shard now."""


class ShardCache:
    """The cache in the folder ``$HALVING_CACHE/shards`` (default ``~/.cache/halving/shards``).

    Args:
        limit: bytes of all files in the folder (default: ``HALVING_CACHE_BYTES``, else half of what the disk
            has free beside them).
        fetching: runs each attempt at a fetch. It is a function that calls its argument, and calls it again
            while the store is unavailable.
        gave_up: whether the caller is no longer waiting.

    Raises:
        InvalidInput: ``HALVING_CACHE_BYTES`` is not a number of bytes, or there is no folder for the cache.
    """

    def __init__(
        self,
        store: Store,
        fetching: "Callable[[Callable[[], None]], None]" = lambda fetch: fetch(),
        folder: Path | None = None,
        limit: int | None = None,
        gave_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._fetching = fetching
        self._gave_up = gave_up
        self._folder = folder or cache_folder() / "shards"
        if limit is None:
            limit = _limit_of_environment()
        self._limit = limit

    @property
    def limit(self) -> int:
        """The bytes that the cache may have."""
        if self._limit is not None:
            return self._limit
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            used = sum(facts.st_size for _, facts in self._files())
            return (shutil.disk_usage(self._folder).free + used) // 2
        return 0

    def open(self, shard: Shard) -> "Bytes":
        """Map a shard's bytes, after fetching it if it is not in the cache.

        The file stays at least as long as the array. If the disk does not take the shard, it is held in
        memory instead, with one warning.

        Raises:
            NotFound: it is missing from the store.
            StoreError: it is damaged there.
            StoreUnavailable: the store was not to be reached for as long as ``fetching`` tries.
        """
        try:
            for _ in range(_TRIES):
                content = self.open_copy(shard)
                if content is not None:
                    return content
                self.fetch(shard)
            raise NoRoom("what was written to it is not what is read from it, or is deleted at once")
        except NoRoom as error:
            warn_once(
                f"{__name__} {self._folder}",
                f"the cache {self._folder} does not take the shards of {self._store.root}, so they are "
                f"held in memory: {error}; give "
                f"another folder by {FOLDER_VARIABLE}, or more bytes by {BYTES_VARIABLE}",
            )
            return self._in_memory(shard)

    def open_copy(self, shard: Shard) -> "Bytes | None":
        """Map a shard that is in the cache and whose bytes are right; None if there is no such copy."""
        with contextlib.suppress(OSError):  # there is none, or the disk cannot read or lock it
            descriptor = os.open(self._folder / shard.sha256, os.O_RDONLY)
            try:
                while not try_lock(descriptor, fcntl.LOCK_SH):  # it is being published or deleted right now
                    time.sleep(_PAUSE / 10)
                facts = os.fstat(descriptor)
                if not facts.st_nlink:
                    return None
                if facts.st_size == shard.bytes and (
                    facts.st_mtime_ns == _mark(shard) or _hash(descriptor) == shard.sha256
                ):
                    with contextlib.suppress(OSError):  # the file is another user's, in a shared folder
                        os.utime(descriptor, ns=(time.time_ns(), _mark(shard)))
                    # The map has a duplicate of the descriptor, with which the lock lasts as long as the map.
                    return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), np.uint8)
            finally:
                os.close(descriptor)
            self.drop(shard)
        return None

    def drop(self, shard: Shard) -> None:
        """Delete a damaged copy."""
        with contextlib.suppress(OSError):
            (self._folder / shard.sha256).unlink()

    def fetch(self, shard: Shard) -> None:
        """Bring a shard into the cache, or wait until another process or thread has done so.

        A shard that is already there counts as just used, so that it will not be deleted to make room.

        Raises:
            NoRoom: the disk refuses it, or all that is here is in use.
            NotFound, StoreError: as :meth:`open`.
        """
        path = self._folder / shard.sha256
        part = self._folder / f"{shard.sha256}.part"
        while not _touch(path):
            with _refusals(), _lock_part(part, self._folder) as descriptor:
                if descriptor is not None:
                    if not path.exists():
                        self._fetching(lambda: self._fetch(shard, part, path, descriptor))
                    return
            if self._gave_up():
                raise StoreUnavailable(f"{shard.name} is no longer waited for")
            time.sleep(_PAUSE)

    def _fetch(self, shard: Shard, part: Path, path: Path, descriptor: int) -> None:
        """Write a shard into an unfinished file, and publish it."""
        try:
            with _refusals():
                self._reserve(shard.bytes, descriptor)
            written = 0
            hashed = hashlib.sha256()
            for chunk in self._chunks(shard):
                hashed.update(chunk)
                left = memoryview(chunk)
                while left:
                    with _refusals():
                        count = os.pwrite(descriptor, left, written)
                    left = left[count:]
                    written += count
            _check(self._store, shard, written, hashed.hexdigest())
            with _refusals():
                os.fsync(descriptor)
                os.utime(descriptor, ns=(time.time_ns(), _mark(shard)))
                part.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            raise

    def _in_memory(self, shard: Shard) -> "Bytes":
        """Read a shard's bytes without the disk."""
        data = np.empty(shard.bytes, np.uint8)

        def fetch() -> None:
            read = 0
            hashed = hashlib.sha256()
            for chunk in self._chunks(shard):
                hashed.update(chunk)
                data[read : read + len(chunk)] = np.frombuffer(chunk, np.uint8)
                read += len(chunk)
            _check(self._store, shard, read, hashed.hexdigest())

        self._fetching(fetch)
        return data

    def _chunks(self, shard: Shard) -> Iterator[bytes]:
        """The shard's bytes in the store; it fails as soon as there are too many."""
        read = 0
        for chunk in self._store.parts(shard.name):
            read += len(chunk)
            if read > shard.bytes:
                raise StoreError(f"{damage_of(self._store, shard)}: it has more than {shard.bytes:,} bytes")
            yield chunk

    def _reserve(self, size: int, descriptor: int) -> None:
        """Make room on the disk and reserve it for an unfinished file."""
        with _lock_file(self._folder / ".lock"):
            files = [
                (path, facts) for path, facts in self._files() if facts.st_ino != os.fstat(descriptor).st_ino
            ]
            total = sum(facts.st_size for _, facts in files)
            limit = self._limit
            if limit is None:
                limit = (shutil.disk_usage(self._folder).free + total) // 2
            oldest = iter(sorted(files, key=lambda file: file[1].st_atime_ns))
            while total + size > limit or not _reserve_blocks(descriptor, size):
                path, facts = next(oldest, (None, None))
                if path is None or facts is None:
                    raise NoRoom(_why_not(size, total, limit))
                if _delete(path):
                    total -= facts.st_size

    def _files(self) -> "Iterator[tuple[Path, os.stat_result]]":
        """The files of the cache, finished or not."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process has just deleted or renamed it
                    if not entry.name.startswith("."):
                        yield Path(entry.path), entry.stat()


def _limit_of_environment() -> int | None:
    """The bytes that ``HALVING_CACHE_BYTES`` allows, if it is set."""
    value = os.environ.get(BYTES_VARIABLE)
    if not value:
        return None
    if not value.isascii() or not value.isdigit():
        raise InvalidInput(
            f"{BYTES_VARIABLE} = {value!r} is not accepted: give a number of bytes, such as 100000000000"
        )
    return int(value)


def _check(store: Store, shard: Shard, size: int, sha256: str) -> None:
    """Refuse what was fetched if it has another size or digest than the shard."""
    if size != shard.bytes:
        raise StoreError(f"{damage_of(store, shard)}: it has {size:,} bytes, not {shard.bytes:,}")
    if sha256 != shard.sha256:
        raise StoreError(f"{damage_of(store, shard)}: its content hashes to {sha256}")


def _touch(path: Path) -> bool:
    """Mark a file as the last one used; False if it is not there."""
    try:
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    except FileNotFoundError:
        return False
    except OSError:  # the file is another user's, in a shared folder
        return path.exists()
    return True


def _mark(shard: Shard) -> int:
    """The time of modification of an unchanged copy, in ns: some second of the 1970s, made of its hash."""
    return int(shard.sha256[:7], 16) * 1_000_000_000


def _hash(descriptor: int) -> str:
    """The SHA-256 of an open file's content."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reserve_blocks(descriptor: int, size: int) -> bool:
    """Reserve a file's blocks, so that a full disk is known before a fetch; False if it is full."""
    try:
        os.ftruncate(descriptor, 0)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.ftruncate(descriptor, 0)
        return False
    return True


def _why_not(size: int, total: int, limit: int) -> str:
    """Say why there is no room: because of the disk, or because of the limit."""
    if total + size <= limit:
        return f"{os.strerror(errno.ENOSPC)} for {size:,} bytes"
    return (
        f"a shard of {size:,} bytes beside {total:,} bytes in use is more than the {limit:,} that are allowed"
    )


def _delete(path: Path) -> bool:
    """Delete a file that nobody uses or writes; False if somebody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return True
    try:
        if not try_lock(descriptor, fcntl.LOCK_EX):
            return False
        path.unlink(missing_ok=True)
        return True
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


@contextlib.contextmanager
def _lock_part(part: Path, folder: Path) -> Iterator[int | None]:
    """The descriptor of an unfinished file that only this thread may write; None while another one does."""
    folder.mkdir(parents=True, exist_ok=True)
    with lockable(part) as descriptor:
        if not try_lock(descriptor, fcntl.LOCK_EX) or not _is_at(descriptor, part):
            # It is in use, or has just been published or deleted.
            yield None
            return
        try:
            yield descriptor
        finally:
            if _is_at(descriptor, part):  # not published
                part.unlink(missing_ok=True)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a path still names the file that is open."""
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    """Wait until no other thread or process has this lock."""
    with lockable(path) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Raise the disk's refusals as :class:`NoRoom`."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise NoRoom(str(error)) from error

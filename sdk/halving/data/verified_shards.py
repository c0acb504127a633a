"""Shards of a store in a folder, each hashed once on this machine before anything of it is used.

One that is damaged is fetched again. ``$HALVING_CACHE/verified/HASH`` remembers what was hashed, with a line
for each file: its device, inode, bytes, and when its content and the file itself last changed. Nobody can set
the last of these (``ctime``). So a file that was written since then is hashed again, even if its time of
modification was put back. Damage on the disk without a write is found by ``halving datasets verify``.
"""

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halving.data.shard_cache import FOLDER_VARIABLE, cache_folder
from halving.data.shard_copies import Fetching, fetch_again
from halving.data.shards import Shard, checked_shard, damage_of, missing_message, select_columns
from halving.errors import InvalidInput, NotFound, StoreError, StoreUnavailable
from halving.machine.locks import Turns, lockable, try_lock
from halving.store.faults import store_faults
from halving.store.retry import warn_once
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_CHUNK = 1 << 20  # bytes that are hashed at once: they stay in the processor's cache
_PAUSE = 0.01  # seconds between looks at a shard that another process is hashing
# A file that is written again within one tick of its disk's clock looks the same. FAT ticks this slowly.
_SETTLED_SECONDS = 2.0
_RECORD_BYTES = 4096  # limit of the lines about files of one content; then the record begins anew
_REMEMBERED: dict[str, set[str]] = {}  # the files of each content that this process knows to be whole
_TURNS = Turns()

os.register_at_fork(after_in_child=_TURNS.forget)


class VerifiedShards:
    """A store's shards as this machine has verified them.

    Args:
        store: a store in a folder.
        fetching: runs each fetch from the remote.
        gave_up: whether the caller is no longer waiting.
    """

    def __init__(
        self,
        store: Store,
        fetching: Fetching = lambda store, fetch: fetch(),
        gave_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._fetching = fetching
        self._gave_up = gave_up
        self._folder: Path | None = None
        with contextlib.suppress(InvalidInput):  # without a folder only this process remembers what it hashed
            self._folder = cache_folder() / "verified"

    def open(self, shard: Shard) -> "Bytes":
        """Map a shard's bytes.

        A shard that this machine has not verified is hashed. If it is damaged or missing, it is fetched
        again.

        Raises:
            NotFound: it is missing, and the remote does not help.
            StoreError: it is damaged, or cannot be read, and the remote does not help.
        """
        with self._open_verified(shard) as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)

    def fetch(self, shard: Shard) -> None:
        """Verify a shard, and read its content into the kernel's page cache, before it is needed.

        Raises:
            NotFound, StoreError: as :meth:`open`.
        """
        with self._open_verified(shard) as file:
            _read_soon(file)

    def is_verified(self, shard: Shard) -> bool:
        """Whether a shard can be used at once."""
        file = self._open_if_remembered(shard)
        if file is not None:
            file.close()
        return file is not None

    def drop(self, shard: Shard) -> None:
        """Forget that a shard was verified, because it turned out to be different."""
        _REMEMBERED.pop(shard.sha256, None)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.truncate(self._folder / shard.sha256, 0)

    def _open_verified(self, shard: Shard) -> FileIO:
        """Open a shard's file after verifying it; its position may be anywhere."""
        file = self._open_if_remembered(shard)
        if file is not None:
            return file
        with self._lock_record(shard) as record:
            file = self._open_if_remembered(shard)
            if file is not None:  # verified meanwhile by the thread or process that this one waited for
                return file
            try:
                return self._open_and_hash(shard, record)
            except StoreUnavailable:  # nobody waits any more
                raise
            except (NotFound, StoreError) as fault:
                fetch_again(self._store, shard, fault, self._fetching)
            return self._open_and_hash(shard, record)

    def _open_if_remembered(self, shard: Shard) -> FileIO | None:
        """Open a shard's file if this machine knows it to be whole."""
        try:
            file = FileIO(self._store.path(shard.name))
        except OSError:  # the error is reported when it is hashed
            return None
        identity = _identity(os.fstat(file.fileno()))
        if identity in _REMEMBERED.get(shard.sha256, set()):
            return file
        if self._folder is not None:
            with contextlib.suppress(OSError):
                if identity.encode() in (self._folder / shard.sha256).read_bytes().split(b"\n"):
                    _REMEMBERED.setdefault(shard.sha256, set()).add(identity)
                    return file
        file.close()
        return None

    def _open_and_hash(self, shard: Shard, record: int | None) -> FileIO:
        """Open a shard's file, hash it, and remember that it is whole.

        Args:
            record: the descriptor of the file that remembers it, if there is one.
        """
        with store_faults(f"cannot read the shard {shard.name} of the store {self._store.root}"):
            try:
                file = FileIO(self._store.path(shard.name))
            except FileNotFoundError:
                raise NotFound(missing_message(self._store, shard)) from None
        try:
            facts = os.fstat(file.fileno())
            began = time.time()
            if facts.st_size != shard.bytes:
                raise StoreError(
                    f"{damage_of(self._store, shard)}: it has {facts.st_size:,} bytes, not {shard.bytes:,}"
                )
            actual = self._hash(file, shard)
            if actual != shard.sha256:
                raise StoreError(f"{damage_of(self._store, shard)}: its content hashes to {actual}")
            if facts.st_ctime < began - _SETTLED_SECONDS:
                self._remember(shard, _identity(facts), record)
        except BaseException:
            file.close()
            raise
        return file

    def _hash(self, file: FileIO, shard: Shard) -> str:
        """The SHA-256 of a file's content.

        The file is read, not mapped, because a file that is truncated meanwhile must not end the process.
        """
        digest = sha256()
        buffer = memoryview(bytearray(_CHUNK))
        _read_soon(file)
        try:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
                self._check_wanted(shard)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"{damage_of(self._store, shard)}: {error}") from error
        return digest.hexdigest()

    def _remember(self, shard: Shard, identity: str, record: int | None) -> None:
        """Note that a file is whole, in this process and on this machine."""
        _REMEMBERED.setdefault(shard.sha256, set()).add(identity)
        if record is None:
            return
        try:
            size = os.fstat(record).st_size
            if size > _RECORD_BYTES:
                os.ftruncate(record, 0)
                size = 0
            # The line begins with a newline, because a full disk may have cut off the one before it.
            os.pwrite(record, f"\n{identity}\n".encode(), size)
        except OSError as error:
            self._warn(error)

    @contextlib.contextmanager
    def _lock_record(self, shard: Shard) -> Iterator[int | None]:
        """Wait until no other thread or process verifies a shard, and give the descriptor of its record.

        None stands for a record that cannot be written.
        """
        with _TURNS.take(shard.sha256, lambda: self._check_wanted(shard)), contextlib.ExitStack() as stack:
            record = None
            try:
                if self._folder is None:
                    raise OSError("the user has no home")
                self._folder.mkdir(parents=True, exist_ok=True)
                record = stack.enter_context(lockable(self._folder / shard.sha256))
                while not try_lock(record, fcntl.LOCK_EX):
                    self._check_wanted(shard)
                    time.sleep(_PAUSE)
            except StoreError:
                raise
            except OSError as error:
                self._warn(error)
            yield record

    def _check_wanted(self, shard: Shard) -> None:
        """Raise StoreUnavailable if nobody waits for the shard any more."""
        if self._gave_up():
            raise StoreUnavailable(f"{shard.name} is no longer waited for")

    def _warn(self, error: OSError) -> None:
        """Warn once that this machine cannot remember what was hashed."""
        warn_once(
            f"{__name__} {self._folder}",
            f"each process hashes the shards of {self._store.root} again, for the cache cannot remember "
            f"which are whole: {error}; "
            f"give a folder that can be written by {FOLDER_VARIABLE}",
        )


def whole_shard(
    store: Store,
    shard: Shard,
    columns: Sequence[str] | None = None,
    fetching: Fetching = lambda store, fetch: fetch(),
) -> "pa.Table":
    """Read all rows of a shard, after checking its bytes.

    In a folder a shard that is damaged or missing is fetched again.

    Raises:
        NotFound: it is gone, or has no such column.
        StoreError: it is damaged.
    """
    return select_columns(_whole_shard(store, shard, fetching), columns)


def _whole_shard(store: Store, shard: Shard, fetching: Fetching) -> "pa.Table":
    """Read all columns of :func:`whole_shard`."""
    try:
        return checked_shard(store, shard)
    except StoreUnavailable:
        raise
    except (NotFound, StoreError):
        if store.folder is None:
            raise
    shards = VerifiedShards(store, fetching)
    shards.drop(shard)
    shards.fetch(shard)
    return checked_shard(store, shard)


def _identity(facts: os.stat_result) -> str:
    """A line that is different for a file that was written, moved or linked since."""
    return f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


def _read_soon(file: FileIO) -> None:
    """Tell the kernel to read a file into its page cache, from its beginning to its end."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

"""Shards of a store in a folder: each is hashed once on this machine before anything of it is used, and
fetched again if it is damaged.

What was hashed is remembered in ``$HALVING_CACHE/verified/HASH``, a line for each file: its device, inode,
bytes, and when its content and the file itself last changed. The last (``ctime``) nobody can set, so a file
that was written since is hashed again, also where its time of modification was put back. What rots on the
disk without a write is found by ``halving datasets verify``.
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
# a file may be written again within one tick of its disk's clock, and look the same: that of FAT ticks so
# slowly
_SETTLED_SECONDS = 2.0
_RECORD_BYTES = 4096  # of lines about files of one content; then they begin anew
_REMEMBERED: dict[str, set[str]] = {}  # the files of each content that this process knows to be whole
_TURNS = Turns()

os.register_at_fork(after_in_child=_TURNS.forget)


class VerifiedShards:
    """A store's shards as this machine has verified them.

    Args:
        store: one in a folder.
        fetching: what a fetch from the remote goes through.
        gave_up: whether whoever asked is no longer waiting.
    """

    def __init__(
        self,
        store: Store,
        fetching: Fetching = lambda there, fetch: fetch(),
        gave_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._fetching = fetching
        self._gave_up = gave_up
        self._folder: Path | None = None
        with contextlib.suppress(InvalidInput):  # nobody remembers then what this process hashes
            self._folder = cache_folder() / "verified"

    def open(self, shard: Shard) -> "Bytes":
        """A shard's bytes, mapped.

        One that this machine has not verified is hashed; if it is damaged or missing, it is fetched again.

        Raises:
            NotFound: it is missing, and the remote does not help.
            StoreError: it is damaged, or cannot be read, and the remote does not help.
        """
        with self._open_verified(shard) as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)

    def fetch(self, shard: Shard) -> None:
        """Have a shard verified, and its content in the kernel's page cache, before it is needed.

        Raises:
            NotFound, StoreError: as :meth:`open`.
        """
        with self._open_verified(shard) as file:
            _read_soon(file)

    def is_verified(self, shard: Shard) -> bool:
        """Whether it can be used at once."""
        file = self._open_if_remembered(shard)
        if file is not None:
            file.close()
        return file is not None

    def drop(self, shard: Shard) -> None:
        """Forget what is remembered of a shard: it is not what it was."""
        _REMEMBERED.pop(shard.sha256, None)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.truncate(self._folder / shard.sha256, 0)

    def _open_verified(self, shard: Shard) -> FileIO:
        """Its file, open at some place of it."""
        file = self._open_if_remembered(shard)
        if file is not None:
            return file
        with self._lock_record(shard) as record:
            file = self._open_if_remembered(shard)
            if file is not None:  # by whom this one has waited for
                return file
            try:
                return self._open_and_hash(shard, record)
            except StoreUnavailable:  # nobody waits any more
                raise
            except (NotFound, StoreError) as fault:
                fetch_again(self._store, shard, fault, self._fetching)
            return self._open_and_hash(shard, record)

    def _open_if_remembered(self, shard: Shard) -> FileIO | None:
        try:
            file = FileIO(self._store.path(shard.name))
        except OSError:  # whoever hashes it says what is wrong
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
        """The SHA-256 of a file's content: read, not mapped, for one that is cut off meanwhile must not end
        the process.
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
        _REMEMBERED.setdefault(shard.sha256, set()).add(identity)
        if record is None:
            return
        try:
            size = os.fstat(record).st_size
            if size > _RECORD_BYTES:
                os.ftruncate(record, 0)
                size = 0
            # a line of its own also behind one that a full disk has cut off
            os.pwrite(record, f"\n{identity}\n".encode(), size)
        except OSError as error:
            self._warn(error)

    @contextlib.contextmanager
    def _lock_record(self, shard: Shard) -> Iterator[int | None]:
        """Wait until no other thread, and no other process, verifies a shard.

        The descriptor of its record; None where there is none.
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
        if self._gave_up():
            raise StoreUnavailable(f"{shard.name} is no longer waited for")

    def _warn(self, error: OSError) -> None:
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
    fetching: Fetching = lambda there, fetch: fetch(),
) -> "pa.Table":
    """All rows of a shard, as :func:`halving.data.shards.checked_shard` gives them; in a folder one that is
    damaged or missing is fetched again.

    Raises:
        NotFound: it is gone, or has no such column.
        StoreError: it is damaged.
    """
    return select_columns(_whole_shard(store, shard, fetching), columns)


def _whole_shard(store: Store, shard: Shard, fetching: Fetching) -> "pa.Table":
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
    return f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


def _read_soon(file: FileIO) -> None:
    """Have the kernel read a file into its page cache, from its beginning to its end."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

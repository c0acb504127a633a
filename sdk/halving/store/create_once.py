"""Creating a file once on an object store that Arrow writes to without conditions.

Whoever wants the name puts a claim beside it, a hidden file, and then lists the folder. Listings are strongly consistent (S3's since
2020, Google's and Azure's too), so of two claimants at least the later one sees the other's claim. Only who saw none, and the name still
free behind that, may write; who saw one takes his own back and tries again after a random while. It is the doorway of Lamport's
bakery (CACM 1974) without the queue. A claimant that died leaves a claim, which counts for :data:`STALE_SECONDS`.
"""

import contextlib
import os
import random
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import fs

HOLD_SECONDS = 20.0  # from putting a claim to beginning to write, at most; a write ends within half a minute (halving.store.filesystem)
STALE_SECONDS = 120.0  # by the store's clock, after which the claim of somebody who died is nobody's
_GIVE_UP_SECONDS = 2 * STALE_SECONDS
_PROCESS = secrets.token_hex(6)
_PREFIX = ".claim-"


def create_alone(filesystem: "fs.FileSystem", path: str, exists: Callable[[], bool], write: Callable[[], None]) -> None:
    """Call ``write`` if nobody else can be writing ``path``.

    Raises:
        FileExistsError: somebody has it.
        OSError: the store's; or others wanted it for minutes and none of them got it.
    """
    folder, _, name = path.rpartition("/")
    # A thread that tries again, not knowing what became of its first write, does not stand in its own way.
    own = f"{_PREFIX}{name}-{_PROCESS}.{os.getpid()}.{threading.get_ident()}"
    deadline, pause = time.monotonic() + _GIVE_UP_SECONDS, 0.05
    while time.monotonic() < deadline:
        if exists():
            raise FileExistsError(path)
        if _is_alone(filesystem, folder, own, name) and not exists():
            write()  # should it raise, the claim stays: the store may still be about to take what was sent
            _withdraw(filesystem, f"{folder}/{own}")
            return
        _withdraw(filesystem, f"{folder}/{own}")
        time.sleep(random.uniform(0.5, 1.5) * pause)
        pause = min(2.0, pause * 2)
    raise OSError(f"others have claimed {path} for {_GIVE_UP_SECONDS:.0f} s, and none has written it")


def _is_alone(filesystem: "fs.FileSystem", folder: str, own: str, name: str) -> bool:
    """Claim a name; whether nobody else has."""
    from pyarrow import fs

    began = time.monotonic()
    with filesystem.open_output_stream(f"{folder}/{own}") as stream:
        stream.write(b"claim")
    claims = {
        info.base_name: info.mtime_ns or 0
        for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        if info.base_name.startswith(f"{_PREFIX}{name}-")
    }
    if own not in claims or time.monotonic() - began > HOLD_SECONDS:
        return False  # too slow: it may count as stale for others soon
    since = claims.pop(own) - STALE_SECONDS * 1e9
    return all(claimed < since for claimed in claims.values())


def _withdraw(filesystem: "fs.FileSystem", path: str) -> None:
    with contextlib.suppress(OSError):  # then it goes stale
        filesystem.delete_file(path)

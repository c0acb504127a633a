"""Where journals are on this machine, and whose they are.

``HALVING_JOURNAL``, else ``journal/`` in the store when that is a folder on a disk of this machine, else
``~/.local/state/halving/journal``: a network disk that hangs would hang whoever writes to mapped memory on it. Where that
cannot be written, the folder for temporary files.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from halving.journal.format import MAIN, is_written, log_segment_files
from halving.store.store import Store

_NETWORK = ("nfs", "cifs", "smb", "fuse", "lustre", "ceph", "gluster", "beegfs", "gpfs", "9p", "afs", "ocfs", "wekafs", "virtiofs")
_UNFINISHED = re.compile(r"\.(?:new-.*|done-(\d+)-.*)")  # folders on their way to or from their name
_UNFINISHED_SECONDS = 60.0  # after which a folder that nobody has locked was left by a killed process
_held: dict[Path, int] = {}  # attempts that this process writes, with the descriptor that holds their lock
# One thread at a time opens a lock's file: when another one closes it, the lock that this process has by it is gone.
_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """No other thread of this process takes a lock meanwhile, or looks who has it."""
    with _one_at_a_time:
        yield


class Whose(NamedTuple):
    """Whose points a journal folder holds."""

    project: str
    run: str
    attempt: int


def journal_home(store: Store) -> Path:
    """The folder of all journals of a store on this machine; it need not exist."""
    named = os.environ.get("HALVING_JOURNAL")
    if not named and store.folder is not None and not _on_network(store.folder):
        return store.folder / "journal"
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    home = Path(named or f"{state}/halving/journal").expanduser().absolute()
    return home / _digest(store)  # journals of several stores may lie here


def attempt_folder(store: Store, project: str, run: str, attempt: int) -> Path:
    return journal_home(store) / f"project={project}" / f"run={run}" / f"{attempt:04d}"


def attempt_folders(store: Store, project: str | None = None, run: str | None = None) -> list[Path]:
    """The journals that are here: of a store, a project or a run."""
    pattern = f"project={project or '*'}/run={run or '*'}/[0-9]*"
    return sorted(folder for home in (journal_home(store), _fallback(store)) for folder in home.glob(pattern))


def clear_unfinished(store: Store, project: str | None = None, run: str | None = None) -> None:
    """Mend what processes left that were killed while they made an attempt's folder, or took it away.

    A new one goes. One that was being taken away gets its name back, for the recovery: a forked child may have logged into it.
    """
    pattern = f"project={project or '*'}/run={run or '*'}/.*"
    for folder in [folder for home in (journal_home(store), _fallback(store)) for folder in home.glob(pattern)]:
        found = _UNFINISHED.fullmatch(folder.name)
        with contextlib.suppress(OSError):  # another process mends it, or the disk is away
            if found is None or time.time() - folder.stat().st_ctime < _UNFINISHED_SECONDS or not claim(folder):
                continue
            try:
                if found[1] is None:
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    folder.rename(folder.with_name(found[1]))
            finally:
                os.close(_held.pop(folder))


def no_folder(store: Store, project: str, run: str) -> Path:
    """A path where nothing is and nothing will be, for an attempt that the disk refused a folder."""
    return journal_home(store) / f"project={project}" / f"run={run}" / f".none-{secrets.token_hex(8)}"


def whose(folder: Path) -> Whose:
    """What an attempt's folder says by its name."""
    project, run = (part.partition("=")[2] for part in folder.parts[-3:-1])
    return Whose(project, run, int(folder.name))


def create_folder(store: Store, project: str, run: str, attempt: int) -> Path:
    """Make an attempt's folder and hold its lock until :func:`release`.

    Raises:
        OSError: this machine's disk refuses it.
    """
    folder = attempt_folder(store, project, run, attempt)
    try:
        return _create_locked(folder)
    except FileExistsError:
        raise
    except OSError:
        if os.environ.get("HALVING_JOURNAL"):
            raise
        return _create_locked(_fallback(store) / folder.relative_to(journal_home(store)))


def _create_locked(folder: Path) -> Path:
    """A folder that appears with its lock held: a recovery never finds it without."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unseen = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    if not claim(unseen):
        raise BlockingIOError(f"{unseen} cannot be locked")
    descriptor = _held.pop(unseen)
    if is_ours(folder):
        _give_up(unseen, descriptor)
        raise FileExistsError(f"{folder} is another attempt's of this process")
    _held[folder] = descriptor  # before others see it, and open its lock: to close it again would give it up
    try:
        unseen.rename(folder)
    except OSError as error:
        _give_up(unseen, _held.pop(folder))
        raise FileExistsError(f"{folder} is another attempt's: {error}") from error
    return folder


def _give_up(unseen: Path, descriptor: int) -> None:
    os.close(descriptor)
    shutil.rmtree(unseen, ignore_errors=True)


def claim(folder: Path) -> bool:
    """Take the right to drain a folder; False while a living process has it. The system gives it back when we die.

    A POSIX record lock: a forked child does not hold it on, as it would a BSD one.
    """
    with alone():
        if is_ours(folder):
            return False
        try:
            descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            return False
        with contextlib.suppress(OSError):  # another process has it
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == (folder / "lock").stat().st_ino:  # else its owner has taken the folder away meanwhile
                _held[folder] = descriptor
                return True
        os.close(descriptor)
        return False


def release(folder: Path, *, remove: bool) -> None:
    """Give the right back, and take the folder away when everything in it is in the store. Without the right this does nothing.

    A forked child that begins to log at this very moment keeps its file, or gets a folder of its own.
    """
    if not is_ours(folder):
        return
    if remove:
        with contextlib.suppress(OSError):
            gone = folder.rename(folder.with_name(f".done-{folder.name}-{os.getpid()}"))
            if any(is_written(path) for files in log_segment_files(gone).values() for _, path in files if not path.name.startswith(MAIN)):
                gone.rename(folder)
            else:
                shutil.rmtree(gone, ignore_errors=True)
            for parent in folder.parents[:2]:  # the run's and the project's, when they are empty
                parent.rmdir()
    os.close(_held.pop(folder))


def is_ours(folder: Path) -> bool:
    """Whether this very process writes or drains a folder."""
    return folder in _held


def disown_in_child() -> None:
    """A forked child has none of its parent's locks, and must not give them up for it."""
    global _one_at_a_time
    _one_at_a_time = threading.RLock()  # a thread of the parent may have had it
    _held.clear()


def _fallback(store: Store) -> Path:
    """Where journals go when their home cannot be written."""
    return Path(tempfile.gettempdir()) / f"halving-{os.getuid()}" / _digest(store)


def _digest(store: Store) -> str:
    return sha256(store.root.encode()).hexdigest()[:16]


@cache  # a query asks it for every run
def _on_network(folder: Path) -> bool:
    """Whether the folder, which need not exist yet, is on a file system that another machine serves (Linux; else False)."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return False
    mounts = [(fields[1].replace("\\040", " "), fields[2]) for line in lines if len(fields := line.split()) > 2]
    path = os.path.realpath(folder)
    inside = [(len(point), kind) for point, kind in mounts if path == point or path.startswith(point.rstrip("/") + "/")]
    return bool(inside) and max(inside)[1].startswith(_NETWORK)

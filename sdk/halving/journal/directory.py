"""Where journals are on this machine, whose they are, and which process holds one.

They are in ``HALVING_JOURNAL``, else in ``journal/`` in the store when that is a folder on a disk of this
machine, else in ``~/.local/state/halving/journal``: a network disk that hangs would hang every process that
writes to mapped memory on it. Where that cannot be written, or there is no home, they are in the folder for
temporary files. What Halving creates in these places is for this user alone, and what another user could have
put there is refused (:mod:`halving.journal.trust`).
"""

import contextlib
import fcntl
import fnmatch
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

from halving.journal.log_segment import MAIN, is_written, log_segment_files
from halving.journal.trust import UntrustedDirectory, check_own, make_own, open_file
from halving.store.retry import warn
from halving.store.store import Store

_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "fuse",
    "lustre",
    "ceph",
    "gluster",
    "beegfs",
    "gpfs",
    "9p",
    "afs",
    "ocfs",
    "wekafs",
    "virtiofs",
)
_ATTEMPT = re.compile(r"\d{4,}")
_UNFINISHED = re.compile(r"\.(?:new-.*|done-(\d+)-.*)")  # folders that are being created or removed
_UNFINISHED_SECONDS = 60.0  # An older unlocked folder was left by a killed process.
# The attempts that this process writes or drains, with the descriptors that hold their locks.
_held: dict[Path, int] = {}
one_at_a_time = threading.RLock()
"""The lock of a thread that takes a journal's lock, or looks which process has it.

Closing a lock's file in one thread gives up the lock that another thread of this process has taken on it. Use
this as ``directory.one_at_a_time``, and never import the name: a forked child replaces it.
"""


class Whose(NamedTuple):
    """Whose points a journal folder holds."""

    project: str
    run: str
    attempt: int


class _Home(NamedTuple):
    """The folder in which a store's journals may lie.

    Every directory on the way to it from ``base`` must be this user's own.
    """

    base: Path
    folder: Path


def journal_home(store: Store) -> Path:
    """The folder of all journals of a store on this machine; it need not exist."""
    return _home(store).folder


def attempt_folders(
    store: Store, project: str | None = None, run: str | None = None, attempt: int | None = None
) -> list[Path]:
    """The journals on this machine of a store, a project, a run or an attempt.

    Those that another user may have forged are left out.
    """
    name = "[0-9]*" if attempt is None else f"{attempt:04d}"
    return sorted(folder for folder in _folders(store, project, run, name) if _ATTEMPT.fullmatch(folder.name))


def find_untrusted(store: Store, project: str | None = None, run: str | None = None) -> set[str]:
    """Why journals that are here are left out: which directories others can change, and the remedy."""
    reasons: set[str] = set()
    list(_folders(store, project, run, "[0-9]*", reasons))  # It collects the reasons while it is read.
    return reasons


def clear_unfinished(store: Store, project: str | None = None, run: str | None = None) -> None:
    """Mend the folders of processes that were killed while they created or removed an attempt's folder.

    A new folder is removed. One that was being removed gets its name back, for the recovery: a forked child
    may have logged into it.
    """
    for folder in list(_folders(store, project, run, ".*")):
        match = _UNFINISHED.fullmatch(folder.name)
        with contextlib.suppress(OSError):  # another process mends it, or the disk fails
            if (
                match is None
                or time.time() - folder.stat().st_ctime < _UNFINISHED_SECONDS
                or not claim(folder)
            ):
                continue
            try:
                if match[1] is None:
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    folder.rename(folder.with_name(match[1]))
            finally:
                os.close(_held.pop(folder))


def no_folder(store: Store, project: str, run: str) -> Path:
    """A path where nothing is and nothing will be, for an attempt that the disk refused a folder."""
    return journal_home(store) / f"project={project}" / f"run={run}" / f".none-{secrets.token_hex(8)}"


def whose(folder: Path) -> Whose:
    """The attempt that a folder belongs to, by its name."""
    project, run = (part.partition("=")[2] for part in folder.parts[-3:-1])
    return Whose(project, run, int(folder.name))


def create_folder(store: Store, project: str, run: str, attempt: int) -> Path:
    """Create an attempt's folder and hold its lock until :func:`release`.

    Raises:
        OSError: this machine's disk refuses it, or others could change what is in it.
    """
    home = _home(store)
    name = Path(f"project={project}", f"run={run}", f"{attempt:04d}")
    try:
        return _create_locked(home, name)
    except OSError as error:
        if isinstance(error, FileExistsError) or os.environ.get("HALVING_JOURNAL"):
            raise
        if isinstance(error, UntrustedDirectory):
            warn(f"the journal of run {run} is in {_fallback(store).folder}: {error}")
        return _create_locked(_fallback(store), name)


def claim(folder: Path) -> bool:
    """Take the right to drain a folder; False while a living process has it.

    The system takes it back when this process dies. It is a POSIX record lock, which a forked child does not
    inherit, unlike a BSD one.
    """
    with one_at_a_time:
        if is_ours(folder):
            return False
        try:
            descriptor = open_file(folder / "lock", os.O_RDWR | os.O_CREAT)
        except (FileNotFoundError, ValueError):
            return False
        with contextlib.suppress(OSError):  # another process has it
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == (folder / "lock").stat().st_ino:
                # Otherwise its owner has removed the folder meanwhile.
                _held[folder] = descriptor
                return True
        os.close(descriptor)
        return False


def release(folder: Path, *, remove: bool) -> None:
    """Give the right back, and with ``remove`` delete the folder, whose content the store has.

    Without the right this does nothing. A forked child that begins to log at this very moment keeps its file,
    or gets a folder of its own.
    """
    if not is_ours(folder):
        return
    if remove:
        with contextlib.suppress(OSError):
            gone = folder.rename(folder.with_name(f".done-{folder.name}-{os.getpid()}"))
            if any(
                is_written(path)
                for name, files in log_segment_files(gone).items()
                if name != MAIN
                for _, path in files
            ):
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
    """Forget the locks in a forked child, which has none of its parent's and must not release them."""
    global one_at_a_time
    one_at_a_time = threading.RLock()  # a thread of the parent may have had it
    _held.clear()


def _create_locked(home: _Home, name: Path) -> Path:
    """Create a folder that appears under its name already locked, so that no recovery takes it."""
    folder = home.folder / name
    home.base.mkdir(parents=True, exist_ok=True)
    try:
        make_own(folder.parent, home.base)
        unseen = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    except FileNotFoundError:
        # Another run has just ended and removed the directories that it left empty.
        make_own(folder.parent, home.base)
        unseen = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    if not claim(unseen):
        raise BlockingIOError(f"{unseen} cannot be locked")
    if is_ours(folder):
        os.close(_held.pop(unseen))
        shutil.rmtree(unseen, ignore_errors=True)
        raise FileExistsError(f"{folder} belongs to another run of this process")
    # Note the lock before another thread can open its file: closing that again would give the lock up.
    _held[folder] = _held.pop(unseen)
    try:
        unseen.rename(folder)
    except OSError as error:
        os.close(_held.pop(folder))
        shutil.rmtree(unseen, ignore_errors=True)
        raise FileExistsError(f"{folder} belongs to another process: {error}") from error
    return folder


def _folders(
    store: Store, project: str | None, run: str | None, name: str, untrusted: set[str] | None = None
) -> Iterator[Path]:
    """The folders in either home whose names match and that only this user can change.

    Why others are left out is added to ``untrusted``.
    """
    if untrusted is None:
        untrusted = set()
    for home in dict.fromkeys((_home(store), _fallback(store))):
        if _is_own(home.folder, home.base, untrusted):
            for folder in _matching_folders(
                home.folder, f"project={project or '*'}", f"run={run or '*'}", name
            ):
                if _is_own(folder, home.folder, untrusted):
                    yield folder


def _matching_folders(folder: Path, pattern: str, *below: str) -> Iterator[Path]:
    """What lies below a folder under names that match.

    A folder that vanishes meanwhile has nothing in it, where ``Path.glob`` would raise.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for name in fnmatch.filter(names, pattern):
        if below:
            yield from _matching_folders(folder / name, *below)
        else:
            yield folder / name


def _is_own(folder: Path, base: Path, left_out: set[str]) -> bool:
    try:
        check_own(folder, base)
    except UntrustedDirectory as error:
        left_out.add(str(error))
        return False
    except OSError:  # there is none, or this user may not look at it
        return False
    return True


def _home(store: Store) -> _Home:
    named = os.environ.get("HALVING_JOURNAL")
    if not named and store.folder is not None and not _on_network(store.folder):
        return _Home(store.folder, store.folder / "journal")
    try:
        base = Path(named or os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser().absolute()
    except RuntimeError:  # a user without a home, as in a container that runs under any user id
        if named:
            raise
        return _fallback(store)
    folder = base if named else base / "halving/journal"
    return _Home(base, folder / _digest(store))  # Journals of several stores may lie here.


def _fallback(store: Store) -> _Home:
    """The folder for journals when their home cannot be written."""
    base = Path(tempfile.gettempdir())
    return _Home(base, base / f"halving-{os.getuid()}" / _digest(store))


def _digest(store: Store) -> str:
    return sha256(store.root.encode()).hexdigest()[:16]


@cache  # a query asks it for every run
def _on_network(folder: Path) -> bool:
    """Whether a folder, which need not exist yet, is on a file system that another machine serves.

    It is known on Linux only; elsewhere the answer is no.
    """
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return False
    mounts = [
        (fields[1].replace("\\040", " "), fields[2]) for line in lines if len(fields := line.split()) > 2
    ]
    path = os.path.realpath(folder)
    inside = [
        (len(point), kind)
        for point, kind in mounts
        if path == point or path.startswith(point.rstrip("/") + "/")
    ]
    return bool(inside) and max(inside)[1].startswith(_NETWORK)

"""The table of a store's checks, and checks of the store as a place for files."""

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from halving.doctor.checks import ERROR, OK, WARNING, Check, Finding
from halving.doctor.content_checks import check_cold, check_digests, check_journals
from halving.errors import AlreadyExists, StoreError
from halving.journal.directory import journal_home
from halving.store.store import Store
from halving.text import size

_FOLDER = "doctor"
_MIN_BYTES = 1 << 30
_FEW_BYTES = 10 << 30
_SKEW_SECONDS = 5.0
_MAX_NAMED = 5


def store_checks(store: Store, *, all_blobs: bool = False) -> list[Check]:
    """The checks that need only the store.

    Args:
        all_blobs: read every blob and shard, however long it takes, instead of samples.
    """
    return [
        Check("store", partial(check_store, store)),
        Check("clock", partial(check_clock, store), needs="store"),
        Check("disk", partial(check_disk, store)),
        Check("permissions", partial(check_permissions, store)),
        Check("journals", partial(check_journals, store), needs="store"),
        Check("cold", partial(check_cold, store), needs="store"),
        Check("digests", partial(check_digests, store, whole=all_blobs), needs="store"),
    ]


def check_store(store: Store) -> Iterator[Finding]:
    """Check that a file can be written, read, not overwritten, and deleted."""
    if store.folder is not None and not store.folder.exists():
        yield Finding(
            WARNING,
            f"there is no store at {store.root} yet",
            "the first run makes it",
            "if there should be one: HALVING_ROOT or --root",
        )
        return
    name = _probe()
    means = (
        "no run can be recorded here; points of running trainings stay in this machine's journals until it "
        "can"
    )
    try:
        store.create(name, b"one")
        same = store.read(name) == b"one"
        with contextlib.suppress(AlreadyExists):
            store.create(name, b"other")
            same = False
    except (StoreError, OSError) as error:
        yield Finding(ERROR, f"{store.root} cannot be written and read: {error}", means, _how_to_reach(store))
        return
    finally:
        with contextlib.suppress(StoreError, OSError):
            _clear(store, name)
    if not same:
        means = "two processes may take the same attempt of a run, and the records of one of them are lost"
        mend = "use storage with strong consistency: a local disk, NFS 4, or S3"
        yield Finding(
            ERROR, f"{store.root} let a file be written twice, or gave back another one", means, mend
        )
        return
    yield Finding(OK, f"{store.root} is written and read, and a file is created once")


def check_clock(store: Store, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Compare the store's clock with this machine's, by the time of a new file; S3 has whole seconds.

    Args:
        now: returns this machine's time, in seconds since 1970.
    """
    if store.folder is not None and not store.folder.exists():
        yield Finding(OK, "there is no store to compare with yet")
        return
    name = _probe()
    before = now()
    try:
        store.create(name, b"clock")
        written = next((modified for path, _, modified in store.files(_FOLDER) if path == name), 0.0)
    finally:
        _clear(store, name)
    skew = max(before - 1 - written, written - now(), 0.0)  # a lower bound
    if not written:
        yield Finding(OK, "the store does not say what time it is")
        return
    if skew < _SKEW_SECONDS:
        yield Finding(OK, "this machine's clock and the store's agree")
        return
    way = "ahead of" if written < before else "behind"
    yield Finding(
        WARNING,
        f"this machine's clock is {skew:.0f} s {way} the store's",
        (
            "times of points and attempts from several machines do not fit together, and what retention "
            "takes for old may be new"
        ),
        "synchronise it: timedatectl set-ntp true",
    )


def check_disk(store: Store, minimum: int = _MIN_BYTES, recommended: int = _FEW_BYTES) -> Iterator[Finding]:
    """Check the free space on the disks of the store's folder and of the journals.

    Args:
        minimum, recommended: bytes that must and should be free.
    """
    places = {"the store": store.folder, "the journals": journal_home(store)}
    disks: dict[int, tuple[str, Path]] = {}
    for title, folder in places.items():
        if folder is not None:
            existing = next(path for path in (folder, *folder.parents) if path.exists())
            disks.setdefault(existing.stat().st_dev, (title, existing))
    for title, folder in disks.values():
        free = shutil.disk_usage(folder).free
        fact = f"{size(free)} are free on the disk of {title} ({folder})"
        if free >= recommended:
            yield Finding(OK, fact)
        else:
            means = (
                "runs cannot be recorded when it is full; training goes on, and what does not fit into the "
                "journals is dropped"
            )
            yield Finding(
                ERROR if free < minimum else WARNING,
                fact,
                means,
                "halving retention --dry-run says what can go; or a larger disk",
            )


def check_permissions(store: Store) -> Iterator[Finding]:
    """Check that this user may write into the folders of all projects, and no stranger into the store."""
    if store.folder is None or not store.folder.exists():
        yield Finding(OK, "the store has no folder here: who may do what is for it to say")
        return
    top = store.folder
    folders = [top]
    with contextlib.suppress(PermissionError):  # The top folder is then reported below.
        below = [top / name for name in ("runs", "metrics", "artifacts", "artifacts/sha256")]
        folders += [
            folder
            for folder in [*below, *top.glob("runs/project=*"), *top.glob("metrics/project=*")]
            if folder.is_dir()
        ]
    closed = [
        str(folder)
        for folder in folders
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)
    ]
    if closed:
        yield Finding(
            ERROR,
            (
                f"this user may not write into {len(closed)} of {len(folders)} folders of the store: "
                f"{_some(closed)}"
            ),
            "runs of these projects cannot be recorded or compacted by this user",
            f"give it to whoever works here: sudo chown -R $(id -un) {top}",
        )
    mode = top.stat().st_mode
    if mode & 0o002 and not mode & 0o1000:
        yield Finding(
            WARNING,
            f"everybody on this machine may change the store ({top})",
            "records and checkpoints are only as trustworthy as all of its users",
            f"chmod o-w {top}",
            lambda: _without_others(top),
        )
    elif not closed:
        yield Finding(
            OK, f"this user may write into the store's {len(folders)} folders, and strangers may not"
        )


def _without_others(folder: Path) -> str:
    folder.chmod(folder.stat().st_mode & ~0o002 & 0o7777)
    return f"strangers may not write into {folder} any more"


def _how_to_reach(store: Store) -> str:
    if store.folder is not None:
        return f"look at the disk and the rights: df -h {store.folder}; ls -ld {store.folder}"
    return (
        "look at the address, the network and the credentials (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL_S3 and "
        "so on)"
    )


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:_MAX_NAMED])
    more = len(names) - _MAX_NAMED
    if more > 0:
        listed += f" and {more} more"
    return listed


def _probe() -> str:
    return f"{_FOLDER}/{secrets.token_hex(8)}"


def _clear(store: Store, name: str) -> None:
    store.delete(name)
    if store.folder is not None:
        with contextlib.suppress(OSError):  # Another doctor uses the folder, too.
            (store.folder / _FOLDER).rmdir()

"""Whether an attempt without an end record is still being trained.

This machine's journals tell it, and for other machines the age of the store's files.
"""

import fcntl
import struct
import sys
import time
from pathlib import Path

from halving.journal import directory
from halving.metrics.manifest import run_folder
from halving.metrics.segments import live_folder, parse_segment_name, segment_name
from halving.store.store import Store

RECENT_SECONDS = 600.0
"""A run on another machine counts as running if it wrote a file within this time.

System metrics are logged every 30 s.
"""

# The layout of the C library's struct flock, and the place of l_type in it.
_FLOCK = "@hhqqi4x"
_TYPE = 0
if sys.platform == "darwin":
    _FLOCK = "=qqihh"
    _TYPE = 3


def is_running(store: Store, project: str, run: str, attempt: int, started: float) -> bool:
    """Whether a process is training this attempt, which has no end record.

    On the machine that has its journal the answer is certain: the process holds the journal's lock, and the
    system releases the lock when it dies. Elsewhere the attempt counts as running if the store got a file of
    it within :data:`RECENT_SECONDS`.

    Args:
        started: when the attempt began, seconds since 1970, by the clock of its machine. One in the future
            says nothing.
    """
    for folder in directory.attempt_folders(store, project, run, attempt):
        return is_held(folder) and not (folder / "end.json").exists()
    now = time.time()
    newest = last_written(store, project, run) or 0.0
    if started <= now:
        newest = max(newest, started)
    return now - newest < RECENT_SECONDS


def is_held(folder: Path) -> bool:
    """Whether a living process holds a journal's lock.

    The lock is not taken to find out, because that could stop a recovery.
    """
    with directory.one_at_a_time:
        if directory.is_ours(folder):
            # The system never reports a process's own lock, and closing the file would release it.
            return True
        try:
            with (folder / "lock").open("rb") as file:
                request = [0] * 5
                request[_TYPE] = fcntl.F_WRLCK
                answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_FLOCK, *request))
        except FileNotFoundError:
            return False
    return bool(struct.unpack(_FLOCK, answer)[_TYPE] != fcntl.F_UNLCK)


def last_written(store: Store, project: str, run: str) -> float | None:
    """When the newest metric file of a run was written, seconds since 1970; None if there is none."""
    live = live_folder(project, run)
    segments = [parsed for name in store.names(live) if (parsed := parse_segment_name(name))]
    if segments:
        newest = f"{live}/{segment_name(*max(segments))}"
    else:
        manifests = [name for name in store.names(run_folder(project, run)) if name.startswith("manifest-")]
        if not manifests:
            return None
        newest = f"{run_folder(project, run)}/{manifests[-1]}"
    if store.folder is not None:
        try:
            return (store.folder / newest).stat().st_mtime
        except FileNotFoundError:
            # The file was compacted since it was listed.
            return None
    written = store.filesystem.get_file_info(store.path(newest)).mtime_ns
    if written is None:
        return None
    return float(written / 1e9)

"""Journals that killed processes left on this machine: what is in them is brought into the store, and then
they go.

No point is lost.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from halving import Store
from halving.ingest.recovery import recover
from halving.journal import directory
from halving.query.liveness import is_held


def recover_old_journals(
    store: Store, project: str, days: float | None, now: datetime, *, dry_run: bool = False
) -> Iterator[int]:
    """The bytes of each journal of a project that no process holds and that nobody has written to for
    ``days``, once it is in the store.

    One that the store does not take stays.
    """
    if days is None:
        return
    for folder in directory.attempt_folders(store, project):
        size, written = _size_and_time(folder)
        if written >= (now - timedelta(days=days)).timestamp() or is_held(folder):
            continue
        if not dry_run:
            whose = directory.whose(folder)
            recover(store, whose.project, whose.run)
        if dry_run or not folder.exists():
            yield size


def _size_and_time(folder: Path) -> tuple[int, float]:
    """The bytes in a folder, and when the newest of it was written. It may be removed meanwhile."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found.append(path.stat())
    return sum(stat.st_size for stat in found), max((stat.st_mtime for stat in found), default=0.0)

"""Recovery and deletion of journals that killed processes left on this machine. No point is lost."""

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
    """Bring a project's old journals into the store, and yield the bytes of each that is deleted then.

    A journal is old if no process holds it and nobody has written to it for ``days``. One that the store does
    not take stays.
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
    """The bytes in a folder, and when its newest file was written; it may be deleted meanwhile."""
    stats = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            stats.append(path.stat())
    return sum(stat.st_size for stat in stats), max((stat.st_mtime for stat in stats), default=0.0)

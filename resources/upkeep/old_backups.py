"""Deletion of a place's old backups: first their manifests, then contents that no other backup needs.

It may be killed at any time: each backup with a manifest has all of its contents, and the next call goes on.
Other backups may be made in the same place meanwhile. They have no manifest yet, and still their contents
stay:

- Contents of the backup on which it builds, which its ``begun.json`` names. That file is read here after the
  manifests were deleted, and the other backup wrote it before it checked that its base has a manifest.
- Contents that it has written since it began, or found in the place: those older than a day,
  :data:`halving.store.store.REFRESH_SECONDS`, it has written again.
- Contents that a backup writes or finds that begins later: by the same rule they are younger than
  :data:`GRACE_SECONDS`, even if clocks differ by a day.
"""

import contextlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from halving.errors import HalvingError, InvalidInput, NotFound, StoreError
from halving.maintenance.blob_collection import Marks, clock_of, delete_unmarked, find_unmarked
from halving.store.store import REFRESH_SECONDS, Store
from resources.upkeep.backup import Made
from resources.upkeep.backup_files import (
    BEGUN,
    FILES,
    MANIFEST,
    MAX_BACKUP_SECONDS,
    BackupManifest,
    backups_of,
    digests_of,
    file_of,
    read_checked,
    read_manifests,
)

GRACE_SECONDS = 2 * REFRESH_SECONDS
"""Time for which a content stays that no backup names (yet)."""
_PROBE = "pruning/clock"


@dataclass(frozen=True)
class Pruned:
    """What was deleted: the ids of backups, and the number and bytes of contents."""

    backups: list[str]
    contents: int
    bytes: int


def check_keep(keep: int) -> None:
    """Refuse a number of backups that nobody can keep.

    Raises:
        InvalidInput: it is less than 1.
    """
    if keep < 1:
        raise InvalidInput(f"keep = {keep} is not accepted: give how many backups to keep, 1 or more")


def prune_backups(place: Store, root: str, keep: int, *, now: float | None = None) -> Pruned:
    """Delete a store's old backups, the rest of killed ones, and contents that no backup needs.

    Args:
        root: the store's root; backups of other stores in the place stay.
        keep: the number of newest backups that stay.
        now: seconds since 1970 (default: the earlier time of this machine's clock and the place's).

    Raises:
        InvalidInput: ``keep`` is less than 1, or a later version has made one of the backups. Nothing is
            deleted.
        NotFound, StoreError: a backup's list of files is missing or damaged, so that it is unknown what must
            stay; or the place refuses.
    """
    check_keep(keep)
    own = [manifest for manifest in read_manifests(place, backups_of(place)) if manifest.root == root]
    old = [manifest.id for manifest in sorted(own, key=lambda manifest: manifest.began)[:-keep]]
    for backup in old:
        # Without its manifest, a backup that has begun would look like one that is being made.
        place.delete(file_of(backup, BEGUN))
        place.delete(file_of(backup, MANIFEST))
    time_now = now or min(time.time(), clock_of(place, _PROBE) or 0.0)
    folders = _folders(place)
    manifests = read_manifests(place, [backup for backup, files in folders.items() if MANIFEST in files])
    rest = folders.keys() - {manifest.id for manifest in manifests}
    unfinished = {
        backup: began
        for backup in rest
        if (began := folders[backup].get(BEGUN, -math.inf)) > time_now - MAX_BACKUP_SECONDS
    }
    bases = {_base_of(place, backup) for backup in unfinished}
    before = min([time_now, *unfinished.values()]) - GRACE_SECONDS
    marks = Marks()
    needed = _contents_of(place, manifests, rest & bases)
    marks.keep({bytes.fromhex(digest.removeprefix("sha256:")) for digest in needed})
    gone = delete_unmarked(place, find_unmarked(place, marks, before), before)
    for byte in range(256):
        place.clear_abandoned(f"artifacts/sha256/{byte:02x}", GRACE_SECONDS)
    for backup in rest - unfinished.keys() - bases:
        place.delete_below(f"backups/{backup}")
    return Pruned(old, len(gone), sum(blob.bytes for blob in gone))


def prune_after(place: Store, root: str, keep: int, made: Made) -> Pruned | None:
    """Delete old backups after a new one was made, unless the new one lacks contents.

    An older backup may have the contents that it lacks, so all stay then, and None is returned.

    Raises:
        StoreError: the old ones could not be deleted; the message says that the new one is whole.
    """
    if made.missing:
        return None
    try:
        return prune_backups(place, root, keep)
    except HalvingError as error:
        raise StoreError(
            f"backup {made.manifest.id} is made, and older ones were not deleted: {error}"
        ) from error


def _folders(place: Store) -> Mapping[str, Mapping[str, float]]:
    """Each backup's own files with their times of writing, also of backups that are not whole."""
    folders: dict[str, dict[str, float]] = defaultdict(dict)
    for name, _, written in place.files("backups"):
        backup, _, file = name.removeprefix("backups/").partition("/")
        if file:
            folders[backup][file] = written
    return folders


def _base_of(place: Store, backup: str) -> str | None:
    with contextlib.suppress(NotFound):  # Somebody has deleted it.
        base: str | None = json.loads(place.read(file_of(backup, BEGUN)))["base"]
        return base
    return None


def _contents_of(place: Store, whole: Iterable[BackupManifest], bases: Iterable[str]) -> set[str]:
    """The contents of whole backups, and of deleted ones on which others build."""
    digests: set[str] = set()
    for manifest in whole:
        try:
            digests |= digests_of(read_checked(place, manifest, FILES, manifest.files))
        except NotFound:
            if place.exists(file_of(manifest.id, MANIFEST)):
                raise
            # Another store's --keep has just deleted it, as nothing builds on it.
    for backup in bases:
        with contextlib.suppress(NotFound):  # Somebody has deleted it by hand.
            digests |= digests_of(place.read(file_of(backup, FILES)))
    return digests

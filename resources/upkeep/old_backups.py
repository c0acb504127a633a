"""Deleting old backups of a place: their manifests first, and then the contents that no other backup needs.

Killed anywhere, each backup that has its manifest has all of its contents, and the next call finishes. Other
backups may be made to the same place meanwhile. What one of them needs has no manifest yet, but stays:

- what it takes over from the backup on which it builds, as its ``begun.json`` says. That is looked at after
  the manifests have gone, and was written before it looked whether that backup's is still there.
- what it has put since it began, or found there: what is older than a day,
  :data:`halving.store.store.REFRESH_SECONDS`, it has put again.
- what one that begins later puts or finds is, by the same rule, younger than :data:`GRACE_SECONDS`. Clocks
  may differ by a day.
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
    LONGEST_SECONDS,
    MANIFEST,
    BackupManifest,
    backups_of,
    digests_of,
    file_of,
    read_checked,
    read_manifests,
)

GRACE_SECONDS = 2 * REFRESH_SECONDS
"""For which a content stays that no backup names (yet)."""
_PROBE = "pruning/clock"


@dataclass(frozen=True)
class Pruned:
    """What went: backups, by id, and how many contents, of how many bytes."""

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
    """Delete a store's backups but the newest ones, what killed ones have left, and contents that nothing
    needs any more.

    Args:
        root: the store's; backups of other stores in the place stay.
        keep: how many stay.
        now: seconds since 1970 (default: the earlier one of what this machine's clock says and what the
            place's does).

    Raises:
        InvalidInput: ``keep`` is less than 1, or a later version has made one of the backups. Nothing is
            deleted.
        NotFound, StoreError: a backup's list of files is missing or damaged, so that nobody knows what must
            stay; or the place refuses.
    """
    check_keep(keep)
    own = [manifest for manifest in read_manifests(place, backups_of(place)) if manifest.root == root]
    old = [manifest.id for manifest in sorted(own, key=lambda manifest: manifest.began)[:-keep]]
    for backup in old:
        # or without its manifest it would look like one that is being made
        place.delete(file_of(backup, BEGUN))
        place.delete(file_of(backup, MANIFEST))
    moment = now or min(time.time(), clock_of(place, _PROBE) or 0.0)
    folders = _folders(place)
    manifests = read_manifests(place, [backup for backup, files in folders.items() if MANIFEST in files])
    rest = folders.keys() - {manifest.id for manifest in manifests}
    unfinished = {
        backup: began
        for backup in rest
        if (began := folders[backup].get(BEGUN, -math.inf)) > moment - LONGEST_SECONDS
    }
    bases = {_base_of(place, backup) for backup in unfinished}
    before = min([moment, *unfinished.values()]) - GRACE_SECONDS
    marks = Marks()
    marks.keep(
        {bytes.fromhex(digest.removeprefix("sha256:")) for digest in _named(place, manifests, rest & bases)}
    )
    gone = delete_unmarked(place, find_unmarked(place, marks, before), before)
    for byte in range(256):
        place.clear_abandoned(f"artifacts/sha256/{byte:02x}", GRACE_SECONDS)
    for backup in rest - unfinished.keys() - bases:
        place.delete_below(f"backups/{backup}")
    return Pruned(old, len(gone), sum(blob.bytes for blob in gone))


def prune_after(place: Store, root: str, keep: int, made: Made) -> Pruned | None:
    """:func:`prune_backups` after a backup was made; None: it lacks something, which an older one may have,
    so that all stay.

    Raises:
        StoreError: with what is wrong with the others, and that this one is whole.
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
    """Each backup's own files with the time of their writing, also of those that are not whole."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for name, _, written in place.files("backups"):
        backup, _, file = name.removeprefix("backups/").partition("/")
        if file:
            found[backup][file] = written
    return found


def _base_of(place: Store, backup: str) -> str | None:
    with contextlib.suppress(NotFound):  # somebody has deleted it
        base: str | None = json.loads(place.read(file_of(backup, BEGUN)))["base"]
        return base
    return None


def _named(place: Store, whole: Iterable[BackupManifest], bases: Iterable[str]) -> set[str]:
    """The contents of whole backups, and of those that have gone while others build on them."""
    found: set[str] = set()
    for manifest in whole:
        try:
            found |= digests_of(read_checked(place, manifest, FILES, manifest.files))
        except NotFound:
            if place.exists(file_of(manifest.id, MANIFEST)):
                raise
            # Another store's --keep has deleted it in this moment, as nothing builds on it.
    for backup in bases:
        with contextlib.suppress(NotFound):  # somebody has deleted it by hand
            found |= digests_of(place.read(file_of(backup, FILES)))
    return found

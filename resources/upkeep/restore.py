"""Restoring a backup into an empty store and an empty catalog.

Files come first, each checked against its digest, and then the catalog, in one transaction: until then the restored store has no sweep.
What the store says of models is written last. Killed anywhere, the same command goes on; ``restoring.json`` in the store says that it has
begun, and from when the catalog may have been loaded into which one.
"""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from halving.errors import InvalidInput, NotFound
from halving.machine.temporary_folders import scratch_folder
from halving.store.json_files import to_json
from halving.store.store import Store
from resources.catalog import Catalog
from resources.registry.publishing import publish
from resources.upkeep.backup_files import (
    CATALOG,
    FILES,
    BackupManifest,
    Kept,
    files_of_models,
    files_to_keep,
    read_backup,
    read_checked,
    unpack,
)
from resources.upkeep.catalog_dump import check_empty, check_revision, is_filled, load_catalog

_BEGUN = "restoring.json"
_THREADS = 16
_PART = 1_000  # files between two words of progress
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Restored:
    """What was restored.

    Attributes:
        there: how many of the backup's files were there already from a restore that was cut off.
        problems: of writing what the store says of models; it is written by the next one who publishes.
    """

    manifest: BackupManifest
    there: int
    seconds: float
    problems: list[str]


def restore(
    place: Store, store: Store, open_catalog: Callable[[], Catalog], backup: str | None = None, progress: Progress | None = None
) -> Restored:
    """Restore a backup, by default the newest.

    Args:
        open_catalog: called when the store is known to be empty, because a catalog may be a file in it.

    Raises:
        InvalidInput: something is in the store or the catalog, or a later version made the backup.
        NotFound: there is no such backup, or a file of it is missing.
        StoreError: a file of it is damaged, or the store refuses.
    """
    began, manifest = time.monotonic(), read_backup(place, backup)
    check_revision(manifest.revision)
    earlier = _begin(store, manifest)
    catalog = open_catalog()
    is_loaded = earlier.catalog == repr(catalog) and is_filled(catalog, manifest.rows)
    if not is_loaded:
        check_empty(catalog)
    files = unpack(read_checked(place, manifest, FILES, manifest.files))
    dump = read_checked(place, manifest, CATALOG, manifest.catalog)
    left = [(name, kept) for name, kept in files.items() if earlier.files.get(name) != kept.bytes]
    waiting, done = iter(left), 0
    with ThreadPoolExecutor(_THREADS) as pool:
        while part := list(islice(waiting, _PART)):
            for _ in pool.map(lambda file: _copy(place, store, *file), part):
                pass
            done += len(part)
            if progress:
                progress(done, len(left))
    if not is_loaded:
        # It is empty, so whoever finds rows in it after this was written, and all of them, knows where they are from.
        store.replace(_BEGUN, to_json({"backup": manifest.id, "catalog": repr(catalog)}))
        with scratch_folder("restore") as folder:
            local = folder / "catalog.jsonl.gz"
            local.write_bytes(dump)
            load_catalog(catalog, local, manifest.revision)
    problems = publish(store, catalog)
    store.delete(_BEGUN)
    return Restored(manifest, len(files) - len(left), time.monotonic() - began, problems)


class _Earlier(NamedTuple):
    """What an earlier try has restored: the bytes of files, by name, and which catalog it was about to load, if it came so far."""

    files: dict[str, int]
    catalog: str | None


def _begin(store: Store, manifest: BackupManifest) -> _Earlier:
    """Mark the store as one that a backup is restored into; what an earlier try has restored.

    Raises:
        InvalidInput: something else is in the store.
    """
    if store.exists(_BEGUN):
        begun = json.loads(store.read(_BEGUN))
        other = begun["backup"]
        if other != manifest.id:
            raise InvalidInput(
                f"the store {store.root} is not accepted: backup {other} is being restored into it; "
                f"go on with --backup {other}, or empty it"
            )
        return _Earlier({name: size for name, size, _ in files_to_keep(store)}, begun.get("catalog"))
    if found := [name for name, _, _ in chain(files_to_keep(store), files_of_models(store))]:
        raise InvalidInput(
            f"the store {store.root} is not accepted: it has {len(found)} files, such as {min(found)}; give one with nothing in it"
        )
    store.create(_BEGUN, to_json({"backup": manifest.id}))
    return _Earlier({}, None)


def _copy(place: Store, store: Store, name: str, kept: Kept) -> None:
    try:
        with place.blob_file(kept.digest) as content:  # checks the digest
            store.create(name, content, sole=True)
    except NotFound as error:
        raise NotFound(f"{name} cannot be restored: {error}") from None

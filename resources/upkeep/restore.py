"""Restoring a backup into an empty store and an empty catalog.

Files come first, each checked against its digest, and then the catalog, in one transaction: until then the
restored store has no sweep. Models are published last. If it is killed, the same command goes on:
``restoring.json`` in the store says which backup is being restored and, before the catalog is loaded, into
which catalog.
"""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, islice
from typing import NamedTuple

from halving.errors import AlreadyExists, InvalidInput, NotFound
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
    names_of_catalog,
    read_backup,
    read_checked,
    unpack,
)
from resources.upkeep.catalog_dump import check_empty, check_revision, is_loaded, load_catalog

_BEGUN = "restoring.json"
_THREADS = 16
_FILES_PER_PROGRESS = 1_000
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Restored:
    """What was restored.

    Attributes:
        there: the number of files that an earlier, killed restore had brought.
        problems: models that could not be published, in sentences; the next process that publishes does it.
    """

    manifest: BackupManifest
    there: int
    seconds: float
    problems: list[str]


def restore(
    place: Store,
    store: Store,
    open_catalog: Callable[[], Catalog],
    backup: str | None = None,
    progress: Progress | None = None,
    *,
    url: str | None = None,
) -> Restored:
    """Restore a backup, by default the newest.

    Args:
        open_catalog: called when the store is known to be empty, because a catalog may be a file in it.
        url: the catalog's URL, which may name another file in the store than ``catalog.db``.

    Raises:
        InvalidInput: something is in the store or the catalog, a later version made the backup, or none is
            chosen although the place has backups of several stores.
        NotFound: there is no such backup, or a file of it is missing.
        StoreError: a file of it is damaged, or the store refuses.
    """
    began = time.monotonic()
    manifest = read_backup(place, backup)
    check_revision(manifest.revision)
    earlier = _restored_before(store, manifest, url)
    if earlier is None:
        _check_store_is_empty(store, url)
    catalog = open_catalog()
    is_done = earlier is not None and earlier.catalog == repr(catalog) and is_loaded(catalog, manifest.rows)
    if not is_done:
        check_empty(catalog)
    of_catalog = names_of_catalog(store, url)
    listed = unpack(read_checked(place, manifest, FILES, manifest.files))
    files = {name: kept for name, kept in listed.items() if name not in of_catalog}
    dump = read_checked(place, manifest, CATALOG, manifest.catalog)
    if earlier is None:
        _begin(store, manifest)
    elif strange := earlier.files - files.keys():
        raise InvalidInput(
            f"the store {store.root} is not accepted: {len(strange)} of its files are not of the backup "
            f"{manifest.id} that is being restored into it, such as {min(strange)}; delete them, or give a "
            "store with nothing in it"
        )
    before = set()
    if earlier is not None:
        before = earlier.files
    waiting = iter(files.items())
    count = 0
    done = 0
    with ThreadPoolExecutor(_THREADS) as pool:
        while part := list(islice(waiting, _FILES_PER_PROGRESS)):
            brought = pool.map(lambda file: _bring(place, store, file[0], file[1], file[0] in before), part)
            count += sum(brought)
            done += len(part)
            if progress:
                progress(done, len(files))
    if not is_done:
        # The catalog is empty now: if all rows of the backup are in it after this was written, this restore
        # has loaded them.
        store.replace(_BEGUN, to_json({"backup": manifest.id, "catalog": repr(catalog)}))
        with scratch_folder("restore") as folder:
            local = folder / "catalog.jsonl.gz"
            local.write_bytes(dump)
            load_catalog(catalog, local, manifest.revision)
    problems = publish(store, catalog)
    store.delete(_BEGUN)
    return Restored(manifest, count, time.monotonic() - began, problems)


class _Earlier(NamedTuple):
    """The files that a killed restore has brought, and the catalog that it was about to load, if any."""

    files: set[str]
    catalog: str | None


def _restored_before(store: Store, manifest: BackupManifest, url: str | None) -> _Earlier | None:
    """What a killed restore of this backup has left in a store; None where none has begun.

    Raises:
        InvalidInput: it is another backup.
    """
    if not store.exists(_BEGUN):
        return None
    begun = json.loads(store.read(_BEGUN))
    other = begun["backup"]
    if other != manifest.id:
        raise InvalidInput(
            f"the store {store.root} is not accepted: backup {other} is being restored into it; go on with "
            f"--backup {other}, or empty it"
        )
    return _Earlier({name for name, _, _ in files_to_keep(store, url)}, begun.get("catalog"))


def _check_store_is_empty(store: Store, url: str | None) -> None:
    names = [name for name, _, _ in chain(files_to_keep(store, url), files_of_models(store))]
    if names:
        raise InvalidInput(
            f"the store {store.root} is not accepted: it has {len(names)} files, such as {min(names)}; "
            "give one with nothing in it"
        )


def _begin(store: Store, manifest: BackupManifest) -> None:
    """Mark the store as one into which a backup is being restored.

    Raises:
        InvalidInput: another restore has just begun.
    """
    try:
        store.create(_BEGUN, to_json({"backup": manifest.id}))
    except AlreadyExists:
        raise InvalidInput(
            f"the store {store.root} is not accepted: another backup is being restored into it, which "
            "began in this moment"
        ) from None


def _bring(place: Store, store: Store, name: str, kept: Kept, is_there: bool) -> bool:
    """Bring a file from the backup into the store, or check it if it is there; returns whether it was."""
    if is_there:
        actual = sha256()
        for part in store.parts(name):
            actual.update(part)
        if f"sha256:{actual.hexdigest()}" != kept.digest:
            raise InvalidInput(
                f"{store.address(name)} is not accepted: its content is not that of the backup, and the "
                "restore that was cut off did not write it so; delete it, and give the same command again"
            )
        return True
    try:
        with place.blob_file(kept.digest) as content:  # It checks the digest.
            store.create(name, content, sole=True)
    except NotFound as error:
        raise NotFound(f"{name} cannot be restored: {error}") from None
    return False

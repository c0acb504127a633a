"""Files that nobody needs any more: what killed processes leave, old mail, what a job's steps handed on, blobs that no record names, and
shards that no snapshot has.

A blob is put before it is recorded, so a young one may still be recorded. Records are searched for anything that looks like a digest,
whatever it is called: a blob stays when in doubt.
"""

import re
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import NamedTuple

from halving.errors import NotFound
from halving.store.store import Store

# Each is far beyond the age at which a living process may still want the file.
MAIL_AGE = timedelta(days=30)  # a message is read within minutes, and a trial's task when its pod starts
STEP_AGE = timedelta(days=365)  # a sweep's job reads at its end what its first step has handed on
UNFINISHED_AGE = timedelta(days=1)  # as Store.clear_abandoned; a marker file goes stale after two minutes
UNRECORDED_AGE = timedelta(days=7)  # an epoch's checkpoint is recorded at the epoch's end; well above halving.store.store.REFRESH_SECONDS
_UNFINISHED = re.compile(r"\.claim-.+|\..+\.\d+\.[0-9a-f]{8}")  # halving.store.create_once, and halving.store.local_files' temporary names
_BLOB = re.compile("artifacts/sha256/../([0-9a-f]{64})")
_SHARD = re.compile(r"shards/sha256/../[0-9a-f]{64}(?:\.[0-9a-f]{8}\.rows)?")
_DIGEST = re.compile(rb"sha256:[0-9a-f]{64}")
_LISTED_SHARD = re.compile(rb'"([0-9a-f]{64})"')
_READERS = 16  # requests to an object store at the same time


class OrphanFile(NamedTuple):
    """A file to delete; ``run`` is the run that it belongs to. Where ``project`` is empty, it is Dagster's run, or the store's folder."""

    project: str
    run: str
    name: str
    bytes: int


def find_orphan_files(
    store: Store,
    protected: Collection[tuple[str, str]],
    now: datetime,
    project: str | None = None,
    named_blobs: Collection[str] | None = None,
) -> Iterator[OrphanFile]:
    """The orphan files of all projects, or of one.

    Args:
        protected: ``(project, run)`` whose mail stays.
        now: the moment to count from.
        named_blobs: all digests that are named elsewhere than in the runs' records, as by the catalog. None: unknown, so each blob stays.
            With a ``project`` each stays, too: projects share blobs.
    """
    all_folders = ["runs", "metrics", "steps", "reports", "artifacts", "shards"]
    folders = [f"runs/project={project}", f"metrics/project={project}"] if project else all_folders
    if store.folder is not None and not project:
        folders.append("datasets")  # in an object store a snapshot's unfinished files cannot be seen
    blobs, shards = {}, []
    for folder in folders:
        for name, size, written in store.files(folder):
            age = now - datetime.fromtimestamp(written, now.tzinfo) if written else timedelta(0)  # a store that does not say when
            if (found := owner_of_orphan_file(name, age, protected)) is not None:
                yield OrphanFile(*found, name, size)
            elif named_blobs is not None and age > UNRECORDED_AGE and (blob := _BLOB.fullmatch(name)):
                blobs[f"sha256:{blob[1]}"] = OrphanFile("", "artifacts", name, size)
            elif age > UNRECORDED_AGE and _SHARD.fullmatch(name):
                shards.append(OrphanFile("", "shards", name, size))
    if blobs and named_blobs is not None:
        for digest in blobs.keys() - set(named_blobs) - _recorded_digests(store):
            yield blobs[digest]
    listed = _listed_shards(store) if shards else None
    if listed is not None:
        yield from (orphan for orphan in shards if orphan.name.rpartition("/")[2].partition(".")[0] not in listed)


def delete_orphan_file(store: Store, orphan: OrphanFile, now: datetime) -> None:
    """Delete it; but a blob or a shard that was put again meanwhile stays.

    Raises:
        StoreError: the store refused.
    """
    if _BLOB.fullmatch(orphan.name) or _SHARD.fullmatch(orphan.name):
        store.collect(orphan.name, (now - UNRECORDED_AGE).timestamp())
    else:
        store.delete(orphan.name)


def owner_of_orphan_file(name: str, age: timedelta, protected: Collection[tuple[str, str]]) -> tuple[str, str] | None:
    """The project and the run of a file if it is an orphan by its name and age, or None. Pure."""
    area, *folders, file = name.split("/")
    if area == "steps":
        owner = ("", folders[0]) if folders else ("", "")
        return owner if age > STEP_AGE else None
    project, run, kind = (*folders, "", "", "")[:3]
    owner = (project.removeprefix("project="), run.removeprefix("run=")) if area in ("runs", "metrics") else ("", area)
    if _UNFINISHED.fullmatch(file):
        return owner if age > UNFINISHED_AGE else None
    if area == "runs" and kind == "mail" and owner not in protected:
        return owner if age > MAIL_AGE else None
    return None


def _listed_shards(store: Store) -> set[str] | None:
    """What the manifests of all snapshots list; None where one is lost that DVC can bring back, for nobody knows what it lists."""
    there = {name for name, _, _ in store.files("datasets")}
    if any(name.endswith(".dvc") and f"{name.removesuffix('.dvc')}/manifest.json" not in there for name in there):
        return None
    names = [name for name in there if name.endswith("/manifest.json")]
    return {shard.decode() for name in names for shard in _LISTED_SHARD.findall(store.read(name))}


def _recorded_digests(store: Store) -> set[str]:
    """What the runs' records name: checkpoints, artifacts, media, patches, and what a later version may add."""

    def digests_in(name: str) -> set[bytes]:
        try:
            return set(_DIGEST.findall(store.read(name)))
        except NotFound:  # mail, deleted meanwhile
            return set()

    names = [name for name, _, _ in store.files("runs") if name.endswith(".json")]
    with ThreadPoolExecutor(_READERS if store.folder is None else 1) as pool:
        return {digest.decode() for found in pool.map(digests_in, names) for digest in found}

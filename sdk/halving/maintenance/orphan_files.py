"""Files that nobody needs any more: leftovers of killed processes, old mail, and data that nothing names.

Among them are old values that steps of a job handed to later steps. Datasets are never deleted: a shard that
a snapshot lists stays, however old the snapshot is. So does a day of a feature view that any of its
generations names. Blobs are collected by :mod:`halving.maintenance.blob_collection`.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from halving.store.store import Store

# Each is far beyond the age at which a living process may still want the file.
MAIL_AGE = timedelta(days=30)  # a message is read within minutes, and a trial's task when its pod starts
STEP_AGE = timedelta(days=365)  # a sweep's job reads at its end what its first step has handed on
UNFINISHED_AGE = timedelta(days=1)  # As in Store.clear_abandoned; markers go stale after two minutes.
# A manifest or generation is written when its files are. This exceeds halving.store.store.REFRESH_SECONDS.
UNLISTED_AGE = timedelta(days=7)
# Markers of halving.store.create_once, and temporary names of halving.store.local_files.
_UNFINISHED = re.compile(r"\.claim-.+|\..+\.\d+\.[0-9a-f]{8}")
_SHARD = re.compile(r"shards/sha256/../[0-9a-f]{64}(?:\.[0-9a-f]{8}\.rows)?")
_DAY_FILE = re.compile(r"(features/[^/]+/\d+/day=[^/]+)/([0-9a-f]{64})\.parquet")
_GENERATION = re.compile(r"(features/[^/]+/\d+/day=[^/]+)/generation-\d{6,}\.json")
_DIGEST = re.compile(rb'"([0-9a-f]{64})"')


class OrphanFile(NamedTuple):
    """A file to delete, and the run that it belongs to.

    Where ``project`` is empty, ``run`` is Dagster's run, or the store's folder.
    """

    project: str
    run: str
    name: str
    bytes: int


@dataclass
class _DayFiles:
    """The files of a day of a feature view: their number, the old ones, and the generations."""

    files: int = 0
    old: list[OrphanFile] = field(default_factory=list)
    generations: list[str] = field(default_factory=list)


def find_orphan_files(
    store: Store, protected: Collection[tuple[str, str]], now: datetime, project: str | None = None
) -> Iterator[OrphanFile]:
    """The orphan files of all projects, or of one.

    Args:
        protected: ``(project, run)`` whose mail stays.
        now: the moment to count from.
    """
    folders = ["runs", "metrics", "steps", "reports", "artifacts", "shards", "features"]
    if project:
        folders = [f"runs/project={project}", f"metrics/project={project}"]
    elif store.folder is not None:
        folders.append("datasets")  # An object store does not show a snapshot's unfinished files.
    shards = []
    days: defaultdict[str, _DayFiles] = defaultdict(_DayFiles)
    for folder in folders:
        for name, size, written in store.files(folder):
            age = timedelta(0)  # A store that does not tell the time has no old files.
            if written:
                age = now - datetime.fromtimestamp(written, now.tzinfo)
            if (owner := owner_of_orphan_file(name, age, protected)) is not None:
                yield OrphanFile(*owner, name, size)
            elif age > UNLISTED_AGE and _SHARD.fullmatch(name):
                shards.append(OrphanFile("", "shards", name, size))
            elif match := _GENERATION.fullmatch(name):
                days[match[1]].generations.append(name)
            elif match := _DAY_FILE.fullmatch(name):
                days[match[1]].files += 1
                if age > UNLISTED_AGE:
                    days[match[1]].old.append(OrphanFile("", "features", name, size))
    for day in days.values():
        yield from _find_unnamed(store, day)
    if not shards:
        return
    listed = _listed_shards(store)
    if listed is not None:
        yield from (
            orphan for orphan in shards if orphan.name.rpartition("/")[2].partition(".")[0] not in listed
        )


def delete_orphan_file(store: Store, orphan: OrphanFile, now: datetime) -> None:
    """Delete an orphan file; but a shard, or a day of a feature view, that was put again meanwhile stays.

    Raises:
        StoreError: the store refused.
    """
    if _SHARD.fullmatch(orphan.name) or _DAY_FILE.fullmatch(orphan.name):
        store.collect(orphan.name, (now - UNLISTED_AGE).timestamp())
    else:
        store.delete(orphan.name)


def owner_of_orphan_file(
    name: str, age: timedelta, protected: Collection[tuple[str, str]]
) -> tuple[str, str] | None:
    """The project and the run of a file that its name and age make an orphan, else None. Pure."""
    area, *folders, file = name.split("/")
    if area == "steps":
        if age <= STEP_AGE:
            return None
        return "", [*folders, ""][0]
    project, run, kind = (*folders, "", "", "")[:3]
    owner = ("", area)
    if area in ("runs", "metrics"):
        owner = (project.removeprefix("project="), run.removeprefix("run="))
    if _UNFINISHED.fullmatch(file):
        is_orphan = age > UNFINISHED_AGE
    else:
        is_orphan = area == "runs" and kind == "mail" and owner not in protected and age > MAIL_AGE
    return owner if is_orphan else None


def _listed_shards(store: Store) -> set[str] | None:
    """The shards that the manifests of all snapshots list.

    None if they are unknown, because a manifest is missing that DVC can bring back.
    """
    there = {name for name, _, _ in store.files("datasets")}
    if any(
        name.endswith(".dvc") and f"{name.removesuffix('.dvc')}/manifest.json" not in there for name in there
    ):
        return None
    names = [name for name in there if name.endswith("/manifest.json")]
    return {shard.decode() for name in names for shard in _DIGEST.findall(store.read(name))}


def _find_unnamed(store: Store, day: _DayFiles) -> Iterator[OrphanFile]:
    """The old files of a day of a feature view that none of its generations names.

    Their writers died before they wrote a generation.
    """
    if day.files == 1 and day.generations:
        return  # Nearly all days are like this; the generation names this file, which was written before it.
    named = {
        digest
        for generation in day.generations
        if day.old
        for digest in _DIGEST.findall(store.read(generation))
    }
    yield from (
        orphan
        for orphan in day.old
        if orphan.name.rpartition("/")[2].removesuffix(".parquet").encode() not in named
    )

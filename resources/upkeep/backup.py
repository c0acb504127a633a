"""Making a backup: the store's files and the catalog, so that everything that the catalog names is in it.

The store is listed, then the catalog dumped, then what it names is copied, then everything else: a file is in
the store before the catalog names it. What is written meanwhile is in the backup too, but for what is of
attempts that the dumped catalog does not count yet (:mod:`resources.upkeep.ahead`). What is deleted
meanwhile, by retention or compaction, is noticed: then the store is listed again, for what replaced it, and
where the catalog names it, that is dumped again as well. Each round copies only what is new, so the next is
short.
"""

import contextlib
import gzip
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound, StoreError
from halving.machine.temporary_folders import scratch_folder
from halving.store.json_files import to_json
from halving.store.local_files import path_of, temporary_file
from halving.store.store import Store, blob_name, digest_of
from resources.analysis.named_contents import (
    NamedContent,
    contents_of_models,
    contents_of_paused_trials,
    find_missing,
)
from resources.catalog import Catalog, ModelVersionRow, TrialRow
from resources.upkeep.ahead import files_ahead
from resources.upkeep.backup_files import (
    BEGUN,
    CATALOG,
    FILES,
    LONGEST_SECONDS,
    BackupManifest,
    Kept,
    backups_of,
    digest_in,
    file_of,
    files_of_models,
    files_to_keep,
    pack,
    read_checked,
    read_manifest,
    read_manifests,
    unpack,
    write_backup,
)
from resources.upkeep.catalog_dump import attempts_in, dump_catalog, revision_of

_TRIES = 5
_THREADS = 16
_SMALL = 1 << 23  # bytes that are copied through memory
_LATE_SECONDS = 86_400.0  # before the end of the time that a backup may take, from when on none is published
# a file that was written so long before a backup had the time of writing that it has for good
_SETTLED_SECONDS = 60.0
_PART = 1_000  # files between two words of progress
_SHOWN = 5
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
Progress = Callable[[int, int], None]
"""Called with how many files are in the backup, and how many there are."""


@dataclass(frozen=True)
class Made:
    """A backup that was made.

    Attributes:
        copied, copied_bytes: what was not there already.
        missing: what it lacks that its catalog names, because the store lacks it.
    """

    manifest: BackupManifest
    copied: int
    copied_bytes: int
    seconds: float
    missing: Sequence[NamedContent] = ()

    @property
    def problem(self) -> str:
        """What is missing, for people; empty where nothing is."""
        if not self.missing:
            return ""
        shown = "; ".join(f"{content.what} ({content.digest})" for content in self.missing[:_SHOWN])
        more = f"; and {len(self.missing) - _SHOWN} more" if len(self.missing) > _SHOWN else ""
        return (
            f"backup {self.manifest.id} lacks {len(self.missing)} contents that the catalog names, because "
            "they are not in the store "
            f"{self.manifest.root}: {shown}{more}. No older backup was deleted. halving doctor --all says "
            "what mends each"
        )


class _Copied(NamedTuple):
    digest: str
    bytes: int
    new: bool


def back_up(store: Store, catalog: Catalog, place: Store, progress: Progress | None = None) -> Made:
    """Make a backup.

    What an earlier one has is not copied again. Killed anywhere it leaves contents that the next one finds
    there.

    Args:
        place: where backups are to be: a folder or an object store of their own.

    Raises:
        InvalidInput: the place is the store, or inside of it; or the store has no file where there should be
            some.
        StoreError: the store, or the place, refuses; or a file is not what its digest says; or it took more
            than six days.
    """
    _check_apart(store, place)
    began = time.monotonic()
    moment = time.time()
    backup = f"{datetime.fromtimestamp(moment, UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    with _under_way(place, backup) as base, scratch_folder("backup") as folder:
        copying = _Copying(store, place, _known(place, base), progress)
        dump = folder / "catalog.jsonl.gz"
        contents: list[NamedContent] = []
        missing: list[NamedContent] = []
        for _ in range(_TRIES):
            before = {name for name, _, _ in files_to_keep(store, catalog.url)}
            contents.clear()
            rows = dump_catalog(catalog, dump, lambda session: contents.extend(_contents_of(session)))
            revision = revision_of(catalog)
            if not before:
                _check_is_there(store, catalog, place, rows)
            if not copying.copy(
                (name, 0, 0.0) for name in sorted(before & set(map(blob_name, _named(dump))))
            ):
                continue  # a file that the catalog named has been deleted
            if not any(copying.copy(files_to_keep(store, catalog.url)) for _ in range(_TRIES)):
                continue
            former = {content.digest for content in missing}
            missing = find_missing(store, contents, copying.files.__contains__)
            if {content.digest for content in missing} != former:
                # gone since the catalog was dumped, or lost: what the next round misses as well is lost
                continue
            ahead, apart = files_ahead(store, copying.files, before, *attempts_in(dump))
            if apart:
                break
        else:
            raise StoreError(
                f"no backup of {store.root} was made: in each of {_TRIES} rounds files were deleted or "
                "compacted while they were copied; "
                "try again later, or with no compact_metrics and no apply_retention beside it"
            )
        kept = {name: file for name, file in copying.files.items() if name not in ahead}
        files = pack(kept)
        place.create(file_of(backup, CATALOG), dump, sole=True)
        place.create(file_of(backup, FILES), files, sole=True)
        size = sum(file.bytes for file in kept.values())
        digests = digest_of(dump), digest_of(files)
        manifest = BackupManifest(
            backup,
            moment,
            store.root,
            revision,
            *digests,
            rows=rows,
            count=len(kept),
            bytes=size,
            missing=len(missing),
        )
        if time.time() > moment + LONGEST_SECONDS - _LATE_SECONDS:
            raise StoreError(
                f"backup {backup} took longer than six days, so what it copied first may be gone by now: "
                "make another one"
            )
        write_backup(place, manifest)
    return Made(manifest, copying.copied, copying.copied_bytes, time.monotonic() - began, missing)


def _check_apart(store: Store, place: Store) -> None:
    """Refuse a place inside of the store or around it."""
    if store.folder is not None and place.folder is not None:
        here = store.folder.resolve()
        there = place.folder.resolve()
        together = here.is_relative_to(there) or there.is_relative_to(here)
    else:
        here_root, there_root = (f"{each.root.partition('?')[0]}/" for each in (store, place))
        together = here_root.startswith(there_root) or there_root.startswith(here_root)
    if together:
        raise InvalidInput(
            f"{place.root} is not accepted: give a place for backups that is apart from the store "
            f"{store.root}"
        )


def _contents_of(session: Session) -> list[NamedContent]:
    return [*contents_of_models(session), *contents_of_paused_trials(session)]


def _check_is_there(store: Store, catalog: Catalog, place: Store, rows: Mapping[str, int]) -> None:
    """Refuse a store without any file where the catalog, or an earlier backup, says that there should be
    some.
    """
    if next(files_of_models(store), None) is not None:
        return
    tables = {"trials": TrialRow, "versions of models": ModelVersionRow}
    named = [f"{count} {noun}" for noun, table in tables.items() if (count := rows[table.__tablename__])]
    earlier = [
        manifest
        for manifest in read_manifests(place, backups_of(place))
        if manifest.root == store.root and manifest.count
    ]
    if named:
        reason = f"the catalog {catalog!r} has {' and '.join(named)}"
    elif earlier:
        reason = f"its backup {earlier[-1].id} has {earlier[-1].count}"
    else:
        return
    raise InvalidInput(
        f"the store {store.root} is not accepted: it has no files, and {reason}. Is its disk mounted, and "
        "is it the right one (--root, "
        "HALVING_ROOT)? No backup was made, and none deleted"
    )


class _Known(NamedTuple):
    """What the backup has on which another one builds, and when it began."""

    files: Mapping[str, Kept]
    began: float


@contextlib.contextmanager
def _under_way(place: Store, backup: str) -> Iterator[BackupManifest | None]:
    """Until the end of the block: it has begun, on the backup that comes.

    One that fails must not keep old contents for a week.
    """
    base = _begin(place, backup)
    try:
        yield base
    except Exception:
        with contextlib.suppress(StoreError):
            place.delete(file_of(backup, BEGUN))
        raise


def _begin(place: Store, backup: str) -> BackupManifest | None:
    """Say in the place that a backup is under way, and on which it builds: the newest.

    What that one has stays from then on, even if it is deleted (:mod:`resources.upkeep.old_backups`), because
    it is there afterwards.
    """
    while True:
        base = next(reversed(backups_of(place)), None)
        place.replace(file_of(backup, BEGUN), to_json({"base": base}))
        with contextlib.suppress(NotFound):  # deleted in this moment: on another one
            return read_manifest(place, base) if base else None


def _known(place: Store, base: BackupManifest | None) -> _Known:
    return (
        _Known(unpack(read_checked(place, base, FILES, base.files)), base.began) if base else _Known({}, 0.0)
    )


def _named(dump: Path) -> set[str]:
    """Every digest that a dump has, of whatever."""
    found: set[str] = set()
    with gzip.open(dump, "rt", encoding="utf-8") as lines:
        for line in lines:
            found.update(_DIGEST.findall(line))
    return found


class _Copying:
    """Copies files of a store into a place of backups.

    Attributes:
        files: what the backup holds, by name.
        copied, copied_bytes: what was not there already.
    """

    def __init__(self, store: Store, place: Store, known: _Known, progress: Progress | None) -> None:
        self._store = store
        self._place = place
        self._known = known
        self._progress = progress
        self.files: dict[str, Kept] = {}
        self.copied = self.copied_bytes = 0
        self._contents: set[str] = set()  # digests that are there and stay
        self._of_base = {kept.digest for kept in known.files.values()}

    def copy(self, listed: Iterable[tuple[str, int, float]]) -> bool:
        """Copy files, given by name, bytes and time of writing, that are not copied yet; whether none had
        vanished.
        """
        waiting = [file for file in listed if not self._is_done(*file)]
        whole = True
        left = iter(waiting)
        done = 0
        with ThreadPoolExecutor(_THREADS) as pool:
            while part := list(islice(left, _PART)):
                for (name, size, written), found in zip(part, pool.map(self._copied, part), strict=True):
                    if found is None:
                        whole = False
                        continue
                    self.files[name] = Kept(found.bytes, written if size else 0.0, found.digest)
                    self._contents.add(found.digest)
                    self.copied, self.copied_bytes = (
                        self.copied + found.new,
                        self.copied_bytes + found.new * found.bytes,
                    )
                done += len(part)
                if self._progress:
                    self._progress(done, len(waiting))
        return whole

    def _is_done(self, name: str, size: int, written: float) -> bool:
        kept = self.files.get(name)
        if kept is None:
            return False
        return digest_in(name) is not None or (kept.bytes, kept.written) == (size, written)

    def _copied(self, file: tuple[str, int, float]) -> _Copied | None:
        """Have a file's content in the place; None: the file has vanished, or been replaced meanwhile."""
        name, size, written = file
        known = self._known.files.get(name)
        digest = digest_in(name)
        same = (
            known
            and (known.bytes, known.written) == (size, written)
            and written < self._known.began - _SETTLED_SECONDS
        )
        if known and (same or digest) and self._stays(known.digest):
            return _Copied(known.digest, known.bytes, False)
        try:
            if size and size <= _SMALL:
                return self._put(name, self._store.read(name), digest)
            if self._store.folder is not None and (local := self._store.folder / name).exists():
                return self._put(name, local, digest)
            with temporary_file() as copy:
                for part in self._store.parts(name):
                    copy.write(part)
                copy.flush()
                return self._put(name, path_of(copy), digest)
        except (FileNotFoundError, NotFound):
            return None

    def _put(self, name: str, content: bytes | Path, expected: str | None) -> _Copied | None:
        digest = digest_of(content)
        if expected and digest != expected:
            raise StoreError(
                f"the blob {expected} in {self._store.root} is damaged: its content hashes to {digest}"
            )
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        if self._stays(digest):
            return _Copied(digest, size, False)
        was_there = self._place.has_blob(digest)
        try:
            # one that was there may be about to go: if it is a day old it is written again
            self._place.put_hashed_blob(content, digest)
        except StoreError:
            if isinstance(content, Path) and digest_of(content) != digest:
                return None
            raise
        return _Copied(digest, size, not was_there)

    def _stays(self, digest: str) -> bool:
        """Whether a content is in the place, and nobody deletes it meanwhile."""
        return digest in self._contents or (digest in self._of_base and self._place.has_blob(digest))

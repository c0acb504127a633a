"""Making a backup: the store's files and the catalog, so that everything that the catalog names is in it.

The store is listed, the catalog is dumped, the files that it names are copied, and then all others. This
order holds because a file is in the store before the catalog names it. Files that are written meanwhile are
in the backup too, except those of attempts that the dumped catalog does not count yet
(:mod:`resources.upkeep.newer_files`). If retention or compaction deletes files meanwhile, the store is listed
again for what replaced them; if the catalog named them, it is dumped again as well. Each round copies only
what is new, so the next is short.
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
from resources.upkeep.backup_files import (
    BEGUN,
    CATALOG,
    FILES,
    MAX_BACKUP_SECONDS,
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
from resources.upkeep.newer_files import find_newer_files

_MAX_ROUNDS = 5
_THREADS = 16
_MAX_IN_MEMORY = 1 << 23  # bytes of a file that is copied through memory
# A backup is not published in the last day of the time that it may take.
_LATE_SECONDS = 86_400.0
# A store may change a file's time of writing, but not this long after it was written.
_SETTLED_SECONDS = 60.0
_FILES_PER_PROGRESS = 1_000
_MAX_NAMES = 5
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
Progress = Callable[[int, int], None]
"""Called with the number of files that are in the backup, and the number of all."""


@dataclass(frozen=True)
class Made:
    """A backup that was made.

    Attributes:
        copied, copied_bytes: contents that the place did not have already.
        missing: contents that its catalog names and the store lacks.
    """

    manifest: BackupManifest
    copied: int
    copied_bytes: int
    seconds: float
    missing: Sequence[NamedContent] = ()

    @property
    def problem(self) -> str:
        """What is missing, in a sentence; empty where nothing is."""
        if not self.missing:
            return ""
        names = "; ".join(f"{content.title} ({content.digest})" for content in self.missing[:_MAX_NAMES])
        if len(self.missing) > _MAX_NAMES:
            names += f"; and {len(self.missing) - _MAX_NAMES} more"
        return (
            f"backup {self.manifest.id} lacks {len(self.missing)} contents that the catalog names, because "
            f"they are not in the store {self.manifest.root}: {names}. No older backup was deleted. halving "
            "doctor --all says what mends each"
        )


class _Copied(NamedTuple):
    digest: str
    bytes: int
    new: bool


def back_up(store: Store, catalog: Catalog, place: Store, progress: Progress | None = None) -> Made:
    """Make a backup.

    Contents of an earlier backup are not copied again. If it is killed, the next one uses what it has copied.

    Args:
        place: the place of the backups: a folder or an object store of their own.

    Raises:
        InvalidInput: the place is the store, or inside of it; or the store has no files although it should
            have some.
        StoreError: the store, or the place, refuses; or a file is not what its digest says; or it took more
            than six days.
    """
    _check_apart(store, place)
    began = time.monotonic()
    started = time.time()
    backup = f"{datetime.fromtimestamp(started, UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    with _under_way(place, backup) as base, scratch_folder("backup") as folder:
        copying = _Copying(store, place, _read_base(place, base), progress)
        dump = folder / "catalog.jsonl.gz"
        contents: list[NamedContent] = []
        missing: list[NamedContent] = []
        for _ in range(_MAX_ROUNDS):
            before = {name for name, _, _ in files_to_keep(store, catalog.url)}
            contents.clear()
            rows = dump_catalog(catalog, dump, lambda session: contents.extend(_contents_of(session)))
            revision = revision_of(catalog)
            if not before:
                _check_is_there(store, catalog, place, rows)
            named = sorted(before & set(map(blob_name, _digests_in(dump))))
            if not copying.copy((name, 0, 0.0) for name in named):
                continue  # A file that the catalog named has been deleted.
            if not any(copying.copy(files_to_keep(store, catalog.url)) for _ in range(_MAX_ROUNDS)):
                continue
            former = {content.digest for content in missing}
            missing = find_missing(store, contents, copying.files.__contains__)
            if {content.digest for content in missing} != former:
                # The new ones were deleted since the catalog was dumped, or are lost: those that the next
                # round misses as well are lost.
                continue
            ahead, apart = find_newer_files(store, copying.files, before, *attempts_in(dump))
            if apart:
                break
        else:
            raise StoreError(
                f"no backup of {store.root} was made: in each of {_MAX_ROUNDS} rounds files were deleted or "
                "compacted while they were copied; try again later, or with no compact_metrics and no "
                "apply_retention beside it"
            )
        entries = {name: file for name, file in copying.files.items() if name not in ahead}
        files = pack(entries)
        place.create(file_of(backup, CATALOG), dump, sole=True)
        place.create(file_of(backup, FILES), files, sole=True)
        size = sum(file.bytes for file in entries.values())
        digests = digest_of(dump), digest_of(files)
        manifest = BackupManifest(
            backup,
            started,
            store.root,
            revision,
            *digests,
            rows=rows,
            count=len(entries),
            bytes=size,
            missing=len(missing),
        )
        if time.time() > started + MAX_BACKUP_SECONDS - _LATE_SECONDS:
            raise StoreError(
                f"backup {backup} took longer than six days, so what it copied first may be gone by now: "
                "make another one"
            )
        write_backup(place, manifest)
    return Made(manifest, copying.copied, copying.copied_bytes, time.monotonic() - began, missing)


def _check_apart(store: Store, place: Store) -> None:
    """Refuse a place inside of the store or around it."""
    if store.folder is not None and place.folder is not None:
        store_folder = store.folder.resolve()
        place_folder = place.folder.resolve()
        overlaps = store_folder.is_relative_to(place_folder) or place_folder.is_relative_to(store_folder)
    else:
        store_root = f"{store.root.partition('?')[0]}/"
        place_root = f"{place.root.partition('?')[0]}/"
        overlaps = store_root.startswith(place_root) or place_root.startswith(store_root)
    if overlaps:
        raise InvalidInput(
            f"{place.root} is not accepted: give a place for backups that is apart from the store "
            f"{store.root}"
        )


def _contents_of(session: Session) -> list[NamedContent]:
    return [*contents_of_models(session), *contents_of_paused_trials(session)]


def _check_is_there(store: Store, catalog: Catalog, place: Store, rows: Mapping[str, int]) -> None:
    """Refuse a store without any file where the catalog or an earlier backup has some."""
    if next(files_of_models(store), None) is not None:
        return
    tables = {"trials": TrialRow, "versions of models": ModelVersionRow}
    counts = [f"{count} {noun}" for noun, table in tables.items() if (count := rows[table.__tablename__])]
    earlier = [
        manifest
        for manifest in read_manifests(place, backups_of(place))
        if manifest.root == store.root and manifest.count
    ]
    if counts:
        reason = f"the catalog {catalog!r} has {' and '.join(counts)}"
    elif earlier:
        reason = f"its backup {earlier[-1].id} has {earlier[-1].count}"
    else:
        return
    raise InvalidInput(
        f"the store {store.root} is not accepted: it has no files, and {reason}. Is its disk mounted, and "
        "is it the right one (--root, HALVING_ROOT)? No backup was made, and none deleted"
    )


class _Base(NamedTuple):
    """The files of the backup on which another one builds, and when that backup began."""

    files: Mapping[str, Kept]
    began: float


@contextlib.contextmanager
def _under_way(place: Store, backup: str) -> Iterator[BackupManifest | None]:
    """Mark a backup as begun until the end of the block; yields the backup on which it builds.

    A backup that fails loses the mark, because it must not keep old contents for a week.
    """
    base = _begin(place, backup)
    try:
        yield base
    except Exception:
        with contextlib.suppress(StoreError):
            place.delete(file_of(backup, BEGUN))
        raise


def _begin(place: Store, backup: str) -> BackupManifest | None:
    """Write into the place that a backup has begun, and that it builds on the newest one, which is returned.

    The contents of the newest backup stay from then on, even if it is deleted
    (:mod:`resources.upkeep.old_backups`), if it is still there after the mark was written.
    """
    while True:
        base = next(reversed(backups_of(place)), None)
        place.replace(file_of(backup, BEGUN), to_json({"base": base}))
        if base is None:
            return None
        with contextlib.suppress(NotFound):  # It has just been deleted, so the next one is tried.
            return read_manifest(place, base)


def _read_base(place: Store, base: BackupManifest | None) -> _Base:
    if base is None:
        return _Base({}, 0.0)
    return _Base(unpack(read_checked(place, base, FILES, base.files)), base.began)


def _digests_in(dump: Path) -> set[str]:
    """Every digest that occurs in a dump."""
    digests: set[str] = set()
    with gzip.open(dump, "rt", encoding="utf-8") as lines:
        for line in lines:
            digests.update(_DIGEST.findall(line))
    return digests


class _Copying:
    """Copies files of a store into a place of backups.

    Attributes:
        files: the files of the backup, by name.
        copied, copied_bytes: contents that the place did not have already.
    """

    def __init__(self, store: Store, place: Store, base: _Base, progress: Progress | None) -> None:
        self._store = store
        self._place = place
        self._base = base
        self._progress = progress
        self.files: dict[str, Kept] = {}
        self.copied = 0
        self.copied_bytes = 0
        self._contents: set[str] = set()  # digests of contents that are in the place and stay
        self._of_base = {entry.digest for entry in base.files.values()}

    def copy(self, listed: Iterable[tuple[str, int, float]]) -> bool:
        """Copy files that are not copied yet; returns False where one of them had vanished.

        Args:
            listed: name, bytes and time of writing of each file.
        """
        waiting = [file for file in listed if not self._is_done(*file)]
        whole = True
        left = iter(waiting)
        done = 0
        with ThreadPoolExecutor(_THREADS) as pool:
            while part := list(islice(left, _FILES_PER_PROGRESS)):
                copies = pool.map(self._copy_file, part)
                for (name, size, written), copy in zip(part, copies, strict=True):
                    if copy is None:
                        whole = False
                        continue
                    if not size:
                        written = 0.0
                    self.files[name] = Kept(copy.bytes, written, copy.digest)
                    self._contents.add(copy.digest)
                    if copy.new:
                        self.copied += 1
                        self.copied_bytes += copy.bytes
                done += len(part)
                if self._progress:
                    self._progress(done, len(waiting))
        return whole

    def _is_done(self, name: str, size: int, written: float) -> bool:
        entry = self.files.get(name)
        if entry is None:
            return False
        return digest_in(name) is not None or (entry.bytes, entry.written) == (size, written)

    def _copy_file(self, file: tuple[str, int, float]) -> _Copied | None:
        """Bring a file's content into the place; None if the file has vanished or been replaced meanwhile."""
        name, size, written = file
        in_base = self._base.files.get(name)
        digest = digest_in(name)
        is_same = (
            in_base
            and (in_base.bytes, in_base.written) == (size, written)
            and written < self._base.began - _SETTLED_SECONDS
        )
        if in_base and (is_same or digest) and self._stays(in_base.digest):
            return _Copied(in_base.digest, in_base.bytes, False)
        try:
            if size and size <= _MAX_IN_MEMORY:
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
            # A content in the place may be about to be deleted: if it is a day old it is written again.
            self._place.put_hashed_blob(content, digest)
        except StoreError:
            if isinstance(content, Path) and digest_of(content) != digest:
                return None
            raise
        return _Copied(digest, size, not was_there)

    def _stays(self, digest: str) -> bool:
        """Whether a content is in the place and will not be deleted meanwhile."""
        return digest in self._contents or (digest in self._of_base and self._place.has_blob(digest))

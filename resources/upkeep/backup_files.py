"""The files of a backup, in a folder or an object store of its own.

``backups/ID/begun.json`` is written first, and ``backups/ID/manifest.json`` last; without the manifest there
is no backup. It has the digests of ``catalog.jsonl.gz`` and of ``files.parquet``, which lists the store's
files with the digest of each. Contents lie under their digests, as blobs of a store do, and all backups of a
place share them.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import make_url

from halving.errors import InvalidInput, NotFound, StoreError
from halving.store.cold_roots import BLOBS
from halving.store.json_files import to_json
from halving.store.store import Store, digest_of

FORMAT = 1
BEGUN = "begun.json"
"""The file with the id of the backup on which this one builds, or null."""
MANIFEST = "manifest.json"
FILES = "files.parquet"
CATALOG = "catalog.jsonl.gz"
MAX_BACKUP_SECONDS = 7 * 86_400.0
"""A backup that began this long ago and is not whole was killed."""
_OF_THE_CATALOG = "models/"
_OF_RETENTION = ("retention/begun/", "retention/by-itself.log", "retention/last.json")
_OF_A_MACHINE = (
    "catalog.db",
    "catalog.lock",
    "catalog.publishing.lock",
    "dagster/",
    "journal/",
    "cold/",
    "restoring.json",
)
_LEFT_OUT = (*_OF_A_MACHINE, *_OF_RETENTION, _OF_THE_CATALOG)
_BLOB = re.compile(r"artifacts/sha256/[0-9a-f]{2}/([0-9a-f]{64})")


class Kept(NamedTuple):
    """A file of the store in a backup; ``written`` is the store's time of writing, in seconds since 1970."""

    bytes: int
    written: float
    digest: str


@dataclass(frozen=True)
class BackupManifest:
    """One backup.

    Attributes:
        id: the time when it began, and a few characters that no other backup has.
        began: seconds since 1970.
        root: the store's root.
        revision: the revision of the catalog's schema.
        catalog, files: digests of the two files.
        rows: the number of the catalog's rows, by table.
        count, bytes: the number of the store's files, and their bytes.
        missing: how many contents the catalog names that the store lacked.
    """

    id: str
    began: float
    root: str
    revision: str
    catalog: str
    files: str
    rows: Mapping[str, int]
    count: int
    bytes: int
    missing: int = 0
    format: int = FORMAT


def files_to_keep(store: Store, url: str | None = None) -> Iterator[tuple[str, int, float]]:
    """Name, bytes and time of writing of each file of a store that a backup holds.

    Blobs of a colder place are among them; a restored store has all in one place. Left out are the catalog's
    file, which is dumped instead; Dagster's instance and journals, which belong to a machine; files that are
    being written; published models, which are written again from the catalog; and the record of automatic
    retention.

    Args:
        url: the catalog's URL, which may name another file in the store than ``catalog.db``.
    """
    of_catalog = names_of_catalog(store, url)
    for name, size, written in chain(
        store.files(""), *(place.files(BLOBS.rstrip("/")) for place in store.colder_places)
    ):
        name = name.lstrip("/")
        is_left_out = (
            name.startswith(_LEFT_OUT)
            or name in of_catalog
            or any(part.startswith(".") for part in name.split("/"))
        )
        if not is_left_out:
            yield name, size, written


def names_of_catalog(store: Store, url: str | None) -> frozenset[str]:
    """Files that a SQLite catalog may have in the store's folder: its own, SQLite's beside it, and locks."""
    if store.folder is None or not url:
        return frozenset()
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return frozenset()
    file = Path(parsed.database).resolve()
    folder = store.folder.resolve()
    if not file.is_relative_to(folder):
        return frozenset()
    beside = [file.with_name(f"{file.name}{ending}") for ending in ("", "-wal", "-shm", "-journal")]
    locks = [file.with_suffix(".lock"), file.with_suffix(".publishing.lock")]
    return frozenset(path.relative_to(folder).as_posix() for path in [*beside, *locks])


def files_of_models(store: Store) -> Iterator[tuple[str, int, float]]:
    """The files of published models, with which a store is not empty either."""
    return store.files(_OF_THE_CATALOG.rstrip("/"))


def digest_in(name: str) -> str | None:
    """The digest in a blob's name; None where it is no blob."""
    match = _BLOB.fullmatch(name)
    if match is None:
        return None
    return f"sha256:{match[1]}"


def file_of(backup: str, name: str) -> str:
    """The name of one of a backup's own files."""
    return f"backups/{backup}/{name}"


def backups_of(place: Store) -> list[str]:
    """The ids of the whole backups of a place, oldest first."""
    return [name for name in place.names("backups") if place.exists(file_of(name, MANIFEST))]


def read_manifests(place: Store, backups: Iterable[str]) -> list[BackupManifest]:
    """The manifests of whole backups, without those that somebody has just deleted."""
    manifests = []
    for backup in backups:
        with contextlib.suppress(NotFound):
            manifests.append(read_manifest(place, backup))
    return manifests


def read_backup(place: Store, backup: str | None = None) -> BackupManifest:
    """A backup's manifest; by default that of the newest.

    Raises:
        NotFound: there is no whole backup, or none of this id.
        InvalidInput: a later version made it, or none is chosen although the place has backups of several
            stores.
    """
    backups = backups_of(place)
    if backups and backup is not None:
        if backup not in backups:
            raise NotFound(f"no backup {backup!r} in {place.root}; there are {', '.join(backups[-8:])}")
        return read_manifest(place, backup)
    manifests = sorted(read_manifests(place, backups), key=lambda manifest: manifest.began)
    if not manifests:
        raise NotFound(f"no backup in {place.root}: halving backup {place.root} makes one")
    newest = {manifest.root: manifest for manifest in manifests}
    if len(newest) > 1:
        times = {root: datetime.fromtimestamp(manifest.began, UTC) for root, manifest in newest.items()}
        choices = ", ".join(
            f"{manifest.id} of {root} ({times[root]:%Y-%m-%d %H:%M} UTC)" for root, manifest in newest.items()
        )
        raise InvalidInput(
            f"--backup is needed: {place.root} has backups of {len(newest)} stores; the newest of each: "
            f"{choices}; halving backup {place.root} --list shows all"
        )
    return manifests[-1]


def read_manifest(place: Store, backup: str) -> BackupManifest:
    """The manifest of a whole backup.

    Raises:
        NotFound: there is none.
        InvalidInput: a later version made it.
        StoreError: it is damaged.
    """
    name = file_of(backup, MANIFEST)
    try:
        fields: dict[str, Any] = json.loads(place.read(name))
    except ValueError as error:
        raise StoreError(f"{place.address(name)} is damaged: {error}") from None
    if fields.get("format") != FORMAT:
        raise InvalidInput(
            f"format = {fields.get('format')!r} of {place.address(name)} is not accepted: this version "
            f"reads {FORMAT}"
        )
    return BackupManifest(**fields)


def write_backup(place: Store, manifest: BackupManifest) -> None:
    """Publish a backup: from here on it is whole."""
    place.create(file_of(manifest.id, MANIFEST), to_json(asdict(manifest)), sole=True)


def read_checked(place: Store, manifest: BackupManifest, name: str, digest: str) -> bytes:
    """Read one of a backup's own files, and check its digest.

    Raises:
        NotFound: it is missing.
        StoreError: its content is not what the manifest says.
    """
    content = place.read(file_of(manifest.id, name))
    if digest_of(content) != digest:
        raise StoreError(
            f"{place.address(file_of(manifest.id, name))} is damaged: it hashes to {digest_of(content)}"
        )
    return content


def pack(files: Mapping[str, Kept]) -> bytes:
    """Write a list of files as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = sorted(files)
    columns = {
        "name": names,
        **{field: [getattr(files[name], field) for name in names] for field in Kept._fields},
    }
    sink = pa.BufferOutputStream()
    types = pa.schema(
        [("name", pa.string()), ("bytes", pa.int64()), ("written", pa.float64()), ("digest", pa.string())]
    )
    pq.write_table(pa.table(columns, schema=types), sink, compression="zstd")
    return bytes(sink.getvalue())


def unpack(content: bytes) -> dict[str, Kept]:
    """Read a list of files that :func:`pack` has written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(content))
    rows = zip(*(table[name].to_pylist() for name in ("name", *Kept._fields)), strict=True)
    return {name: Kept(*rest) for name, *rest in rows}


def digests_of(content: bytes) -> set[str]:
    """The digests in a list of files that :func:`pack` has written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return set(pq.read_table(pa.BufferReader(content), columns=["digest"])["digest"].unique().to_pylist())

"""What a backup is made of, in a folder or an object store of its own.

``backups/ID/begun.json`` is written first, and ``backups/ID/manifest.json`` last: without it there is no
backup. It names, by their digests, ``catalog.jsonl.gz`` and ``files.parquet``, the list of the store's files
with the digest of each. Contents lie under their digests, as blobs of a store do, and all backups of a place
share them.
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
from halving.store.cold import BLOBS
from halving.store.json_files import to_json
from halving.store.store import Store, digest_of

FORMAT = 1
BEGUN = "begun.json"
"""Of a backup: on which other one it builds, by its id, or null."""
MANIFEST = "manifest.json"
FILES = "files.parquet"
CATALOG = "catalog.jsonl.gz"
LONGEST_SECONDS = 7 * 86_400.0
"""From when on a backup that has begun and is not whole was killed."""
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
    """A file of the store as a backup has it: its size, its time of writing by the store (seconds since
    1970), and its digest.
    """

    bytes: int
    written: float
    digest: str


@dataclass(frozen=True)
class BackupManifest:
    """One backup.

    Attributes:
        id: the time when it began, and a few characters that no other backup has.
        began: seconds since 1970.
        root: where the store was.
        revision: of the catalog's schema.
        catalog, files: digests of the two files.
        rows: of the catalog, by table.
        count, bytes: of the store's files.
        missing: how many contents it lacks that its catalog names, because the store lacked them.
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

    Blobs that lie in a colder place are among them: a restored store has all in one place. The catalog's own
    file is dumped instead; Dagster's instance and journals, which belong to a machine, are left out, and so
    are files that are being written, what the store says of models, which is written again from the catalog,
    and when retention was carried out by itself.

    Args:
        url: the catalog's, which may be another file in the store than ``catalog.db``.
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
    """What SQLite's catalog may have in the store's folder: its file, what SQLite keeps beside it, and its
    locks.
    """
    parsed = make_url(url) if url else None
    if store.folder is None or parsed is None or parsed.get_backend_name() != "sqlite" or not parsed.database:
        return frozenset()
    file = Path(parsed.database).resolve()
    folder = store.folder.resolve()
    if not file.is_relative_to(folder):
        return frozenset()
    beside = [file.with_name(f"{file.name}{ending}") for ending in ("", "-wal", "-shm", "-journal")]
    locks = [file.with_suffix(".lock"), file.with_suffix(".publishing.lock")]
    return frozenset(path.relative_to(folder).as_posix() for path in [*beside, *locks])


def files_of_models(store: Store) -> Iterator[tuple[str, int, float]]:
    """Those files, with which a store is not empty either."""
    return store.files(_OF_THE_CATALOG.rstrip("/"))


def digest_in(name: str) -> str | None:
    """The digest that a blob's name says."""
    found = _BLOB.fullmatch(name)
    return f"sha256:{found[1]}" if found else None


def file_of(backup: str, name: str) -> str:
    """Where one of a backup's own files is."""
    return f"backups/{backup}/{name}"


def backups_of(place: Store) -> list[str]:
    """The ids of the whole backups of a place, oldest first."""
    return [name for name in place.names("backups") if place.exists(file_of(name, MANIFEST))]


def read_manifests(place: Store, backups: Iterable[str]) -> list[BackupManifest]:
    """Those of whole backups, but for what somebody else deletes in this moment."""
    manifests = []
    for backup in backups:
        with contextlib.suppress(NotFound):
            manifests.append(read_manifest(place, backup))
    return manifests


def read_backup(place: Store, backup: str | None = None) -> BackupManifest:
    """A backup's manifest; by default that of the newest.

    Raises:
        NotFound: there is no whole backup, or none of this id.
        InvalidInput: a later version made it, or none is chosen where there are those of several stores.
    """
    known = backups_of(place)
    if known and backup is not None:
        if backup not in known:
            raise NotFound(f"no backup {backup!r} in {place.root}; there are {', '.join(known[-8:])}")
        return read_manifest(place, backup)
    manifests = sorted(read_manifests(place, known), key=lambda manifest: manifest.began)
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
            f"{choices}; "
            f"halving backup {place.root} --list shows all"
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
        found: dict[str, Any] = json.loads(place.read(name))
    except ValueError as error:
        raise StoreError(f"{place.address(name)} is damaged: {error}") from None
    if found.get("format") != FORMAT:
        raise InvalidInput(
            f"format = {found.get('format')!r} of {place.address(name)} is not accepted: this version "
            f"reads {FORMAT}"
        )
    return BackupManifest(**found)


def write_backup(place: Store, manifest: BackupManifest) -> None:
    """Publish a backup: from here on it is whole."""
    place.create(file_of(manifest.id, MANIFEST), to_json(asdict(manifest)), sole=True)


def read_checked(place: Store, manifest: BackupManifest, name: str, digest: str) -> bytes:
    """One of a backup's own files.

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
    """A list of files as Parquet."""
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
    """What :func:`pack` packed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(content))
    rows = zip(*(table[name].to_pylist() for name in ("name", *Kept._fields)), strict=True)
    return {name: Kept(*rest) for name, *rest in rows}


def digests_of(content: bytes) -> set[str]:
    """The digests in what :func:`pack` packed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return set(pq.read_table(pa.BufferReader(content), columns=["digest"])["digest"].unique().to_pylist())

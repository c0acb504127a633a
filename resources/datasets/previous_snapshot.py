"""What a new snapshot takes over from the dataset's newest one, so that its rows are not stored again."""

import base64
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sqlalchemy import Select, select

from halving import Dataset, Store
from halving.data.shards import shards_of
from halving.data.snapshot import snapshot_folder
from halving.errors import NotFound
from halving.store.retry import warn
from resources.catalog import Catalog, SnapshotRow
from resources.datasets.file_sources import Part

PARTS = "parts.parquet"
"""The file beside a manifest that lists the identities of the source's parts, in order, if they have any."""

Digests = NDArray[np.bytes_]
"""Digests of the identities of a source's parts: 16 bytes each, by BLAKE2b.

The identities of a million files would take ten times as much memory.
"""

_DIGEST_BYTES = 16
_AT_ONCE = 65_536  # identities of parts that are Python objects at a time

_CUTTING = (
    "target",
    "splits",
    "group",
    "redeal",
    "folds",
    "split_column",
    "split_times",
    "seed",
    "shard_mib",
)


@dataclass(frozen=True)
class PreviousSnapshot:
    """A snapshot whose rows were dealt and cut by the same rules.

    Attributes:
        parts: digests of its source's parts, if the same code made their rows; None if they are not known,
            so that all rows are read again.
    """

    manifest: dict[str, Any]
    parts: Digests | None

    @property
    def read_as(self) -> pa.Schema | None:
        """The union of the columns of its source's parts, to which their rows were cast.

        None if the parts could not say their columns beforehand.
        """
        text = self.manifest.get("read_as")
        if not text:
            return None
        return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))

    def added_parts(self, parts: Digests | None) -> list[int] | None:
        """The numbers of the parts that are new, if the others are the same as before.

        None if a part is gone or changed, or the parts are not known.
        """
        if self.parts is None or parts is None or not np.isin(self.parts, parts).all():
            return None
        return np.flatnonzero(~np.isin(parts, self.parts)).tolist()


def digests_of_parts(parts: Iterable[Part]) -> Digests | None:
    """The digest of each part's identity, in order; None if a part has none."""
    digests = bytearray()
    for part in parts:
        if part.identity is None:
            return None
        digests += _digest(part.identity)
    return _as_digests(digests)


def content_of_parts(parts: Iterable[Part]) -> bytes:
    """The content of the file :data:`PARTS` for parts that all have an identity."""
    schema = pa.schema([("part", pa.large_string())])
    sink = pa.BufferOutputStream()
    remaining = iter(parts)
    with pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False) as writer:
        while identities := [part.identity for part in islice(remaining, _AT_ONCE)]:
            writer.write_table(pa.table([identities], schema=schema))
    return bytes(sink.getvalue())


@dataclass(frozen=True)
class PreviousKey:
    """The columns whose hash dealt the rows of a dataset when its spec named none.

    Attributes:
        snapshot: digest of the newest snapshot that was taken so.
        types: the columns with their types, as text.
    """

    snapshot: str
    types: dict[str, str]


def newest_digest(catalog: Catalog, name: str) -> str | None:
    """The digest of a dataset's newest snapshot."""
    with catalog.read() as session:
        return session.scalar(_newest(name).with_only_columns(SnapshotRow.digest))


def find_previous_snapshot(
    store: Store, catalog: Catalog, recipe: dict[str, Any], transform_sha256: str
) -> PreviousSnapshot | None:
    """Find the dataset's newest snapshot, if it was dealt and cut as the recipe says."""
    with catalog.read() as session:
        row = session.scalar(_newest(recipe["name"]))
        if row is None or any(row.recipe.get(field) != recipe.get(field) for field in _CUTTING):
            return None
        digest = row.digest
        same_source = _source_without_version(row.recipe) == _source_without_version(recipe)
        same_code = row.transform_sha256 == transform_sha256 and same_source
    try:
        manifest = Dataset(store, recipe["name"], digest).manifest
    except NotFound:
        return None
    if not same_code:
        return PreviousSnapshot(manifest, None)
    return PreviousSnapshot(manifest, _read_parts(store, manifest))


def find_previous_key(store: Store, catalog: Catalog, recipe: dict[str, Any]) -> PreviousKey | None:
    """Find the columns that dealt the rows of a dataset last, when its spec named none.

    A spec names what deals rows by group, split_column or split_times.

    Returns:
        None where the recipe names one of them, there is no such snapshot, or the manifests of all are gone.
    """
    if not _is_dealt_by_columns(recipe):
        return None
    name = recipe["name"]
    with catalog.read() as session:
        snapshots = session.execute(
            _newest(name).limit(None).with_only_columns(SnapshotRow.digest, SnapshotRow.recipe)
        ).all()
    for digest, previous_recipe in snapshots:
        if _is_dealt_by_columns(previous_recipe):
            with contextlib.suppress(NotFound):
                manifest = Dataset(store, name, digest).manifest
                return PreviousKey(digest, {column: manifest["schema"][column] for column in manifest["key"]})
    return None


def _is_dealt_by_columns(recipe: dict[str, Any]) -> bool:
    """Whether a recipe leaves open what decides a row's split."""
    return not any(recipe.get(field) for field in ("group", "split_column", "split_times"))


def _newest(name: str) -> Select[SnapshotRow]:
    return (
        select(SnapshotRow).where(SnapshotRow.name == name).order_by(SnapshotRow.created_at.desc()).limit(1)
    )


def _source_without_version(recipe: dict[str, Any]) -> Any:
    """The source without its version.

    From another place, or read in another way, a part of the same name is not the same part.
    """
    source = recipe.get("source")
    if not isinstance(source, dict):
        return source
    return {field: value for field, value in source.items() if field not in ("version", "snapshot")}


def _read_parts(store: Store, manifest: dict[str, Any]) -> Digests | None:
    """Read the digests of the parts of a snapshot's source.

    None if the parts have no identities, the file is damaged, or a shard of the snapshot is lost.
    """
    name = f"{snapshot_folder(manifest['name'], manifest['digest'])}/{PARTS}"
    digests = bytearray()
    try:
        table = pq.read_table(pa.BufferReader(store.read(name)))
    except NotFound:  # The parts of its source have no identities.
        return None
    except pa.ArrowInvalid as error:
        warn(f"all of {manifest['name']} is read again, because {name} in {store.root} is damaged: {error}")
        return None
    for batch in table.to_batches(_AT_ONCE):
        for identity in batch.column("part").to_pylist():
            digests += _digest(identity)
    if _has_lost_shards(store, manifest):
        return None
    return _as_digests(digests)


def _digest(identity: str) -> bytes:
    return blake2b(identity.encode(), digest_size=_DIGEST_BYTES).digest()


def _as_digests(content: bytearray) -> Digests:
    # NumPy ignores NUL bytes at the end of a text in comparisons, which changes nothing for equal lengths.
    return np.frombuffer(content, f"S{_DIGEST_BYTES}")


def _has_lost_shards(store: Store, manifest: dict[str, Any]) -> bool:
    """Whether the store lacks a shard, or has it in another size.

    Then the source is read again, and what is missing is written.
    """
    sizes = {name: size for name, size, _ in store.files("shards/sha256")}
    shards = [shard for split in manifest["shards"] for shard in shards_of(manifest, split)]
    return any(
        sizes.get(shard.name) != shard.bytes or shard.row_hashes_name(manifest["hash_rules"]) not in sizes
        for shard in shards
    )

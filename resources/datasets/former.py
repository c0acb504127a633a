"""What a new snapshot takes over from the newest one of its dataset, so that rows that were there are neither
stored nor hashed again.
"""

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
from halving.data.dataset import snapshot_folder
from halving.data.shards import shards_of
from halving.errors import NotFound
from halving.store.retry import warn
from resources.catalog import Catalog, SnapshotRow
from resources.datasets.file_sources import Part

PARTS = "parts.parquet"
"""The file beside a manifest with the identities of the source's parts, in their order, where the parts have
identities.
"""

Digests = NDArray[np.bytes_]
"""Of the identities of a source's parts: 16 bytes each, by BLAKE2b.

The identities of a million files take ten times as much memory.
"""

_DIGEST_BYTES = 16
_AT_ONCE = 65_536  # parts whose identities are Python's at a time

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
class Former:
    """A snapshot whose rows were dealt and cut by the same rules.

    Attributes:
        parts: digests of its source's parts, made by the same code; None: not known, so all rows are read
            again.
    """

    manifest: dict[str, Any]
    parts: Digests | None

    @property
    def read_as(self) -> pa.Schema | None:
        """The union of the columns of its source's parts, to which their rows were brought; None: these did
        not say which they have.
        """
        text = self.manifest.get("read_as")
        return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text))) if text else None

    def added(self, parts: Digests | None) -> list[int] | None:
        """The numbers of the parts that it has not, if it has all others; None: a part of it is gone or
        changed, or it is not known.
        """
        if self.parts is None or parts is None or not np.isin(self.parts, parts).all():
            return None
        return np.flatnonzero(~np.isin(parts, self.parts)).tolist()


def digests_of_parts(parts: Iterable[Part]) -> Digests | None:
    """The digest of each part's identity, in their order; None where a part has none."""
    digests = bytearray()
    for part in parts:
        if part.identity is None:
            return None
        digests += _digest(part.identity)
    return _as_digests(digests)


def content_of_parts(parts: Iterable[Part]) -> bytes:
    """The content of the file :data:`PARTS`, of parts that all have an identity."""
    schema = pa.schema([("part", pa.large_string())])
    sink = pa.BufferOutputStream()
    remaining = iter(parts)
    with pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False) as writer:
        while identities := [part.identity for part in islice(remaining, _AT_ONCE)]:
            writer.write_table(pa.table([identities], schema=schema))
    return bytes(sink.getvalue())


@dataclass(frozen=True)
class FormerKey:
    """The columns by whose hash the rows of a dataset were dealt when its spec said nothing of it.

    Attributes:
        snapshot: the digest of the newest snapshot that was taken so.
        types: of the columns, as text.
    """

    snapshot: str
    types: dict[str, str]


def newest_digest(catalog: Catalog, name: str) -> str | None:
    """The digest of a dataset's newest snapshot."""
    with catalog.read() as session:
        return session.scalar(_newest(name).with_only_columns(SnapshotRow.digest))


def find_former(
    store: Store, catalog: Catalog, recipe: dict[str, Any], transform_sha256: str
) -> Former | None:
    """The newest snapshot of the dataset, if its rows were dealt and cut as the recipe says and its shards
    are all there.
    """
    with catalog.read() as session:
        row = session.scalar(_newest(recipe["name"]))
        if row is None or any(row.recipe.get(field) != recipe.get(field) for field in _CUTTING):
            return None
        digest = row.digest
        same_code = row.transform_sha256 == transform_sha256 and _place(row.recipe) == _place(recipe)
    try:
        manifest = Dataset(store, recipe["name"], digest).manifest
    except NotFound:
        return None
    return Former(manifest, _parts(store, manifest) if same_code else None)


def find_former_key(store: Store, catalog: Catalog, recipe: dict[str, Any]) -> FormerKey | None:
    """Read by which columns the rows of a dataset were dealt last where its spec named no group, no
    split_column and no split_times.

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
    for digest, former_recipe in snapshots:
        if _is_dealt_by_columns(former_recipe):
            with contextlib.suppress(NotFound):
                manifest = Dataset(store, name, digest).manifest
                return FormerKey(digest, {column: manifest["schema"][column] for column in manifest["key"]})
    return None


def _is_dealt_by_columns(recipe: dict[str, Any]) -> bool:
    """Whether a recipe leaves it open what decides a row's split."""
    return not any(recipe.get(field) for field in ("group", "split_column", "split_times"))


def _newest(name: str) -> Select[SnapshotRow]:
    return (
        select(SnapshotRow).where(SnapshotRow.name == name).order_by(SnapshotRow.created_at.desc()).limit(1)
    )


def _place(recipe: dict[str, Any]) -> Any:
    """The source without the version of it: of another place, or read in another way, a part of the same name
    is not the same.
    """
    source = recipe.get("source")
    return (
        {field: value for field, value in source.items() if field not in ("version", "snapshot")}
        if isinstance(source, dict)
        else source
    )


def _parts(store: Store, manifest: dict[str, Any]) -> Digests | None:
    name = f"{snapshot_folder(manifest['name'], manifest['digest'])}/{PARTS}"
    digests = bytearray()
    try:
        table = pq.read_table(pa.BufferReader(store.read(name)))
    except NotFound:  # of a source whose parts have no identities
        return None
    except pa.ArrowInvalid as error:
        warn(f"all of {manifest['name']} is read again, for {name} in {store.root} is damaged: {error}")
        return None
    for batch in table.to_batches(_AT_ONCE):
        for identity in batch.column("part").to_pylist():
            digests += _digest(identity)
    return None if _lost(store, manifest) else _as_digests(digests)


def _digest(identity: str) -> bytes:
    return blake2b(identity.encode(), digest_size=_DIGEST_BYTES).digest()


def _as_digests(content: bytearray) -> Digests:
    # NumPy leaves NUL bytes at the end of a text out of comparisons, which changes nothing where all have the
    # same length.
    return np.frombuffer(content, f"S{_DIGEST_BYTES}")


def _lost(store: Store, manifest: dict[str, Any]) -> bool:
    """Whether the store lacks a shard, or has it in another size: then the source is read again, and what is
    missing is written.
    """
    there = {name: size for name, size, _ in store.files("shards/sha256")}
    shards = [shard for split in manifest["shards"] for shard in shards_of(manifest, split)]
    return any(
        there.get(shard.name) != shard.bytes or shard.row_hashes_name(manifest["hashes"]) not in there
        for shard in shards
    )

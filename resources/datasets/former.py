"""What a new snapshot takes over from the newest one of its dataset, so that rows that were there are neither stored nor hashed again."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select

from halving import Dataset, Store
from halving.data.dataset import snapshot_folder
from halving.data.shards import shards_of
from halving.errors import NotFound
from resources.catalog import Catalog, SnapshotRow
from resources.datasets.file_sources import Part

PARTS = "parts.json"
"""The file beside a manifest with the identities of the source's parts, where they have some."""

_CUTTING = ("target", "splits", "group", "redeal", "folds", "split_column", "split_times", "seed", "shard_mib")


@dataclass(frozen=True)
class Former:
    """A snapshot whose rows were dealt and cut by the same rules.

    Attributes:
        parts: identities of its source's parts, made by the same code; None: not known, so all rows are read again.
    """

    manifest: dict[str, Any]
    parts: frozenset[str] | None

    def added(self, parts: Sequence[Part]) -> list[Part] | None:
        """The parts that it has not, if it has all others; None: a part of it is gone or changed, or it is not known."""
        now = {part.identity for part in parts}
        if self.parts is None or None in now or not self.parts <= now:
            return None
        return [part for part in parts if part.identity not in self.parts]


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


def find_former(store: Store, catalog: Catalog, recipe: dict[str, Any], transform_sha256: str) -> Former | None:
    """The newest snapshot of the dataset, if its rows were dealt and cut as the recipe says and its shards are all there."""
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


def find_former_key(store: Store, catalog: Catalog, name: str) -> FormerKey | None:
    """Read by which columns the rows of a dataset were dealt last where its spec named no group, no split_column and no split_times.

    Returns:
        None where there is no such snapshot, or the manifests of all are gone.
    """
    with catalog.read() as session:
        snapshots = session.execute(_newest(name).limit(None).with_only_columns(SnapshotRow.digest, SnapshotRow.recipe)).all()
    for digest, recipe in snapshots:
        if any(recipe.get(field) for field in ("group", "split_column", "split_times")):
            continue
        with contextlib.suppress(NotFound):
            manifest = Dataset(store, name, digest).manifest
            return FormerKey(digest, {column: manifest["schema"][column] for column in manifest["key"]})
    return None


def _newest(name: str) -> Select[SnapshotRow]:
    return select(SnapshotRow).where(SnapshotRow.name == name).order_by(SnapshotRow.created_at.desc()).limit(1)


def _place(recipe: dict[str, Any]) -> Any:
    """The source without the version of it: of another place, or read in another way, a part of the same name is not the same."""
    source = recipe.get("source")
    return {field: value for field, value in source.items() if field not in ("version", "snapshot")} if isinstance(source, dict) else source


def _parts(store: Store, manifest: dict[str, Any]) -> frozenset[str] | None:
    try:
        parts = json.loads(store.read(f"{snapshot_folder(manifest['name'], manifest['digest'])}/{PARTS}"))
    except NotFound:  # of a source whose parts have no identities
        return None
    return None if _lost(store, manifest) else frozenset(parts)


def _lost(store: Store, manifest: dict[str, Any]) -> bool:
    """Whether the store lacks a shard, or has it in another size: then the source is read again, and what is missing is written."""
    there = {name: size for name, size, _ in store.files("shards/sha256")}
    shards = [shard for split in manifest["shards"] for shard in shards_of(manifest, split)]
    return any(there.get(shard.name) != shard.bytes or shard.row_hashes_name(manifest["hashes"]) not in there for shard in shards)

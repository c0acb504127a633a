"""A snapshot's manifest: how it is built, its digest, and how it is read again.

The digest is a SHA-256 over the shards, the schema, the target column, the rules of hashes and statistics
(the group, the column that names the split, the identity), and the dataset's name. It says what a snapshot
holds, and not where that comes from.
"""

import contextlib
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pyarrow as pa

from halving import Dataset, Store
from halving.data.shards import open_shard, shards_of
from halving.errors import NotFound
from halving.features.definition import schema_text
from resources.datasets.cutting import Cut
from resources.datasets.provenance import Provenance
from resources.sweep_spec.dataset import DatasetSource

_RULES = 2
"""Version of the statistics (:mod:`resources.datasets.statistics`) and of the rules of rows and columns.

It is raised when one of them changes: then a source is read again, once, and its snapshot has a digest of its
own.
"""


def build_manifest(
    source: DatasetSource,
    cut: Cut,
    schema: pa.Schema,
    key: tuple[str, ...],
    read_as: pa.Schema | None,
    provenance: Provenance,
    lineage: dict[str, Any],
) -> dict[str, Any]:
    """Build the manifest of a snapshot whose shards are stored.

    Args:
        key: columns by whose hash its rows were dealt into splits.
        read_as: union of the columns of the source's parts, if they could say them.
        lineage: facts about where and when its rows were read.
    """
    shards = [shard for of_split in cut.shards.values() for shard in of_split]
    manifest: dict[str, Any] = {
        "name": source.name,
        "target": source.target,
        "group": source.group,
        "split_column": source.split_column,
        "identity": source.checks.identity,
        "rows": sum(shard.rows for shard in shards),
        "bytes": sum(shard.bytes for shard in shards),
        "stored": cut.stored,
        "schema": {column.name: str(column.type) for column in schema},
        "schema_sha256": schema_sha256(schema),
        "splits": {split: sum(shard.rows for shard in of_split) for split, of_split in cut.shards.items()},
        "hash_rules": hash_rules(source),
        "shards": {
            split: [[shard.sha256, shard.rows, shard.bytes] for shard in of_split]
            for split, of_split in cut.shards.items()
        },
        "statistics": cut.statistics,
        "recipe": provenance.recipe,
        "code_sha256": provenance.code_sha256,
        "key": list(key),
        "read_as": None,
        "lineage": lineage,
    }
    if read_as is not None:
        manifest["read_as"] = schema_text(read_as)
    return {**manifest, "digest": _digest(manifest)}


def hash_rules(source: DatasetSource) -> str:
    """Fingerprint of the settings that affect row hashes; equal ones may share cached hashes."""
    rules = [_RULES, source.group, source.split_column, source.target]
    # Without an identity the rules stay those of snapshots that were taken before identities existed.
    if source.checks.identity is not None:
        rules.append(source.checks.identity)
    return sha256(json.dumps(rules).encode()).hexdigest()[:8]


def schema_sha256(schema: pa.Schema) -> str:
    """SHA-256 of the columns' names and types as text, which is the same in any version of Arrow."""
    return sha256("".join(f"{column.name}\t{column.type}\n" for column in schema).encode()).hexdigest()


def read_schema(store: Store, manifest: Mapping[str, Any]) -> pa.Schema:
    """Read the schema of a snapshot's rows from its first shard."""
    split, *_ = manifest["shards"]
    with open_shard(store, shards_of(manifest, split)[0]) as reader:
        return reader.schema


def manifest_before(store: Store, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the manifest of the snapshot that was the dataset's newest when this one was taken.

    None if this one was the first, or the manifest is gone.
    """
    before = manifest["lineage"]["before"]
    if not before:
        return None
    with contextlib.suppress(NotFound):
        return Dataset(store, manifest["name"], before).manifest
    return None


def _digest(manifest: Mapping[str, Any]) -> str:
    """The digest of a snapshot.

    It is a SHA-256 over ``SPLIT SHA256 ROWS BYTES`` lines of the shards in order, by split, then the schema's
    hash, the target and the name. The rules of hashes count, too, because checks for leaks and statistics
    depend on them.
    """
    digest = sha256()
    for split in sorted(manifest["shards"]):
        for shard in shards_of(manifest, split):
            digest.update(f"{split} {shard.sha256} {shard.rows} {shard.bytes}\n".encode())
    digest.update(
        f"schema {manifest['schema_sha256']}\ntarget {manifest['target']}\nname {manifest['name']}\n".encode()
    )
    digest.update(f"hashes {manifest['hash_rules']}\n".encode())
    return f"sha256:{digest.hexdigest()}"

"""Publish a snapshot, and register it with DVC, the remote and the catalog.

A published manifest makes the snapshot, and the catalog's row follows. If a process is killed between the
two, or the catalog is lost, the manifest has all that the row needs, and the dataset's next snapshot
registers it first.
"""

import contextlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from halving import Store
from halving.data.shards import shards_of
from halving.data.snapshot import parse_manifest, snapshot_folder
from halving.errors import AlreadyExists, NotFound
from halving.store.retry import warn_once
from resources.catalog import Catalog, SnapshotRow, utcnow
from resources.datasets.dvc_tracking import track
from resources.datasets.file_sources import Part
from resources.datasets.previous_snapshot import PARTS, content_of_parts
from resources.datasets.shard_copies import push_shards
from resources.datasets.snapshot_catalog import DESCRIBED, Snapshot, read_snapshot
from resources.sweep_spec.dataset import DatasetSource

_FOLDER = re.compile("[0-9a-f]{16}")
_KINDS = {
    "bytes": int,
    "schema_sha256": str,
    "target": str,
    "hash_rules": str,
    "schema": dict,
    "key": list,
    "statistics": dict,
}


@dataclass(frozen=True)
class Unregistered:
    """Manifests of a dataset in the store that the catalog does not have.

    Attributes:
        manifests: manifests of snapshots, oldest first.
        faults: what is wrong with those that cannot be read, by the name of the file.
    """

    manifests: list[dict[str, Any]]
    faults: dict[str, str]


def publish(store: Store, manifest: dict[str, Any], parts: Iterable[Part] | None) -> None:
    """Write a snapshot's manifest, which makes it exist.

    Args:
        parts: parts of the source, if all have identities.
    """
    folder = snapshot_folder(manifest["name"], manifest["digest"])
    # If the same content was published before, from elsewhere or at another time, its lineage stays.
    if parts is not None:
        with contextlib.suppress(AlreadyExists):
            store.create(f"{folder}/{PARTS}", content_of_parts(parts), sole=True)
    with contextlib.suppress(AlreadyExists):
        store.create(
            f"{folder}/manifest.json",
            json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode(),
            sole=True,
        )


def register(
    store: Store, catalog: Catalog, manifest: dict[str, Any], created_at: datetime | None = None
) -> Snapshot:
    """Track a published manifest with DVC, copy its shards to the remote, and add it to the catalog.

    Args:
        created_at: when it was taken (default: now); a row that is in the catalog already does not change.
    """
    if store.folder is not None:  # An object store is where a remote would put it.
        track(store.folder / "datasets", store.folder / snapshot_folder(manifest["name"], manifest["digest"]))
        push_shards(store, manifest)
    with catalog.write(exclusive=True) as session:
        new = session.get(SnapshotRow, manifest["digest"]) is None
        if new:
            recipe = manifest["recipe"]
            row = SnapshotRow(
                **{name: manifest[name] for name in DESCRIBED},
                source=DatasetSource.model_validate(recipe).described,
                recipe=recipe,
                # Without it the next snapshot reads all rows again, as after a change of the code.
                transform_sha256=manifest.get("code_sha256", ""),
                created_at=created_at or utcnow(),
            )
            session.add(row)
    return replace(read_snapshot(catalog, manifest["digest"]), new=new)


def adopt(store: Store, catalog: Catalog, name: str) -> list[Snapshot]:
    """Register a dataset's snapshots that the catalog lacks, with the time at which they were taken.

    Manifests that cannot be read stay as they are, with a warning.

    Raises:
        StoreError: the store or DVC's remote cannot be read or written.
    """
    unregistered = find_unregistered(store, catalog, name)
    for file, fault in unregistered.faults.items():
        warn_once(
            store.address(file),
            f"{store.address(file)} is ignored, and no snapshot is listed for it: {fault}",
        )
    adopted = []
    for manifest in unregistered.manifests:
        try:
            adopted.append(register(store, catalog, manifest, _taken_at(manifest)))
        except NotFound as error:  # A shard is missing that was to be copied to the remote.
            folder = store.address(snapshot_folder(name, manifest["digest"]))
            warn_once(folder, f"{folder} is ignored, and no snapshot is listed for it: {error}")
    return adopted


def find_unregistered(store: Store, catalog: Catalog, name: str) -> Unregistered:
    """Find the manifests of a dataset that the catalog does not have.

    Manifests that it has are not read.
    """
    with catalog.read() as session:
        registered = {
            snapshot_folder(name, digest)
            for digest in session.scalars(select(SnapshotRow.digest).where(SnapshotRow.name == name))
        }
    manifests: list[dict[str, Any]] = []
    faults: dict[str, str] = {}
    for digits in store.names(f"datasets/{name}"):
        folder = f"datasets/{name}/{digits}"
        if not _FOLDER.fullmatch(digits) or folder in registered:
            continue
        file = f"{folder}/manifest.json"
        try:
            manifest = parse_manifest(store.read(file))
            _check(manifest, folder)
        except NotFound:  # It was never written, or it is lost and DVC may restore it.
            continue
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            faults[file] = repr(error)
            continue
        manifests.append(manifest)
    return Unregistered(sorted(manifests, key=_taken_at), faults)


def _check(manifest: dict[str, Any], folder: str) -> None:
    """Refuse a manifest that cannot become a row of the catalog.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: it is no manifest, is of an older version, or is
            in the folder of another one.
    """
    if snapshot_folder(manifest["name"], manifest["digest"]) != folder:
        raise ValueError(f"it is of {snapshot_folder(manifest['name'], manifest['digest'])}")
    counts = {split: sum(shard.rows for shard in shards_of(manifest, split)) for split in manifest["shards"]}
    if manifest["splits"] != counts or manifest["rows"] != sum(counts.values()):
        raise ValueError(f"its shards have the rows {counts}, and it says {manifest['splits']}")
    if missing := [name for name, kind in _KINDS.items() if not isinstance(manifest.get(name), kind)]:
        raise ValueError(f"it lacks {', '.join(missing)}")
    DatasetSource.model_validate(manifest["recipe"])
    _taken_at(manifest)


def _taken_at(manifest: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(manifest["lineage"]["made_at"]).astimezone(UTC)

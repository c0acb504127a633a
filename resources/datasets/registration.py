"""Publishing a snapshot, and making it known: to DVC, to the remote and to the catalog.

The manifest is what makes a snapshot, and the catalog's row follows. Where a process is killed between the
two, or the catalog is lost, the manifest has all that a row says, and the dataset's next snapshot registers
it first.
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
from halving.data.dataset import snapshot_folder
from halving.data.shards import shards_of
from halving.errors import AlreadyExists, NotFound
from halving.store.retry import warn_once
from resources.catalog import Catalog, SnapshotRow, utcnow
from resources.datasets.dvc_tracking import track
from resources.datasets.file_sources import Part
from resources.datasets.former import PARTS, content_of_parts
from resources.datasets.known_snapshots import DESCRIBED, Snapshot, known_snapshot
from resources.datasets.shard_copies import push_shards
from resources.sweep_spec.dataset import DatasetSource

_FOLDER = re.compile("[0-9a-f]{16}")
_KINDS = {
    "bytes": int,
    "schema_sha256": str,
    "target": str,
    "hashes": str,
    "schema": dict,
    "key": list,
    "statistics": dict,
}


@dataclass(frozen=True)
class Unregistered:
    """What a store has of a dataset, and the catalog has not.

    Attributes:
        manifests: of snapshots, oldest first.
        faults: what is wrong with others that cannot be read, by the name of the file.
    """

    manifests: list[dict[str, Any]]
    faults: dict[str, str]


def publish(store: Store, manifest: dict[str, Any], parts: Iterable[Part] | None) -> None:
    """Write a snapshot's manifest, and with it the snapshot is there.

    Args:
        parts: of the source, where all have identities.
    """
    folder = snapshot_folder(manifest["name"], manifest["digest"])
    # The same content from elsewhere, or at another time: the first account of it stays.
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
    """Let DVC track a published manifest, and the catalog know the snapshot.

    Args:
        created_at: when it was taken (default: now). Of a snapshot that the catalog knows nothing changes.
    """
    if store.folder is not None:  # in an object store a snapshot is where a remote would put it
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
                # Without it the rows are read once more by the next snapshot, as after a change of the code.
                transform_sha256=manifest.get("code_sha256", ""),
                created_at=created_at or utcnow(),
            )
            session.add(row)
    return replace(known_snapshot(catalog, manifest["digest"]), new=new)


def adopt(store: Store, catalog: Catalog, name: str) -> list[Snapshot]:
    """Register the snapshots of a dataset that the store has and the catalog lacks, with the time at which
    they were taken.

    Manifests that cannot be read stay as they are, with a warning.

    Raises:
        StoreError: the store or DVC's remote cannot be read or written.
    """
    unregistered = find_unregistered(store, catalog, name)
    for file, fault in unregistered.faults.items():
        warn_once(
            store.address(file),
            f"{store.address(file)} is left alone, and no snapshot is listed of it: {fault}",
        )
    adopted = []
    for manifest in unregistered.manifests:
        try:
            adopted.append(register(store, catalog, manifest, _taken_at(manifest)))
        except NotFound as error:  # a shard, of which the remote was to have a copy
            folder = store.address(snapshot_folder(name, manifest["digest"]))
            warn_once(folder, f"{folder} is left alone, and no snapshot is listed of it: {error}")
    return adopted


def find_unregistered(store: Store, catalog: Catalog, name: str) -> Unregistered:
    """Find the manifests of a dataset that no row of the catalog names.

    Of those that it knows none is read.
    """
    with catalog.read() as session:
        known = {
            snapshot_folder(name, digest)
            for digest in session.scalars(select(SnapshotRow.digest).where(SnapshotRow.name == name))
        }
    manifests: list[dict[str, Any]] = []
    faults: dict[str, str] = {}
    for digits in store.names(f"datasets/{name}"):
        folder = f"datasets/{name}/{digits}"
        if not _FOLDER.fullmatch(digits) or folder in known:
            continue
        file = f"{folder}/manifest.json"
        try:
            manifest = json.loads(store.read(file))
            _check(manifest, folder)
        except NotFound:  # killed before it was written, or lost, and DVC may bring it back
            continue
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            faults[file] = repr(error)
            continue
        manifests.append(manifest)
    return Unregistered(sorted(manifests, key=_taken_at), faults)


def _check(manifest: dict[str, Any], folder: str) -> None:
    """Refuse a manifest of which the catalog could not have a row.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: it is none, is of an older version, or is not what
            its folder says.
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

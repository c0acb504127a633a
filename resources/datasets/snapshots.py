"""Dataset snapshots: immutable folders in the store, named by their content, tracked by DVC.

``datasets/NAME/HASH/`` holds ``data.arrow`` (all rows), ``files/`` (when the source is a folder), ``splits/SPLIT.arrow``
(row numbers) and ``manifest.json``. The digest is a SHA-256 over the sorted manifest of those files and the target
column, so that the same content is the same snapshot whoever makes it, and whenever.
"""

import inspect
import os
import re
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from halving import Store
from halving.data.dataset import snapshot_folder
from halving.errors import InvalidInput, NotFound
from halving.store.json_files import to_json
from halving.store.store import digest_of
from halving.trial.import_string import import_function, where
from resources.catalog import Catalog, SnapshotRow, utcnow
from resources.datasets.dvc_tracking import track
from resources.sweep_spec.sweep import DatasetSource, SweepSpec

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_BATCH_BYTES = 32 * 2**20  # of one record batch, which is what a reader holds in memory at least; a smaller table is one batch
_REFERENCE = re.compile(r"[\w.@+:-]+", re.ASCII)
_SHOWN = 5  # snapshots named in a message
_DESCRIBED = ("name", "digest", "rows", "bytes", "schema_sha256", "target", "splits")


@dataclass(frozen=True)
class Snapshot:
    """A snapshot as the catalog knows it."""

    name: str
    digest: str
    rows: int
    bytes: int
    schema_sha256: str
    target: str
    splits: dict[str, int]
    source: str
    transform_sha256: str
    new: bool

    @property
    def key(self) -> str:
        """Its partition: ``digits@0123456789abcdef``."""
        return snapshot_key(self.name, self.digest)


def snapshot_key(name: str, digest: str) -> str:
    """The partition of a snapshot: ``digits@0123456789abcdef``."""
    return f"{name}@{digest.removeprefix('sha256:')[:16]}"


def take_snapshot(store: Store, catalog: Catalog, source: DatasetSource) -> Snapshot:
    """Load the source, snapshot its content, and register it. The same content again gives the same snapshot.

    Raises:
        InvalidInput: the source's result, target column or size is not accepted.
    """
    load = import_function("dataset.source", source.source)
    transform = sha256(inspect.getsource(load).encode()).hexdigest()
    try:
        loaded = load()
    except Exception as error:
        raise InvalidInput(
            f"dataset.source = {source.source!r} is not accepted: it raised {type(error).__name__} at {where(error)}: {error}"
        ) from error
    with tempfile.TemporaryDirectory(prefix="halving-snapshot-") as scratch:
        staged = Path(scratch)
        table, splits = _stage(staged, loaded, source)
        manifest = _manifest(_files(staged), table, source, splits)
        digest = manifest["digest"]
        (staged / "manifest.json").write_bytes(to_json(manifest))
        folder = snapshot_folder(source.name, digest)
        if not store.exists(f"{folder}/manifest.json"):
            _publish(store, staged, folder)
    if store.folder is not None:  # in an object store a snapshot is where a remote would put it
        track(store.folder / "datasets", store.folder / folder)
    new = _register(catalog, manifest, source.source, transform)
    return Snapshot(**{name: manifest[name] for name in _DESCRIBED}, source=source.source, transform_sha256=transform, new=new)


def snapshot_for(store: Store, catalog: Catalog, spec: SweepSpec) -> Snapshot:
    """The snapshot that a spec names, else a new one of its source.

    Raises:
        InvalidInput: there is no such snapshot, it is of another dataset, or the source is not accepted.
    """
    if spec.snapshot is None:
        return take_snapshot(store, catalog, spec.dataset)
    try:
        snapshot = known_snapshot(catalog, spec.snapshot)
    except NotFound as error:
        raise InvalidInput(f"snapshot = {spec.snapshot!r} is not accepted: {error}") from None
    if (snapshot.name, snapshot.target) != (spec.dataset.name, spec.dataset.target):
        raise InvalidInput(
            f"snapshot = {spec.snapshot!r} is not accepted: it is of the dataset {snapshot.name!r} with the target {snapshot.target!r}, "
            f"not of {spec.dataset.name!r} with {spec.dataset.target!r}"
        )
    return snapshot


def dataset_of(snapshot: Snapshot) -> dict[str, Any]:
    """The ``dataset`` of a spec that runs on a snapshot: what the snapshot was taken of."""
    rows = sum(snapshot.splits.values())
    splits = {name: count / rows for name, count in snapshot.splits.items()}
    return {"name": snapshot.name, "source": snapshot.source, "target": snapshot.target, "splits": splits}


def find_snapshot(catalog: Catalog, reference: str, among: Collection[str] | None = None) -> Snapshot:
    """A snapshot by its digest, or by ``name@digest``, of which the first digits suffice.

    Args:
        among: digests of the only ones that may be found or named; None is all.

    Raises:
        NotFound: no such snapshot; the message names the newest.
        InvalidInput: several begin so.
    """
    name, _, digits = reference.rpartition("@")
    digits = digits.removeprefix("sha256:")
    digest = f"sha256:{digits}"
    allowed = [] if among is None else [SnapshotRow.digest.in_(sorted(among))]
    of_name = [SnapshotRow.name == name, *allowed] if name else allowed
    with catalog.read() as session:
        query = select(SnapshotRow.digest).where(SnapshotRow.digest.startswith(digest, autoescape=True), *of_name)
        found = list(session.scalars(query)) if _REFERENCE.fullmatch(reference) else []
        known = select(SnapshotRow.name, SnapshotRow.digest).where(*allowed)
        newest = session.execute(known.order_by(SnapshotRow.created_at.desc()).limit(_SHOWN)).all()
    if len(found) == 1 and digits:
        return known_snapshot(catalog, found[0])
    if len(found) > 1 and digits:
        raise InvalidInput(f"dataset = {reference!r} is not accepted: {len(found)} snapshots begin so; give the whole digest")
    listed = [snapshot_key(name, digest) for name, digest in newest]
    raise NotFound(f"no dataset snapshot {reference!r}; give name@digest or a digest, the newest are {listed}")


def known_snapshot(catalog: Catalog, digest: str) -> Snapshot:
    """A snapshot that was taken before.

    Raises:
        NotFound: no such snapshot.
    """
    with catalog.read() as session:
        row = catalog.snapshot(session, digest)
        return Snapshot(**{name: getattr(row, name) for name in (*_DESCRIBED, "source", "transform_sha256")}, new=False)


def _content_digest(files: list[dict[str, Any]], target: str) -> str:
    """SHA-256 over ``SHA256 SIZE PATH`` lines sorted by path, and the target column's name."""
    lines = [f"{entry['sha256']} {entry['bytes']} {entry['path']}\n" for entry in files]
    return "sha256:" + sha256("".join([*lines, f"target {target}\n"]).encode()).hexdigest()


def _stage(folder: Path, loaded: Any, source: DatasetSource) -> "tuple[pa.Table, dict[str, int]]":
    """Write data, files and splits into ``folder``; the rows, and how many each split has."""
    import pyarrow as pa

    if isinstance(loaded, pa.Table):
        table = loaded.combine_chunks()
    elif isinstance(loaded, str | os.PathLike):
        table = _copy_folder(Path(loaded), folder / "files", source.source)
    else:
        raise InvalidInput(
            f"dataset.source = {source.source!r} is not accepted: it returned {type(loaded).__name__}; "
            "return a pyarrow.Table (pyarrow.Table.from_pandas for a DataFrame) or a folder's path"
        )
    if source.target not in table.column_names:
        raise InvalidInput(f"dataset.target = {source.target!r} is not accepted: the columns are {table.column_names}")
    _write_arrow(folder / "data.arrow", table)
    splits = split_rows(table.num_rows, source.splits, source.seed)
    for name, rows in splits.items():
        if not len(rows):
            raise InvalidInput(f"dataset.splits.{name} = {source.splits[name]} of {table.num_rows} rows is empty; give it a larger share")
        _write_arrow(folder / "splits" / f"{name}.arrow", pa.table({"row": pa.array(rows, pa.int64())}))
    return table, {name: len(rows) for name, rows in splits.items()}


def split_rows(rows: int, shares: dict[str, float], seed: int) -> "dict[str, np.ndarray[Any, Any]]":
    """Deal ``rows`` row numbers into the splits, ascending in each: every row in exactly one, the same for the same seed for ever.

    ``numpy.random.RandomState`` is used because its stream is frozen (NEP 19), where ``default_rng`` may change.
    """
    import numpy as np

    order = np.random.RandomState(seed).permutation(rows)
    dealt, start, share = {}, 0, 0.0
    names = sorted(shares)
    for name in names:
        share += shares[name]
        end = rows if name == names[-1] else round(share * rows)
        dealt[name] = np.sort(order[start:end])
        start = end
    return dealt


def _copy_folder(folder: Path, target: Path, source: str) -> "pa.Table":
    """Copy a folder of files; its rows are ``path``, ``label`` (the first folder of the path), ``bytes`` and ``sha256``."""
    import pyarrow as pa

    if not folder.is_dir():
        raise InvalidInput(f"dataset.source = {source!r} is not accepted: it returned {str(folder)!r}, which is not a folder")
    shutil.copytree(folder, target)
    files = [{**entry, "path": entry["path"].removeprefix("files/")} for entry in _files(target.parent)]
    if not files:
        raise InvalidInput(f"dataset.source = {source!r} is not accepted: the folder {str(folder)!r} holds no files")
    labels = [entry["path"].partition("/")[0] if "/" in entry["path"] else "" for entry in files]
    table = pa.Table.from_pylist(files).append_column("label", pa.array(labels))
    return table.select(["path", "label", "bytes", "sha256"])  # in this order always: the snapshot is named by its content


def _write_arrow(path: Path, table: "pa.Table") -> None:
    import pyarrow as pa

    path.parent.mkdir(parents=True, exist_ok=True)
    # As they are written: a table's nbytes depends on how it was built, and equal tables must be equal files.
    size = sum(pa.ipc.get_record_batch_size(batch) for batch in table.to_batches())
    # Schema metadata (pandas index, library versions) is not content.
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema.remove_metadata()) as writer:
        writer.write_table(table.replace_schema_metadata(None), max_chunksize=max(1, _BATCH_BYTES * table.num_rows // max(1, size)))


def _manifest(files: list[dict[str, Any]], table: "pa.Table", source: DatasetSource, splits: dict[str, int]) -> dict[str, Any]:
    schema = table.schema.remove_metadata()
    return {
        "name": source.name,
        "digest": _content_digest(files, source.target),
        "target": source.target,
        "files": files,
        "rows": table.num_rows,
        "bytes": sum(entry["bytes"] for entry in files),
        "schema": {field.name: str(field.type) for field in schema},
        "schema_sha256": sha256(schema.serialize().to_pybytes()).hexdigest(),
        "splits": splits,
    }


def _files(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / "manifest.json":
            digest = digest_of(path).removeprefix("sha256:")
            found.append({"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size, "sha256": digest})
    return found


def _publish(store: Store, staged: Path, folder: str) -> None:
    """Move the finished folder into the store; the manifest appears last, and with it the snapshot."""
    names = sorted(path.relative_to(staged).as_posix() for path in staged.rglob("*") if path.is_file())
    for name in sorted(names, key=lambda name: name == "manifest.json"):
        store.create(f"{folder}/{name}", staged / name, sole=True)  # another process can only want the same content there


def _register(catalog: Catalog, manifest: dict[str, Any], source: str, transform: str) -> bool:
    with catalog.write(exclusive=True) as session:
        if session.get(SnapshotRow, manifest["digest"]) is not None:
            return False
        described = {name: manifest[name] for name in _DESCRIBED}
        session.add(SnapshotRow(**described, source=source, transform_sha256=transform, created_at=utcnow()))
        return True

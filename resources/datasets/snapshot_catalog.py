"""Snapshots in the catalog: list them, find one, deprecate one."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, select

from halving.errors import InvalidInput, NotFound
from resources.catalog import Catalog, SnapshotRow

_REFERENCE = re.compile(r"[\w.@+:-]+", re.ASCII)
_MAX_NAMED = 5  # snapshots named in a message
DESCRIBED = ("name", "digest", "rows", "bytes", "schema_sha256", "target", "splits")
"""The fields that the catalog and the manifest both have of a snapshot."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot in the catalog."""

    name: str
    digest: str
    rows: int
    bytes: int
    schema_sha256: str
    target: str
    splits: dict[str, int]
    source: str
    recipe: dict[str, Any]
    transform_sha256: str
    deprecated: str | None
    created_at: datetime
    new: bool = False

    @property
    def key(self) -> str:
        """Its partition: ``digits@0123456789abcdef``."""
        return snapshot_key(self.name, self.digest)


def snapshot_key(name: str, digest: str) -> str:
    """The partition of a snapshot: ``digits@0123456789abcdef``."""
    return f"{name}@{digest.removeprefix('sha256:')[:16]}"


def dataset_of(snapshot: Snapshot) -> dict[str, Any]:
    """The ``dataset`` of a spec that runs on a snapshot: the recipe that it was taken by."""
    return dict(snapshot.recipe)


def list_snapshots(catalog: Catalog, name: str | None = None) -> list[Snapshot]:
    """List the snapshots of a dataset, or of all datasets by name, oldest first."""
    query = select(SnapshotRow).order_by(SnapshotRow.name, SnapshotRow.created_at)
    if name is not None:
        query = query.where(SnapshotRow.name == name)
    with catalog.read() as session:
        return [_snapshot_of(row) for row in session.scalars(query)]


def deprecate(catalog: Catalog, digest: str, reason: str | None) -> Snapshot:
    """Deprecate a snapshot with a reason, so that nothing new runs on it; None lifts that.

    A snapshot is never deleted: what ran on it stays true.

    Raises:
        NotFound: no such snapshot.
    """
    with catalog.write(exclusive=True) as session:
        row = catalog.snapshot(session, digest)
        row.deprecated = reason
        session.flush()
        return _snapshot_of(row)


def refuse_deprecated(snapshot: Snapshot, field: str) -> None:
    """Refuse to launch anything new on a deprecated snapshot.

    Args:
        field: what names the snapshot, for the message.

    Raises:
        InvalidInput: it is deprecated.
    """
    if snapshot.deprecated is not None:
        raise InvalidInput(
            f"{field} = {snapshot.key!r} is not accepted: it is deprecated: {snapshot.deprecated}; "
            "`halving sweep --allow-deprecated`, or a run with the tag halving/allow_deprecated: true, is "
            "launched on it all the same"
        )


def describe_schema_holder(catalog: Catalog, name: str, schema_sha256: str) -> str:
    """Say, for a message, which snapshot of a dataset was the last that had a schema."""
    for candidate in reversed(list_snapshots(catalog, name)):
        if candidate.schema_sha256.startswith(schema_sha256):
            return f"{candidate.key} had that one"
    return "no snapshot of it had that one"


def find_snapshot(catalog: Catalog, reference: str, among: Collection[str] | None = None) -> Snapshot:
    """Find a snapshot by its digest or by ``name@digest``; the first digits suffice.

    Args:
        among: digests of the snapshots that may be found or named; None is all.

    Raises:
        NotFound: no such snapshot; the message names the newest.
        InvalidInput: several begin so.
    """
    name, _, digits = reference.rpartition("@")
    digits = digits.removeprefix("sha256:")
    digest = f"sha256:{digits}"
    allowed: list[ColumnElement[bool]] = []
    if among is not None:
        allowed.append(SnapshotRow.digest.in_(sorted(among)))
    of_name = list(allowed)
    if name:
        of_name.append(SnapshotRow.name == name)
    with catalog.read() as session:
        query = select(SnapshotRow.digest).where(
            SnapshotRow.digest.startswith(digest, autoescape=True), *of_name
        )
        digests: list[str] = []
        if _REFERENCE.fullmatch(reference):
            digests += session.scalars(query)
        candidates = select(SnapshotRow.name, SnapshotRow.digest).where(*allowed)
        newest = session.execute(candidates.order_by(SnapshotRow.created_at.desc()).limit(_MAX_NAMED)).all()
    if len(digests) == 1 and digits:
        return read_snapshot(catalog, digests[0])
    if len(digests) > 1 and digits:
        raise InvalidInput(
            f"dataset = {reference!r} is not accepted: {len(digests)} snapshots begin so; "
            "give the whole digest"
        )
    listed = [snapshot_key(name, digest) for name, digest in newest]
    raise NotFound(
        f"no dataset snapshot {reference!r}; give name@digest or a digest, the newest are {listed}"
    )


def read_snapshot(catalog: Catalog, digest: str) -> Snapshot:
    """Read a snapshot from the catalog.

    Raises:
        NotFound: no such snapshot.
    """
    with catalog.read() as session:
        return _snapshot_of(catalog.snapshot(session, digest))


def _snapshot_of(row: SnapshotRow) -> Snapshot:
    return Snapshot(
        **{
            name: getattr(row, name)
            for name in (*DESCRIBED, "source", "recipe", "transform_sha256", "deprecated", "created_at")
        }
    )

"""The cold tier: another root, or another storage class of the same bucket, for blobs of old runs.

Blobs are checkpoints, artifacts and media, which are nearly all of a store's bytes. Records, points and
rollups stay: they are small, and they are read by name, in parts and by SQL. A blob moves when every run that
names it is old enough and unprotected (no champion, staging version, report's winner or open sweep), and
neither the registry nor a report names it. It can still be read, more slowly
(:mod:`halving.store.cold_roots`). A change of the policy moves nothing back; a blob that is written again
is in its first place again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from halving.maintenance.cold_tier import Movable, find_movable, move_blobs
from halving.maintenance.named_blobs import Record, digests_in, named_by_runs
from halving.query.runs import projects
from halving.store.cold import add_cold_root, check_cold_root, check_is_of
from halving.store.store import Store, blob_name
from resources.catalog import Catalog
from resources.retention.gone import Gone
from resources.retention.policy import Cold, Policy
from resources.retention.protection import find_protected
from resources.retention.storage_class import check_storage_class, tag_blobs

KIND = "blobs moved to the cold tier"
_AMENDED = "amend-"


@dataclass
class BlobSelection:
    """Digests of 32 bytes: those that may move, with their projects, and those that stay."""

    cold: dict[bytes, str] = field(default_factory=dict)
    warm: set[bytes] = field(default_factory=set)
    manifests: set[bytes] = field(default_factory=set)

    def add(self, project: str, records: list[Record], *, is_cold: bool) -> None:
        """Add the blobs that a run names."""
        for record in records:
            if is_cold:
                self.cold.update((digest, self.cold.get(digest, project)) for digest in record.digests)
            else:
                self.warm.update(record.digests)
            if record.sharded:
                self.manifests.update(record.digests)

    def add_parts(self, store: Store) -> None:
        """Add the parts of sharded checkpoints: they go where their manifests go."""
        for manifest in self.manifests:
            name = blob_name(f"sha256:{manifest.hex()}")
            if not store.exists(name):
                continue  # Retention has deleted it.
            parts = digests_in(store.read(name))
            if manifest in self.warm:
                self.warm.update(parts)
            else:
                self.cold.update((part, self.cold.get(part, self.cold[manifest])) for part in parts)

    def of(self, project: str) -> set[bytes]:
        """The digests of a project that may move."""
        return {digest for digest, owner in self.cold.items() if owner == project and digest not in self.warm}


def move_to_cold(
    store: Store,
    catalog: Catalog,
    policy: Policy,
    *,
    project: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> list[Gone]:
    """Move what is old enough to the cold tier, by the policy of each project.

    It may be killed anywhere and repeated, and several may do it at once.

    Args:
        project: only blobs of this project alone (default: all).
        dry_run: only count what would move.
        now: the time to count from.

    Returns:
        How many blobs of each project moved, and their bytes.

    Raises:
        InvalidInput: the cold tier's root is not accepted, or the store has no storage classes.
        StoreError: one of both places refused, or a blob is damaged; nothing is lost.
    """
    now = now or datetime.now(UTC)
    tier = policy.cold
    if tier.root is None and tier.storage_class is None:
        return []
    check_cold(store, tier)
    days = {name: policy.of(name).cold.days for name in projects(store)}
    if all(limit is None for limit in days.values()):
        return []
    selection = select_blobs(store, catalog, days, now)
    gone = []
    for name, limit in sorted(days.items()):
        if limit is None or project not in (None, name):
            continue
        before = (now - timedelta(days=limit)).timestamp()
        movable = list(find_movable(store, selection.of(name), before))
        moved: Iterable[Movable] = movable
        if tier.root is not None and movable and not dry_run:
            moved = list(move_blobs(store, add_cold_root(store, tier.root), movable, before))
        elif tier.storage_class is not None:
            moved = list(tag_blobs(store, movable, tier.storage_class, dry_run=dry_run))
        sizes = [blob.bytes for blob in moved]
        if sizes:
            gone.append(Gone(name, KIND, len(sizes), sum(sizes)))
    return gone


def check_cold(store: Store, cold: Cold) -> None:
    """Refuse a cold tier that cannot take blobs, and colder places that are missing.

    This is checked before anything is deleted.

    Raises:
        InvalidInput: its root is not accepted, or the store has no storage classes.
        StoreError: a place is not there, or another store's.
    """
    if cold.storage_class is not None:
        check_storage_class(store)
    if cold.root is not None:
        check_cold_root(store, cold.root)
    for place in store.colder_places:
        check_is_of(store, place)


def select_blobs(
    store: Store, catalog: Catalog, days: dict[str, float | None], now: datetime
) -> BlobSelection:
    """Choose the blobs that may move: those that only records of old runs name.

    Args:
        days: days after a run's end, by project; None is never.
    """
    protected = find_protected(store, catalog)
    selection = BlobSelection()
    for project, limit in days.items():
        for run, records in named_by_runs(store, project, remember=False):
            is_cold = (
                limit is not None
                and _is_old(records, now - timedelta(days=limit))
                and (project, run) not in protected.runs
            )
            is_cold = is_cold and not any(record.problem for record in records)
            selection.add(project, records, is_cold=is_cold)
    selection.warm.update(bytes.fromhex(digest.removeprefix("sha256:")) for digest in protected.blobs)
    selection.add_parts(store)
    return selection


def _is_old(records: list[Record], before: datetime) -> bool:
    """Whether all records of a run are older than a time; tagging or archiving it does not count."""
    return all(
        record.written < before.timestamp() for record in records if not record.name.startswith(_AMENDED)
    )

"""What moves to the cold tier: blobs that only old runs name, which nobody protects."""

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from halving import InvalidInput, Store, StoreError
from halving.maintenance.cold_tier import move_blob
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.cold import add_cold_root
from halving.store.files import Files
from halving.store.store import blob_name
from resources.backend import Backend
from resources.retention.carry_out import carry_out
from resources.retention.cold import KIND, move_to_cold
from resources.retention.gone import Gone
from resources.retention.lifecycle import set_lifecycle
from resources.retention.policy import Policy, parse_policy
from resources.retention.policy_file import PolicyFile
from tests.backends import add_version

NOW = datetime.now(UTC)


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return parse_policy(
        {"cold": {"days": 30, "root": str(tmp_path / "cold")}, "projects": {"q": {"cold": {"days": None}}}},
        "test",
    )


def add_run(
    store: Store, run: str, *contents: bytes, days: float, project: str = "p", sharded: bool = False
) -> list[str]:
    """A run that recorded artifacts, and the last one as a checkpoint, so many days ago; their digests."""
    records = RunRecords(store, project, run)
    records.start({}, {}, 1, {"provenance": {}, "started": "2026-01-01T00:00:00+00:00"})
    digests = [store.put_blob(content) for content in contents]
    for place, digest in enumerate(digests):
        records.add_artifact(f"file-{place}", digest, 1)
    records.add_checkpoint(SavedCheckpoint(1, 1, digests[-1], {}, sharded=sharded))
    age(store, f"runs/project={project}/{run}", days)
    for digest in digests:
        age(store, f"artifacts/sha256/{digest[7:9]}", days)
    return digests


def age(store: Store, folder: str, days: float) -> None:
    assert store.folder is not None
    for name, _, _ in store.files(folder):
        then = (NOW - timedelta(days=days)).timestamp()
        os.utime(store.folder / name, (then, then))


def is_here(store: Store, digest: str) -> bool:
    return Files.exists(store, blob_name(digest))


def test_what_only_old_runs_name_moves_and_is_read_as_before(backend: Backend, policy: Policy) -> None:
    store = backend.store
    catalog = backend.catalog
    old, shared = add_run(store, "old", b"old", b"shared", days=40)
    young, _ = add_run(store, "young", b"young", b"shared", days=10)
    elsewhere, other_project = add_run(store, "elsewhere", b"elsewhere", b"never", days=400, project="q")
    (loose,) = [store.put_blob(b"named by nobody")]
    would = move_to_cold(store, catalog, policy, now=NOW, dry_run=True)
    assert would == [Gone("p", KIND, 1, 3)]
    assert is_here(store, old)
    assert move_to_cold(store, catalog, policy, now=NOW, project="q") == []
    assert move_to_cold(store, catalog, policy, now=NOW) == would
    assert not is_here(store, old)
    assert all(is_here(store, digest) for digest in (shared, young, elsewhere, other_project, loose))
    assert store.get_blob(old) == b"old"
    assert move_to_cold(store, catalog, policy, now=NOW) == []


def test_what_a_version_or_its_run_needs_stays_where_it_is_fast(backend: Backend, policy: Policy) -> None:
    store = backend.store
    weights, checkpoint = add_run(store, "s-1.0000", b"weights", b"checkpoint", days=40)
    (archived,) = add_run(store, "s-0.0000", b"before", days=40)
    with backend.catalog.write() as session:
        add_version(
            session, model="p", version="1.0.0", stage="champion", run="s-1.0000", checkpoint=checkpoint
        )
        add_version(
            session, model="p", version="0.9.0", stage="archived", run="s-0.0000", checkpoint=archived
        )
    assert move_to_cold(store, backend.catalog, policy, now=NOW) == []
    assert all(is_here(store, digest) for digest in (weights, checkpoint, archived))


def test_parts_of_a_sharded_checkpoint_move_with_it_unless_one_that_stays_has_them(
    backend: Backend, policy: Policy
) -> None:
    store = backend.store
    own = store.put_blob(b"own part")
    common = store.put_blob(b"common part")
    manifests = [
        f'{{"halving_checkpoint": {number}, "parts": ["{common}"{extra}]}}'.encode()
        for number, extra in ((1, f', "{own}"'), (2, ""))
    ]
    (first,) = add_run(store, "old", manifests[0], days=40, sharded=True)
    (second,) = add_run(store, "young", manifests[1], days=3, sharded=True)
    for part in (own, common):
        age(store, f"artifacts/sha256/{part[7:9]}", 40)
    age(store, f"artifacts/sha256/{first[7:9]}", 40)
    assert move_to_cold(store, backend.catalog, policy, now=NOW) == [
        Gone("p", KIND, 2, len(manifests[0]) + len(b"own part"))
    ]
    assert [is_here(store, digest) for digest in (own, first, common, second)] == [False, False, True, True]
    assert store.get_blob(own) == b"own part"


def test_a_retention_deletes_nothing_where_a_colder_place_is_not_mounted(
    backend: Backend, tmp_path: Path
) -> None:
    store = backend.store
    place = add_cold_root(backend.store, str(tmp_path / "cold"))
    part = store.put_blob(b"part")
    (manifest,) = add_run(
        store, "r", f'{{"halving_checkpoint": 1, "parts": ["{part}"]}}'.encode(), days=40, sharded=True
    )
    assert move_blob(store, place, manifest, NOW.timestamp())  # killed before its parts moved
    (tmp_path / "cold").rename(tmp_path / "not-mounted")
    with pytest.raises(StoreError, match="cold is not there"):
        carry_out(store, backend.catalog, PolicyFile(Policy(), "test"), now=NOW + timedelta(days=30))
    assert is_here(store, part)


def test_a_copy_of_a_store_changes_nothing_in_the_colder_place_of_the_first(
    backend: Backend, policy: Policy, tmp_path: Path
) -> None:
    store = backend.store
    place = add_cold_root(backend.store, str(tmp_path / "cold"))
    shutil.copytree(store.root, tmp_path / "copy")
    copy = Store(tmp_path / "copy")
    (digest,) = add_run(store, "later", b"of a run that the copy does not know", days=40)
    assert move_blob(store, place, digest, NOW.timestamp())
    add_run(copy, "own", b"of a run of the copy", days=40)
    with pytest.raises(StoreError, match=r"is of the store .*is another one or a copy"):
        carry_out(copy, backend.catalog, PolicyFile(Policy(), "test"), now=NOW + timedelta(days=30))
    with pytest.raises(StoreError, match=r"is another one or a copy"):
        move_to_cold(copy, backend.catalog, policy, now=NOW)
    assert store.has_blob(digest)


def test_a_class_that_cannot_be_read_at_once_is_refused_and_so_is_one_of_a_folder(backend: Backend) -> None:
    with pytest.raises(
        InvalidInput, match=r"'DEEP_ARCHIVE' is not accepted: give one of STANDARD_IA, .*restored first"
    ):
        parse_policy({"cold": {"days": 30, "storage_class": "DEEP_ARCHIVE"}}, "test")
    policy = parse_policy({"cold": {"days": 30, "storage_class": "GLACIER_IR"}}, "test")
    with pytest.raises(InvalidInput, match=r"not on S3: give cold\.root"):
        move_to_cold(backend.store, backend.catalog, policy, now=NOW)


def test_retention_removes_deleted_runs_and_their_blobs_and_moves_the_rest(
    backend: Backend, tmp_path: Path
) -> None:
    store = backend.store
    catalog = backend.catalog
    policy = {"trash": {"days": 7}, "cold": {"days": 30, "root": str(tmp_path / "cold")}}
    file = PolicyFile(parse_policy(policy, "test"), "test")
    (gone,) = add_run(store, "gone", b"only of a deleted run", days=40)
    (kept,) = add_run(store, "kept", b"of a run that stays", days=40)
    assert [row.kind for row in carry_out(store, catalog, file, now=NOW).gone] == [KIND]
    with catalog.write() as session:
        set_lifecycle(session, store, "p", "gone", "deleted", actor="ada")
    assert carry_out(store, catalog, file, now=NOW).gone == []
    later = carry_out(store, catalog, file, now=NOW + timedelta(days=20)).gone
    assert [(row.kind, row.count) for row in later] == [("unnamed blobs", 1), ("deleted runs", 1)]
    assert (store.has_blob(gone), store.get_blob(kept)) == (False, b"of a run that stays")

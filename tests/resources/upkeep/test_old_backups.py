"""Only contents that a newer backup needs stay of old ones; whole backups stay whole through kills."""

import secrets
import time
from dataclasses import replace
from typing import Any

import pytest

from halving import InvalidInput, NotFound, Store, StoreError
from halving.store.store import blob_name, digest_of
from resources.backend import Backend
from resources.upkeep import backup as backup_module
from resources.upkeep import old_backups
from resources.upkeep.backup import back_up
from resources.upkeep.backup_files import (
    CATALOG,
    FILES,
    MANIFEST,
    BackupManifest,
    backups_of,
    digests_of,
    file_of,
    read_checked,
    read_manifest,
    write_backup,
)
from resources.upkeep.old_backups import Pruned, prune_backups
from tests.changes import Killed

DAY = 86_400.0


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, backend: Backend) -> Store:
    if request.param == "folder":
        return Store(f"{backend.store.root}-backups")
    return Store(request.getfixturevalue("s3").root(secrets.token_hex(6)))


def make_backup(backend: Backend, place: Store, page: str) -> str:
    """A backup of a store of which this file is all that changes."""
    backend.store.replace("notes/page.html", page.encode())
    return back_up(backend.store, backend.catalog, place).manifest.id


def prune(backend: Backend, place: Store, keep: int, days: float = 3) -> Pruned:
    return prune_backups(place, backend.store.root, keep, now=time.time() + days * DAY)


def has(place: Store, page: str) -> bool:
    return place.has_blob(digest_of(page.encode()))


def whole(place: Store) -> list[str]:
    """The backups of a place, oldest first, each of which has all that it names."""
    manifests = [read_manifest(place, backup) for backup in backups_of(place)]
    for manifest in manifests:
        read_checked(place, manifest, CATALOG, manifest.catalog)
        assert all(
            place.get_blob(digest)
            for digest in digests_of(read_checked(place, manifest, FILES, manifest.files))
        )
    return [manifest.id for manifest in sorted(manifests, key=lambda manifest: manifest.began)]


def everything(place: Store) -> set[str]:
    return {
        name for folder in ("backups", "artifacts") for name, _, _ in place.files(folder) if "/." not in name
    }


def test_the_newest_stay_with_all_that_they_share_and_what_only_others_named_goes(
    backend: Backend, place: Store
) -> None:
    backend.store.put_blob(b"weights")
    first, *others = [make_backup(backend, place, page) for page in ("one", "two", "three")]
    assert prune(backend, place, 2) == Pruned([first], 1, 3)
    assert whole(place) == others
    assert (has(place, "one"), has(place, "two"), has(place, "weights")) == (False, True, True)
    assert {name.split("/")[1] for name, _, _ in place.files("backups")} == {*others}
    assert prune(backend, place, 2) == Pruned([], 0, 0)


def test_what_was_copied_within_two_days_goes_later(backend: Backend, place: Store) -> None:
    first, second = [make_backup(backend, place, page) for page in ("one", "two")]
    assert prune_backups(place, backend.store.root, 1) == Pruned([first], 0, 0)
    assert has(place, "one")
    assert prune(backend, place, 1) == Pruned([], 1, 3)
    assert whole(place) == [second]


def test_what_an_unfinished_backup_needs_stays_though_the_one_it_builds_on_goes(
    backend: Backend, place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.store.replace("notes/old.html", b"of the first")
    first = make_backup(backend, place, "one")
    beside: list[str] = []

    def publish(*arguments: Any) -> None:
        if not beside:  # it is about to be whole, and names what no other one names any more
            backend.store.delete("notes/old.html")
            beside.append("")
            beside[0] = make_backup(backend, place, "three")
            assert prune(backend, place, 1, days=6).backups == [first]
        write_backup(*arguments)

    monkeypatch.setattr(backup_module, "write_backup", publish)
    second = make_backup(backend, place, "two")
    assert whole(place) == [second, *beside]
    assert has(place, "of the first")
    assert has(place, "two")


def test_what_a_killed_one_left_stays_for_a_week(
    backend: Backend, place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(backup_module, "write_backup", die)
    with pytest.raises(Killed):
        make_backup(backend, place, "killed")
    monkeypatch.undo()
    left = make_backup(backend, place, "whole")
    prune(backend, place, 1, days=6)
    assert has(place, "killed")
    assert prune(backend, place, 1, days=8) == Pruned([], 1, 6)
    assert place.names("backups") == whole(place) == [left]


def test_a_backup_that_took_as_long_as_a_killed_one_is_not_published(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Store(f"{backend.store.root}-backups")
    now = time.time
    pack = backup_module.pack

    def slowly(*arguments: Any) -> bytes:
        monkeypatch.setattr(backup_module.time, "time", lambda: now() + 6.1 * DAY)
        return pack(*arguments)

    monkeypatch.setattr(backup_module, "pack", slowly)
    with pytest.raises(StoreError, match="took longer than six days"):
        make_backup(backend, place, "one")
    assert backups_of(place) == []


def test_backups_of_other_stores_stay(backend: Backend) -> None:
    place = Store(f"{backend.store.root}-backups")
    other = make_backup(backend, place, "one")
    manifest = read_manifest(place, other)
    place.replace(file_of(other, MANIFEST), b"")
    place.delete(file_of(other, MANIFEST))
    write_backup(place, replace(manifest, root="/data/other"))
    mine = make_backup(backend, place, "two")
    assert prune(backend, place, 1) == Pruned([], 0, 0)
    assert whole(place) == [other, mine]


def test_where_nobody_knows_what_must_stay_nothing_goes(backend: Backend) -> None:
    place = Store(f"{backend.store.root}-backups")
    with pytest.raises(
        InvalidInput, match="keep = 0 is not accepted: give how many backups to keep, 1 or more"
    ):
        prune_backups(place, backend.store.root, 0)
    _, second = [make_backup(backend, place, page) for page in ("one", "two")]
    place.delete(file_of(second, FILES))
    contents = {blob_name(digest_of(page)) for page in (b"one", b"two")}
    with pytest.raises(NotFound, match=r"no backups/.*/files\.parquet"):
        prune(backend, place, 1)
    assert contents <= everything(place)


def test_a_backup_that_fails_keeps_nothing_old(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Store(f"{backend.store.root}-backups")
    first = make_backup(backend, place, "one")

    def full(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(backup_module, "write_backup", full)
        with pytest.raises(StoreError, match="full"):
            make_backup(backend, place, "two")
    assert {name.rpartition("/")[2] for name, _, _ in place.files("backups") if first not in name} == {
        CATALOG,
        FILES,
    }
    third = make_backup(backend, place, "three")
    assert prune(backend, place, 1) == Pruned([first], 2, 6)
    assert {name.split("/")[1] for name, _, _ in place.files("backups")} == {third}


def test_another_store_may_delete_its_own_old_backups_at_the_same_time(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Store(f"{backend.store.root}-backups")
    first, second, third = [make_backup(backend, place, page) for page in ("one", "two", "three")]
    manifest = read_manifest(place, second)
    place.delete(file_of(second, MANIFEST))
    write_backup(place, replace(manifest, root="another"))
    read = old_backups.read_checked

    def delete_first(place: Store, manifest: BackupManifest, *arguments: str) -> bytes:
        if manifest.id == second:
            place.delete_below(f"backups/{second}")
        return read(place, manifest, *arguments)

    monkeypatch.setattr(old_backups, "read_checked", delete_first)
    assert prune(backend, place, 1).backups == [first]
    assert whole(place) == [third]

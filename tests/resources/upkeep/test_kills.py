"""Kills at each step of backups, of the deletion of old ones and of restores, in a folder and on S3."""

import gzip
import itertools
import os
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from halving import InvalidInput, Store
from halving.machine.temporary_folders import scratch_folder
from halving.store.json_files import now
from halving.store.store import digest_of
from resources.catalog import Catalog, RegistryEventRow, SweepRow, TrialRow, utcnow
from resources.upkeep.backup import back_up
from resources.upkeep.backup_files import (
    CATALOG,
    FILES,
    MANIFEST,
    backups_of,
    digests_of,
    file_of,
    files_to_keep,
    read_backup,
    read_checked,
    read_manifest,
    unpack,
    write_backup,
)
from resources.upkeep.catalog_dump import check_empty, dump_catalog
from resources.upkeep.old_backups import prune_backups
from resources.upkeep.restore import restore
from tests.backends import add_version, snapshot_row
from tests.changes import be_later, is_killed, is_process_killed
from tests.lent_databases import LentDatabases
from tests.resources.upkeep.backups import EARLIER_DUMP

DAY = 86_400.0
PUBLISHED = ["1.0.0.json", "aliases.json", "champion.json"]
IsKilled = Callable[[int, Path, Callable[[], object]], bool]
NewRoot = Callable[[], str]
Targets = Callable[[], AbstractContextManager[str]]


@pytest.fixture
def new_root(
    any_store: Store, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> NewRoot:
    """Gives the root of an empty store of the same kind.

    Nobody waits for the disk: what a process has written outlives its death.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    if any_store.folder is not None:
        return lambda: str(tmp_path / secrets.token_hex(4))
    server = request.getfixturevalue("s3")
    return lambda: str(server.root(secrets.token_hex(6)))


def fill(store: Store, url: str) -> None:
    """A few files, a sweep of one trial with a checkpoint, and a version of a model."""
    digest = store.put_blob(b"weights")
    with closing(Catalog(url)) as catalog, catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
        session.flush()
        about = {
            "spec": {"name": "small"},
            "spec_digest": "d",
            "snapshot": "sha256:s",
            "driver": "job",
            "ordinal": 0,
        }
        session.add(SweepRow(id="small-1", name="small", status="searching", created_at=utcnow(), **about))
        session.flush()
        session.add(
            TrialRow(
                sweep="small-1", number=0, params={"lr": 0.1}, status="paused", attempt=1, checkpoint=digest
            )
        )
        add_version(session, model="small", version="1.0.0", stage="champion", updated=0, number=1)
        session.add(
            RegistryEventRow(model="small", version="1.0.0", kind="promoted", actor="test", at=utcnow())
        )
    store.create("runs/project=small/a/record.json", now().encode())
    change(store, "one")


def change(store: Store, page: str) -> None:
    """What each backup has another content of."""
    store.replace("notes/page.html", page.encode())


def everything(store: Store) -> dict[str, bytes]:
    return {name: store.read(name) for name, _, _ in files_to_keep(store)}


def copy_of(place: Store, root: str) -> Store:
    """A place with the same backups."""
    if place.folder is not None:
        shutil.copytree(place.folder, root)
        return Store(root)
    copied = Store(root)
    for name, _, _ in place.files(""):
        copied.replace(name.lstrip("/"), place.read(name.lstrip("/")))
    return copied


def check_whole(place: Store) -> list[str]:
    """The backups of a place, oldest first, each of which can be restored: it has all that it names."""
    manifests = [read_manifest(place, backup) for backup in backups_of(place)]
    for manifest in manifests:
        read_checked(place, manifest, CATALOG, manifest.catalog)
        assert all(
            place.get_blob(digest)
            for digest in digests_of(read_checked(place, manifest, FILES, manifest.files))
        )
    return [manifest.id for manifest in sorted(manifests, key=lambda manifest: manifest.began)]


def back_up_killed(
    store: Store, url: str, new_root: NewRoot, within: Path, is_killed: IsKilled, steps: Iterable[int]
) -> list[int]:
    """Kill ``halving backup PLACE --keep 1`` at each of these steps until one ends, and call it again.

    Returns how many backups each call has left.
    """
    fill(store, url)
    first = Store(new_root())
    kept = list[int]()

    def command(place: Store, days: float) -> None:
        with closing(Catalog(url)) as catalog:
            back_up(store, catalog, place)
        prune_backups(place, store.root, 1, now=time.time() + days * DAY)

    with closing(Catalog(url)) as catalog:
        for page in ("two", "three"):
            back_up(store, catalog, first)
            change(store, page)
    for step in steps:
        place = copy_of(first, new_root())
        is_over = not is_killed(step, within, partial(command, place, 3))
        kept.append(len(check_whole(place)))
        be_later(place)
        command(place, 9)  # for what a killed one has put counts for a week
        (newest,) = check_whole(place)
        assert {name.split("/")[1] for name, _, _ in place.files("backups")} == {newest}
        contents = [name for name, _, _ in place.files("artifacts") if "/." not in name]
        assert len(contents) == len(everything(store)), "of each file its content, and no other"
        if is_over:
            return kept
    raise AssertionError("no backup came to its end")


def restore_killed(
    place: Store,
    new_root: NewRoot,
    targets: Targets,
    is_killed: IsKilled,
    steps: Iterable[int],
    published: Collection[str],
) -> list[tuple[bool, bool]]:
    """Kill ``halving restore PLACE`` at each of these steps until one ends, and call it again.

    Returns for each whether the store was marked as being restored, and whether the catalog was loaded.
    """
    manifest = read_backup(place)
    states = list[tuple[bool, bool]]()
    files = unpack(read_checked(place, manifest, FILES, manifest.files))

    def command(root: str, target: str) -> None:
        with closing(Catalog(target)) as catalog:
            restore(place, Store(root), lambda: catalog)

    for step in steps:
        with targets() as target:
            root = new_root()
            is_over = not is_killed(step, Path(root).parent, partial(command, root, target))
            store = Store(root)
            be_later(store)
            if not is_over:
                states.append((store.exists("restoring.json"), is_loaded(target, manifest.rows)))
                command(root, target)
            assert everything(store) == {name: place.get_blob(kept.digest) for name, kept in files.items()}
            assert store.names("models/small") == published
            assert is_loaded(target, manifest.rows)
            with pytest.raises(InvalidInput, match="give one with nothing in it"):
                command(root, target)
            if is_over:
                return states
    raise AssertionError("no restore came to its end")


def is_loaded(url: str, rows: Mapping[str, int]) -> bool:
    """Whether a catalog has these rows; or else none at all."""
    with closing(Catalog(url)) as catalog, scratch_folder("test") as folder:
        if dump_catalog(catalog, folder / "rows.gz").items() >= rows.items():
            return True
        check_empty(catalog)
        return False


def backed_up(store: Store, url: str, root: str) -> Store:
    """A place with one backup."""
    fill(store, url)
    with closing(Catalog(url)) as catalog:
        back_up(store, catalog, place := Store(root))
    return place


def as_of_earlier_schema(place: Store) -> None:
    """Make the backup of a place one of an earlier schema, of a snapshot alone."""
    dump = gzip.compress(EARLIER_DUMP.encode())
    manifest = read_backup(place)
    place.replace(file_of(manifest.id, CATALOG), dump)
    place.delete(file_of(manifest.id, MANIFEST))
    write_backup(place, replace(manifest, revision="0009", rows={"snapshots": 1}, catalog=digest_of(dump)))


@pytest.fixture
def targets(any_catalog: str, tmp_path: Path, catalog_file: Path, request: pytest.FixtureRequest) -> Targets:
    """Lends empty catalogs of this kind."""

    @contextmanager
    def lend() -> Iterator[str]:
        if any_catalog.startswith("sqlite"):
            yield f"sqlite:///{shutil.copy(catalog_file, tmp_path / f'{secrets.token_hex(4)}.db')}"
            return
        lent: LentDatabases = request.getfixturevalue("lent_catalogs")
        name = lent.take()
        yield request.getfixturevalue("postgres").url(name)
        lent.give_back(name)

    return lend


@pytest.fixture
def source(tmp_path: Path, catalog_file: Path) -> str:
    return f"sqlite:///{shutil.copy(catalog_file, tmp_path / 'source.db')}"


@pytest.mark.parametrize(
    ("any_store", "any_catalog"),
    [("folder", "sqlite"), ("folder", "postgres"), ("s3", "sqlite")],
    indirect=True,
)
def test_a_backup_killed_at_any_step_leaves_whole_backups_and_the_next_one_finishes(
    any_store: Store, any_catalog: str, new_root: NewRoot, tmp_path: Path
) -> None:
    kept = back_up_killed(any_store, any_catalog, new_root, tmp_path, is_killed, itertools.count())
    assert set(kept) == {2, 3, 1}, "the old ones, the new one beside them, and the new one alone"


@pytest.mark.parametrize(
    ("any_store", "any_catalog"),
    [("folder", "sqlite"), ("folder", "postgres"), ("s3", "sqlite")],
    indirect=True,
)
def test_a_restore_killed_at_any_step_goes_on_by_the_same_command(
    any_store: Store, source: str, new_root: NewRoot, targets: Targets
) -> None:
    place = backed_up(any_store, source, new_root())
    states = restore_killed(place, new_root, targets, is_killed, itertools.count(), PUBLISHED)
    assert set(states) == {(False, False), (True, False), (True, True)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("any_store", "any_catalog"), [("folder", "sqlite"), ("folder", "postgres")], indirect=True
)
def test_a_restore_of_an_earlier_schema_goes_on_after_a_kill_at_any_step(
    any_store: Store, source: str, new_root: NewRoot, targets: Targets
) -> None:
    """Every second step: the catalog's schema goes back, its rows are loaded, and it is upgraded."""
    place = backed_up(any_store, source, new_root())
    as_of_earlier_schema(place)
    states = restore_killed(place, new_root, targets, is_killed, itertools.count(0, 2), [])
    assert set(states) == {(False, False), (True, False), (True, True)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("any_store", "any_catalog"), [("folder", "sqlite"), ("s3", "postgres")], indirect=True
)
def test_processes_of_backup_and_restore_are_killed_as_well(
    any_store: Store, source: str, any_catalog: str, new_root: NewRoot, targets: Targets, tmp_path: Path
) -> None:
    """Every third step."""
    steps = itertools.count(0, 3)
    assert back_up_killed(any_store, any_catalog, new_root, tmp_path, is_process_killed, steps)
    place = backed_up(Store(new_root()), source, new_root())
    assert restore_killed(place, new_root, targets, is_process_killed, itertools.count(1, 3), PUBLISHED)

"""A backup of a store that has lost something says so, and takes no older one with it."""

import shutil
from pathlib import Path

import pytest

from halving import InvalidInput
from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog import TrialRow
from resources.upkeep import backup as backup_module
from resources.upkeep.backup import back_up
from resources.upkeep.backup_files import backups_of, files_to_keep, read_backup
from resources.upkeep.old_backups import prune_after
from tests.resources.upkeep.backups import elsewhere, everything, fill, place_of

WHOSE = {
    "part": "a part of the checkpoint of small@1.0.0",
    "champion": "the checkpoint of small@1.0.0",
    "manifest": "the manifest of small@1.0.0",
    "report": "the report of small@1.0.0",
    "page": "the page of the report of small-1",
    "paused": "the checkpoint of small-1.0000",
}


@pytest.fixture
def apart(tmp_path: Path) -> Backend:
    """A backend whose catalog lies outside of its store."""
    return Backend(root=str(tmp_path / "store"), catalog_url=f"sqlite:///{tmp_path}/catalog/catalog.db")


def test_a_store_whose_disk_is_not_mounted_is_refused_and_its_backups_stay(apart: Backend) -> None:
    fill(apart)
    place = place_of(apart)
    back_up(apart.store, apart.catalog, place)
    before = {name for name, _, _ in place.files("backups")}
    Path(apart.store.root).rename(f"{apart.store.root}-not-mounted")
    Path(apart.store.root).mkdir()
    with pytest.raises(
        InvalidInput,
        match=r"no files, and the catalog .* has 1 trials and 1 versions of models\. Is its disk mounted",
    ):
        back_up(apart.store, apart.catalog, place)
    assert {name for name, _, _ in place.files("backups")} == before


def test_an_unmounted_store_is_refused_because_its_last_backup_had_files(
    backend: Backend,
) -> None:
    fill(backend)
    place = place_of(backend)
    made = back_up(backend.store, backend.catalog, place)
    # as one that is made anew in the folder behind the disk
    _, catalog = elsewhere(Path(backend.store.root).parent)
    shutil.rmtree(backend.store.root)
    with pytest.raises(
        InvalidInput, match=f"it has no files, and its backup {made.manifest.id} has {made.manifest.count}"
    ):
        back_up(backend.store, catalog, place)
    assert backups_of(place) == [made.manifest.id]


def test_an_empty_store_of_an_empty_catalog_is_backed_up_the_first_time(backend: Backend) -> None:
    assert back_up(backend.store, backend.catalog, place_of(backend)).manifest.count == 0


@pytest.mark.parametrize("lost", WHOSE)
def test_what_the_store_lacks_of_the_catalog_is_named_and_no_older_backup_goes(
    apart: Backend, lost: str
) -> None:
    digests = fill(apart)
    place = place_of(apart)
    whole = back_up(apart.store, apart.catalog, place)
    assert (list(whole.missing), whole.problem, whole.manifest.missing) == ([], "", 0)
    apart.store.delete(blob_name(digests[lost]))
    made = back_up(apart.store, apart.catalog, place)
    assert [(content.digest, content.title) for content in made.missing] == [(digests[lost], WHOSE[lost])]
    assert (
        f"lacks 1 contents that the catalog names, because they are not in the store {apart.store.root}: "
        f"{WHOSE[lost]}"
    ) in made.problem
    assert read_backup(place).missing == 1
    assert prune_after(place, apart.store.root, 1, made) is None
    assert len(backups_of(place)) == 2
    apart.store.put_blob(place.get_blob(digests[lost]))
    mended = back_up(apart.store, apart.catalog, place)
    pruned = prune_after(place, apart.store.root, 1, mended)
    assert (mended.problem, pruned is not None and len(pruned.backups), backups_of(place)) == (
        "",
        2,
        [mended.manifest.id],
    )


def test_a_checkpoint_that_is_replaced_while_the_catalog_is_dumped_is_not_missing(
    apart: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(apart)
    store = apart.store
    dump = backup_module.dump_catalog
    rounds: list[str] = []

    def dump_between_two_checkpoints(*arguments: object) -> dict[str, int]:
        """A dump between two listings of the store, in neither of which the dumped checkpoint is."""
        short = store.put_blob(b"short-lived")
        name_in_catalog(apart, short)
        rows = dump(*arguments)  # type: ignore[arg-type]
        if not rounds:
            store.delete(blob_name(short))
            name_in_catalog(apart, store.put_blob(b"newer"))
        rounds.append(short)
        return rows

    monkeypatch.setattr(backup_module, "dump_catalog", dump_between_two_checkpoints)
    made = back_up(store, apart.catalog, place_of(apart))
    assert made.problem == ""
    assert len(rounds) > 1, "the catalog is dumped again"


def name_in_catalog(backend: Backend, digest: str) -> None:
    with backend.catalog.write() as session:
        session.get_one(TrialRow, ("small-1", 0)).checkpoint = digest


def test_a_catalog_that_is_another_file_in_the_store_is_no_file_of_the_backup(tmp_path: Path) -> None:
    backend = Backend(root=str(tmp_path / "store"), catalog_url=f"sqlite:///{tmp_path}/store/halving.db")
    fill(backend)
    made = back_up(backend.store, backend.catalog, place_of(backend))
    names = {name for name, _, _ in files_to_keep(backend.store, backend.catalog.url)}
    assert not any(name.startswith("halving") for name in names)
    assert (
        made.manifest.count,
        {name for name in everything(backend.store) if name.startswith("halving.db")},
    ) == (
        len(names),
        {"halving.db", "halving.db-wal", "halving.db-shm"},
    )
    for folder in ("artifacts", "runs"):
        shutil.rmtree(Path(backend.store.root, folder))
    with pytest.raises(InvalidInput, match="it has no files, and the catalog"):
        back_up(backend.store, backend.catalog, place_of(backend))

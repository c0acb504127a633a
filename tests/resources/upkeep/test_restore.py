"""A restore refuses what is not empty before it writes, goes on after a kill, and checks existing files."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, select

from halving import InvalidInput, Store
from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog import Catalog, SweepRow, WriteLogRow, utcnow
from resources.upkeep import restore as restore_module
from resources.upkeep.backup import back_up
from resources.upkeep.backup_files import CATALOG, read_backup, read_checked
from resources.upkeep.catalog_dump import is_loaded, load_catalog
from resources.upkeep.restore import restore
from tests.resources.upkeep.backups import elsewhere, everything, fill, place_of


class _Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def _die(done: int, of: int) -> None:
    raise _Killed


def sweeps_of(catalog: Catalog) -> list[str]:
    with catalog.read() as session:
        return list(session.scalars(select(SweepRow.id)))


def test_a_refused_restore_leaves_no_mark_by_which_the_next_one_is_accepted(
    backend: Backend, tmp_path: Path
) -> None:
    fill(backend)
    back_up(backend.store, backend.catalog, place_of(backend))
    store, catalog = elsewhere(tmp_path)
    with pytest.raises(InvalidInput, match="give a catalog with nothing in it"):
        restore(place_of(backend), store, lambda: backend.catalog)
    assert list(store.files("")) == []
    store.create("runs/project=mine/r/record.json", b"{}")
    with pytest.raises(InvalidInput, match="it has 1 files, such as runs/project=mine"):
        restore(place_of(backend), store, lambda: catalog)
    assert [name.lstrip("/") for name, _, _ in store.files("")] == ["runs/project=mine/r/record.json"]


def cut_off(backend: Backend, store: Store, catalog: Catalog) -> None:
    """A restore that is killed when all files are there, and before the catalog is."""
    with pytest.raises(_Killed):
        restore(place_of(backend), store, lambda: catalog, progress=_die)
    assert store.exists("restoring.json")
    assert sweeps_of(catalog) == []


def test_what_a_restore_that_was_cut_off_has_left_is_hashed_by_the_next(
    backend: Backend, tmp_path: Path
) -> None:
    digests = fill(backend)
    back_up(backend.store, backend.catalog, place_of(backend))
    store, catalog = elsewhere(tmp_path)
    cut_off(backend, store, catalog)
    damaged = Path(store.root, blob_name(digests["paused"]))
    damaged.write_bytes(b"pAused")
    with pytest.raises(
        InvalidInput, match=f"{damaged} is not accepted: its content is not that of the backup"
    ):
        restore(place_of(backend), store, lambda: catalog)
    assert sweeps_of(catalog) == []
    damaged.unlink()
    done = restore(place_of(backend), store, lambda: catalog)
    assert (done.there, sweeps_of(catalog)) == (done.manifest.count - 1, ["small-1"])
    assert everything(store) == everything(backend.store)
    assert not store.exists("restoring.json")


def test_what_somebody_else_has_written_since_a_restore_was_cut_off_is_refused(
    backend: Backend, tmp_path: Path
) -> None:
    fill(backend)
    back_up(backend.store, backend.catalog, place_of(backend))
    store, catalog = elsewhere(tmp_path)
    cut_off(backend, store, catalog)
    store.create("runs/project=mine/r/record.json", b"{}")
    with pytest.raises(
        InvalidInput,
        match=r"1 of its files are not of the backup .*, such as runs/project=mine/r/record\.json",
    ):
        restore(place_of(backend), store, lambda: catalog)
    assert sweeps_of(catalog) == []


def test_killed_when_the_catalog_is_loaded_the_same_restore_finishes(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(backend)
    made = back_up(backend.store, backend.catalog, place_of(backend))
    store, catalog = elsewhere(tmp_path)

    def load_and_die(*arguments: Any) -> None:
        load_catalog(*arguments)
        raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(restore_module, "load_catalog", load_and_die)
        with pytest.raises(_Killed):
            restore(place_of(backend), store, lambda: catalog)
    assert store.exists("restoring.json")
    assert restore(place_of(backend), store, lambda: catalog).there == made.manifest.count
    assert (store.exists("restoring.json"), sweeps_of(catalog)) == (False, ["small-1"])


def test_rows_are_loaded_also_if_their_table_has_another_name_since_the_backup(backend: Backend) -> None:
    fill(backend)
    entry = {"at": utcnow(), "actor": "ada", "method": "POST", "route": "-", "target": "/", "status": 200}
    with backend.catalog.write() as session:
        session.add(WriteLogRow(**entry))
    assert is_loaded(backend.catalog, {"sweeps": 1, "audit": 1})
    assert not is_loaded(backend.catalog, {"sweeps": 1, "audit": 2})


def test_a_catalog_that_is_a_file_in_the_store_is_nothing_that_a_restore_goes_by(
    backend: Backend, tmp_path: Path
) -> None:
    fill(backend)
    back_up(backend.store, backend.catalog, place_of(backend))
    store = Store(tmp_path / "new")
    url = f"sqlite:///{store.root}/halving.db"
    with closing(Catalog(url)) as catalog:
        with pytest.raises(_Killed):
            restore(place_of(backend), store, lambda: catalog, progress=_die, url=url)
        restore(place_of(backend), store, lambda: catalog, url=url)
        assert sweeps_of(catalog) == ["small-1"]


def test_in_a_place_of_several_stores_somebody_has_to_say_which_backup(
    backend: Backend, tmp_path: Path
) -> None:
    fill(backend)
    place = place_of(backend)
    first = back_up(backend.store, backend.catalog, place).manifest
    assert read_backup(place) == first
    other, catalog = elsewhere(tmp_path)
    other.create("notes/page.html", b"<p>")
    second = back_up(other, catalog, place).manifest
    third = back_up(backend.store, backend.catalog, place).manifest
    store, empty = elsewhere(tmp_path)
    with pytest.raises(InvalidInput, match=r"--backup is needed: .* has backups of 2 stores") as refused:
        restore(place, store, lambda: empty)
    assert all(f"{manifest.id} of {manifest.root} (20" in str(refused.value) for manifest in (second, third))
    assert first.id not in str(refused.value), "the newest of each store"
    assert list(store.files("")) == []
    assert restore(place, store, lambda: empty, second.id).manifest.root == other.root
    assert everything(store) == {"notes/page.html": b"<p>"}


def test_of_two_restores_at_once_the_second_is_told_so(
    backend: Backend, any_catalog: str, tmp_path: Path
) -> None:
    fill(backend)
    place = place_of(backend)
    manifest = back_up(backend.store, backend.catalog, place).manifest
    dump = tmp_path / "catalog.jsonl.gz"
    dump.write_bytes(read_checked(place, manifest, CATALOG, manifest.catalog))
    loaded: list[dict[str, int]] = []
    with closing(Catalog(any_catalog)) as first, closing(Catalog(any_catalog)) as second:

        @event.listens_for(second.engine, "set_connection_execution_options")
        def _load_first(connection: Connection, options: dict[str, Any]) -> None:
            if options.get("write") and not loaded:  # it has seen that the catalog is empty
                loaded.append(load_catalog(first, dump, manifest.revision))

        with pytest.raises(
            InvalidInput,
            match="another restore, or something else, has written into it while this backup was loaded",
        ):
            load_catalog(second, dump, manifest.revision)
        assert loaded == [dict(manifest.rows)]
        assert sweeps_of(first) == ["small-1"]


def test_a_restore_that_is_overtaken_by_one_of_another_place_is_refused(
    backend: Backend, tmp_path: Path
) -> None:
    fill(backend)
    other = Store(tmp_path / "other-backups")
    for place in (place_of(backend), other):
        back_up(backend.store, backend.catalog, place)
    store, catalog = elsewhere(tmp_path)
    overtaking = read_backup(other).id

    def overtake() -> Catalog:
        if not store.exists("restoring.json"):
            with pytest.raises(_Killed):
                restore(other, store, lambda: catalog, progress=_die)
        return catalog

    with pytest.raises(
        InvalidInput, match="another backup is being restored into it, which began in this moment"
    ):
        restore(place_of(backend), store, overtake)
    assert f'"{overtaking}"' in store.read("restoring.json").decode()

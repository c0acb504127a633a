"""A backup has all that its catalog names, shares contents with earlier ones, and is whole or absent."""

import json
import secrets
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from alembic import command
from sqlalchemy import select, text

from halving import InvalidInput, NotFound, Store, StoreError
from halving.maintenance import daily
from halving.records.run_record import RunRecords
from halving.store.cold import add_cold_root
from halving.store.json_files import now
from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog import (
    Catalog,
    ModelVersionRow,
    RegistryEventRow,
    SnapshotRow,
    SweepRow,
    TrialRow,
    utcnow,
)
from resources.registry.publishing import publish
from resources.upkeep import backup as backup_module
from resources.upkeep.backup import back_up
from resources.upkeep.backup_files import backups_of, read_backup, unpack
from resources.upkeep.restore import restore
from tests.backends import add_version, snapshot_row
from tests.postgres import Postgres
from tests.resources.upkeep.backups import EARLIER_DUMP, add_sweep, elsewhere, everything, place_of
from tests.s3 import S3
from tests.sdk.metric_files import read_points, write_segment


@pytest.fixture
def filled_backend(either_backend: Backend) -> Backend:
    """A sweep of one trial with a checkpoint, a version of a model, and a report's page."""
    store = either_backend.store
    catalog = either_backend.catalog
    digest = store.put_blob(b"weights")
    with catalog.write() as session:
        add_sweep(session, {"name": "small", "text": "ü"}, {"lr": 0.1}, digest)
        add_version(session, model="small", version="1.0.0", stage="champion", updated=0, number=1)
        session.add(
            RegistryEventRow(model="small", version="1.0.0", kind="promoted", actor="test", at=utcnow())
        )
    add_attempt(store, 1)
    store.replace("reports/small-1.html", b"<p>")
    return either_backend


def add_attempt(store: Store, attempt: int, run: str = "small-1.0000") -> None:
    records = RunRecords(store, "small", run)
    records.start({"lr": 0.1}, {"sweep": "small-1"}, attempt, {"started": now(), "provenance": {}})
    write_segment(store, run, attempt, 0, [("loss", attempt, 1_700_000_000_000, 0.5)], "small")
    records.end(attempt, {"status": "paused"})


def restore_backup(place: Store, tmp_path: Path) -> tuple[Store, Catalog]:
    store, catalog = elsewhere(tmp_path)
    restore(place, store, lambda: catalog)
    return store, catalog


def test_what_is_restored_is_what_was_backed_up_on_either_database(
    filled_backend: Backend, postgres: Postgres, tmp_path: Path
) -> None:
    back_up(filled_backend.store, filled_backend.catalog, place_of(filled_backend))
    for url in (f"sqlite:///{tmp_path}/new/catalog.db", postgres.database(f"t{secrets.token_hex(6)}")):
        store = Store(tmp_path / secrets.token_hex(3))
        with closing(Catalog(url)) as catalog:
            restore(place_of(filled_backend), store, lambda catalog=catalog: catalog)
            assert everything(store) == everything(filled_backend.store)
            with catalog.read() as session, filled_backend.catalog.read() as before:
                trial = session.get(TrialRow, ("small-1", 0))
                old = before.get(TrialRow, ("small-1", 0))
                assert trial
                assert old
                assert (trial.params, trial.checkpoint) == (old.params, old.checkpoint)
                sweep = catalog.sweep(session, "small-1")
                was = filled_backend.catalog.sweep(before, "small-1")
                assert sweep.created_at == was.created_at
                assert sweep.spec == was.spec
                assert session.scalar(text("SELECT count(*) FROM sweeps WHERE sampler_attrs IS NULL")) == 1, (
                    "null, and not JSON's"
                )
                number = max(session.scalars(select(RegistryEventRow.id)))
            with catalog.write() as session:  # rows are numbered on
                session.add(
                    event := RegistryEventRow(
                        model="small", version=None, kind="note", actor="test", at=utcnow()
                    )
                )
                session.flush()
                assert event.id == number + 1


def test_moments_of_a_database_in_another_zone_stay_the_same(
    backend: Backend, postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.database(name := f"t{secrets.token_hex(6)}")
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'")  # type: ignore[arg-type]
    with closing(Catalog(url)) as catalog:
        with catalog.write() as session:
            session.add(row := snapshot_row("sha256:s"))
            session.flush()
            written = row.created_at
        back_up(backend.store, catalog, place_of(backend))
        _, copied = restore_backup(place_of(backend), tmp_path)
        for each in (catalog, copied):
            with each.read() as session:
                created_at = session.get_one(SnapshotRow, "sha256:s").created_at
            assert (created_at, created_at.utcoffset()) == (written, timedelta(0))


def test_a_second_backup_copies_what_is_new_and_the_first_stays_as_it_is(
    filled_backend: Backend, tmp_path: Path
) -> None:
    place = place_of(filled_backend)
    first = back_up(filled_backend.store, filled_backend.catalog, place)
    before = everything(filled_backend.store)
    assert first.copied == len(before)
    filled_backend.store.replace("reports/small-1.html", b"<p>2")
    filled_backend.store.put_blob(b"more")
    second = back_up(filled_backend.store, filled_backend.catalog, place)
    assert second.copied == 2
    assert backups_of(place) == sorted([first.manifest.id, second.manifest.id])
    store = Store(tmp_path / "old")
    restore(place, store, lambda: Catalog(f"sqlite:///{tmp_path}/c/catalog.db"), first.manifest.id)
    assert everything(store) == before
    with pytest.raises(NotFound, match="no backup 'x' in"):
        read_backup(place, "x")


def test_a_checkpoint_deleted_while_it_is_copied_is_not_missing_in_the_backup(
    filled_backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled_backend.store
    catalog = filled_backend.catalog
    dump = backup_module.dump_catalog
    newer: list[str] = []

    def dump_and_supersede(*arguments: object) -> dict[str, int]:
        rows = dump(*arguments)  # type: ignore[arg-type]
        if not newer:
            newer.append(store.put_blob(b"newer"))
            with catalog.write() as session:
                (trial,) = session.scalars(select(TrialRow))
                old = str(trial.checkpoint)
                trial.checkpoint = newer[0]
            store.delete(blob_name(old))
        return rows

    monkeypatch.setattr(backup_module, "dump_catalog", dump_and_supersede)
    back_up(store, catalog, place_of(filled_backend))
    again, copied = restore_backup(place_of(filled_backend), tmp_path)
    with copied.read() as session:
        (trial,) = session.scalars(select(TrialRow))
    assert trial.checkpoint == newer[0]
    assert again.get_blob(newer[0]) == b"newer"


def test_attempts_trials_and_sweeps_that_the_dump_does_not_know_are_left_out(
    filled_backend: Backend, tmp_path: Path
) -> None:
    for run, attempt in (("small-1.0000", 2), ("small-1.0001", 1)):
        add_attempt(filled_backend.store, attempt, run)
    RunRecords(filled_backend.store, "small", "later-1.0000").start(
        {}, {"sweep": "later-1"}, None, {"started": now(), "provenance": {}}
    )
    RunRecords(filled_backend.store, "small", "byhand.0001").start(
        {}, {}, None, {"started": now(), "provenance": {}}
    )
    filled_backend.store.replace("reports/later-1.html", b"<p>")
    back_up(filled_backend.store, filled_backend.catalog, place_of(filled_backend))
    store, _ = restore_backup(place_of(filled_backend), tmp_path)
    assert store.names("runs/project=small") == ["byhand.0001", "small-1.0000"]
    assert store.names("reports") == ["small-1.html"]
    assert [attempt for attempt, *_ in read_points(store, "small-1.0000", "small")] == [1]
    add_attempt(store, 2)


def test_a_champion_promoted_after_the_dump_is_not_the_restored_stores_champion(
    filled_backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = backup_module.dump_catalog

    def dump_and_promote(*arguments: object) -> dict[str, int]:
        rows = dump(*arguments)  # type: ignore[arg-type]
        with filled_backend.catalog.write() as session:
            old = session.get_one(ModelVersionRow, ("small", "1.0.0"))
            old.stage = "archived"
            session.flush()
            add_version(session, model="small", version="1.0.1", stage="champion", updated=0, number=2)
            session.add(
                RegistryEventRow(model="small", version="1.0.1", kind="promoted", actor="test", at=utcnow())
            )
        assert publish(filled_backend.store, filled_backend.catalog) == []
        return rows

    assert publish(filled_backend.store, filled_backend.catalog) == []
    monkeypatch.setattr(backup_module, "dump_catalog", dump_and_promote)
    back_up(filled_backend.store, filled_backend.catalog, place_of(filled_backend))
    store, catalog = restore_backup(place_of(filled_backend), tmp_path)
    assert publish(store, catalog) == []
    assert json.loads(store.read("models/small/champion.json"))["version"]["version"] == "1.0.0"
    assert store.names("models/small") == ["1.0.0.json", "aliases.json", "champion.json"]


def test_a_store_with_files_of_models_alone_is_not_empty(filled_backend: Backend, tmp_path: Path) -> None:
    back_up(filled_backend.store, filled_backend.catalog, place_of(filled_backend))
    store, catalog = elsewhere(tmp_path)
    store.replace("models/small/champion.json", b"{}")
    with pytest.raises(InvalidInput, match=r"it has 1 files, such as models/small/champion\.json"):
        restore(place_of(filled_backend), store, lambda: catalog)


def test_when_retention_was_carried_out_is_in_no_backup_and_does_not_block_a_restore(
    filled_backend: Backend, tmp_path: Path
) -> None:
    own = ["retention/begun/2026-11-01", daily.LOG, "retention/last.json"]
    for name in own:
        filled_backend.store.create(name, b"old")
    filled_backend.store.create("retention/lost-sweeps.txt", b"lost-1")
    back_up(filled_backend.store, filled_backend.catalog, place_of(filled_backend))
    store, catalog = elsewhere(tmp_path)
    for name in own:
        store.create(name, b"new")
    with closing(catalog):
        restore(place_of(filled_backend), store, lambda: catalog)
    assert [store.read(name) for name in own] == [b"new"] * 3
    assert store.read("retention/lost-sweeps.txt") == b"lost-1"


def test_blobs_in_a_colder_place_are_backed_up_and_restored_into_the_store(
    filled_backend: Backend, tmp_path: Path
) -> None:
    store = filled_backend.store
    digest = store.put_blob(b"old")
    cold = add_cold_root(store, str(tmp_path / "cold"))
    cold.put_blob(b"old")
    store.delete(blob_name(digest))
    back_up(store, filled_backend.catalog, place_of(filled_backend))
    again, _ = restore_backup(place_of(filled_backend), tmp_path)
    assert again.get_blob(digest) == b"old"
    assert again.colder_places == []


def test_a_compaction_during_the_backup_loses_no_point(
    filled_backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from halving.maintenance.compaction import compact

    copied = backup_module._Copying._copy_file
    compacted = []

    def copy(self: object, file: tuple[str, int, float]) -> object:
        if "/live/" in file[0] and not compacted:
            compacted.append(compact(filled_backend.store, "small", "small-1.0000"))
        return copied(self, file)  # type: ignore[arg-type]

    monkeypatch.setattr(backup_module._Copying, "_copy_file", copy)
    back_up(filled_backend.store, filled_backend.catalog, place_of(filled_backend))
    assert compacted
    store, _ = restore_backup(place_of(filled_backend), tmp_path)
    assert len(read_points(store, "small-1.0000", "small")) == 1


def test_a_large_file_that_is_replaced_while_it_is_copied_is_copied_again(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.store.replace("notes/page.html", b"old")
    put = Store.put_hashed_blob
    replaced = []

    def replace(*arguments: object) -> None:
        if not replaced:
            replaced.append(backend.store.replace("notes/page.html", b"new"))
        put(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "put_hashed_blob", replace)
    monkeypatch.setattr(backup_module, "_MAX_IN_MEMORY", 0)
    back_up(backend.store, backend.catalog, place_of(backend))
    store, _ = restore_backup(place_of(backend), tmp_path)
    assert everything(store) == {"notes/page.html": b"new"}


def test_what_is_not_empty_is_refused_and_nothing_is_changed(filled_backend: Backend, tmp_path: Path) -> None:
    place = place_of(filled_backend)
    back_up(filled_backend.store, filled_backend.catalog, place)
    store, catalog = elsewhere(tmp_path)
    store.put_blob(b"mine")
    before = everything(store)
    with pytest.raises(InvalidInput, match="it has 1 files, such as artifacts/"):
        restore(place, store, lambda: catalog)
    assert everything(store) == before
    with pytest.raises(InvalidInput, match="it has 1 registered_models; give a catalog with nothing in it"):
        restore(place, Store(tmp_path / "other"), lambda: filled_backend.catalog)
    for inside in (f"{filled_backend.store.root}/backups", str(Path(filled_backend.store.root).parent)):
        with pytest.raises(InvalidInput, match="give a place for backups that is apart from the store"):
            back_up(filled_backend.store, filled_backend.catalog, Store(inside))
    with pytest.raises(NotFound, match=r"no backup in .*: halving backup"):
        restore(Store(tmp_path / "none"), Store(tmp_path / "third"), lambda: catalog)


def test_a_damaged_file_is_found_by_its_digest_before_the_catalog_is_loaded(
    filled_backend: Backend, tmp_path: Path
) -> None:
    place = place_of(filled_backend)
    manifest = back_up(filled_backend.store, filled_backend.catalog, place).manifest
    kept = unpack(place.read(f"backups/{manifest.id}/files.parquet"))["reports/small-1.html"]
    assert place.folder
    (place.folder / blob_name(kept.digest)).write_bytes(b"<b>")
    store, catalog = elsewhere(tmp_path)
    with pytest.raises(StoreError, match="is damaged"):
        restore(place, store, lambda: catalog)
    with catalog.read() as session:
        assert not session.scalars(select(SweepRow)).all()
    (place.folder / blob_name(kept.digest)).write_bytes(b"<p>")
    restore(place, store, lambda: catalog)  # goes on
    assert everything(store) == everything(filled_backend.store)


def test_a_backup_of_an_earlier_schema_is_upgraded_and_one_of_a_later_is_refused(
    filled_backend: Backend, tmp_path: Path
) -> None:
    place = place_of(filled_backend)
    manifest = back_up(filled_backend.store, filled_backend.catalog, place).manifest
    assert place.folder
    file = place.folder / "backups" / manifest.id / "manifest.json"
    later = {**json.loads(file.read_text()), "revision": "9999"}
    file.write_text(json.dumps(later))
    store, catalog = elsewhere(tmp_path)
    with pytest.raises(InvalidInput, match="schema 9999 is not accepted: this version knows"):
        restore(place, store, lambda: catalog)
    assert everything(store) == {}


def test_rows_of_an_earlier_schema_are_loaded_into_it_and_upgraded(catalog: Catalog, tmp_path: Path) -> None:
    import gzip

    from resources.upkeep.catalog_dump import load_catalog, revision_of

    dump = tmp_path / "catalog.jsonl.gz"
    with gzip.open(dump, "wt") as lines:
        lines.write(EARLIER_DUMP)
    newest = revision_of(catalog)
    assert load_catalog(catalog, dump, "0009") == {"snapshots": 1}
    assert revision_of(catalog) == newest
    with catalog.read() as session:
        assert catalog.snapshot(session, "sha256:s").recipe is not None, "a column of a later schema"
    command.check(catalog.alembic())


def test_backups_of_an_object_store_are_kept_in_one(s3: S3, backend: Backend, tmp_path: Path) -> None:
    store = Store(s3.root(secrets.token_hex(6)))
    place = Store(s3.root(secrets.token_hex(6)))
    digest = store.put_blob(b"weights")
    store.create("runs/project=p/r/record.json", b"{}")
    made = back_up(store, backend.catalog, place)
    assert (made.copied, back_up(store, backend.catalog, place).copied) == (2, 0)
    again, _ = restore_backup(place, tmp_path)
    assert again.get_blob(digest) == b"weights"
    assert everything(again) == everything(store)

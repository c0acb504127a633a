"""Runs that wait are compacted by any number of workers: each once, none forgotten, whoever is killed."""

import secrets
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select, update

from halving import Store, StoreError
from halving.maintenance.compaction import GRACE_SECONDS, Compacted, compact
from halving.metrics.manifest import read_manifest, run_files
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.catalog import Catalog, RunRow
from resources.upkeep import claims
from resources.upkeep.claims import (
    LATER_SECONDS,
    LEASE_SECONDS,
    MANY_SEGMENTS,
    claim,
    count_waiting,
    renew,
    settle,
)
from resources.upkeep.compaction import compact_waiting
from tests.s3 import S3
from tests.sdk.metric_files import read_points, write_segment


def add(store: Store, run: str, segments: int = 2, *, ended: bool = True, first: int = 0) -> None:
    """A run of the project ``p`` with so many segments of three points."""
    records = RunRecords(store, "p", run)
    if not first:
        records.start({}, {}, None, {"started": now(), "provenance": {}})
    for sequence in range(first, first + segments):
        write_segment(
            store,
            run,
            1,
            sequence,
            [("loss", 3 * sequence + step, 1_700_000_000_000, 0.5) for step in range(3)],
        )
    if ended:
        records.end(1, {"status": "finished", "summary": {"loss": 0.5}})


def index_runs(backend: Backend) -> Backend:
    Refresher(backend.store, backend.catalog).refresh()
    return backend


def later(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    then = catalog.now() + seconds
    monkeypatch.setattr(Catalog, "now", lambda _: then)


def rows(catalog: Catalog) -> dict[str, tuple[int, float]]:
    with catalog.read() as session:
        return {
            run: (segments, at)
            for run, segments, at in session.execute(select(RunRow.run, RunRow.segments, RunRow.compact_at))
        }


def test_the_index_knows_which_runs_wait_and_compacted_ones_do_not(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    add(store, "a")
    add(store, "none", segments=0)
    add(store, "few", ended=False)
    add(store, "many", MANY_SEGMENTS, ended=False)
    index_runs(either_backend)
    assert count_waiting(catalog) == 2, "one that still logs waits from many segments on"
    assert count_waiting(catalog, "another") == 0
    done = compact_waiting(store, catalog)
    assert (done.runs, done.points, done.failed) == (2, 3 * (2 + MANY_SEGMENTS), {})
    assert count_waiting(catalog) == 0
    assert compact_waiting(store, catalog).runs == 0
    assert rows(catalog)["a"][0] == 0
    add(store, "few", first=2)
    with catalog.write() as session:
        session.execute(update(RunRow).values(look_again=0.0))
    index_runs(either_backend)
    assert [claimed.run for claimed in claim(catalog, 9)] == ["few"], "it has ended since"


def test_what_a_killed_worker_had_is_claimed_again_though_the_clock_was_set_back(
    either_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = either_backend.catalog
    add(either_backend.store, "a")
    index_runs(either_backend)
    assert [claimed.run for claimed in claim(catalog, 9)] == ["a"]
    assert claim(catalog, 9) == []
    later(catalog, monkeypatch, -LATER_SECONDS)
    assert count_waiting(catalog) == 1
    assert [claimed.run for claimed in claim(catalog, 9)] == ["a"]
    assert claim(catalog, 9) == []


def test_a_process_whose_clock_lags_claims_nothing_that_was_put_off(
    either_backend: Backend, lagging: Catalog
) -> None:
    catalog = either_backend.catalog
    add(either_backend.store, "a")
    index_runs(either_backend)
    (claimed,) = claim(catalog, 9)
    settle(catalog, claimed, None)
    assert claim(lagging, 9) == []


def test_a_deleted_run_does_not_wait_until_it_is_restored(backend: Backend) -> None:
    add(backend.store, "a")
    index_runs(backend)
    for lifecycle, waiting in (("deleted", 0), ("active", 1)):
        with backend.catalog.write() as session:
            session.execute(update(RunRow).values(lifecycle=lifecycle))
        assert count_waiting(backend.catalog) == waiting


def test_runs_of_a_catalog_from_before_wait_until_they_have_been_looked_at(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    add(store, "compacted")
    compact(store, "p", "compacted")
    index_runs(either_backend)
    with catalog.write() as session:
        session.execute(update(RunRow).values(segments=-1))  # as the migration leaves it
    assert count_waiting(catalog) == 1
    assert compact_waiting(store, catalog).runs == 0
    assert count_waiting(catalog) == 0


def test_many_workers_share_the_runs_and_compact_each_once(either_backend: Backend, any_catalog: str) -> None:
    store = either_backend.store
    for number in range(30):
        add(store, f"r{number:02d}", 1)
    index_runs(either_backend)
    compactions: Counter[str] = Counter()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with closing(Catalog(any_catalog)) as catalog:
                compact_waiting(
                    store, catalog, at_once=3, on_run=lambda claimed, done: compactions.update([claimed.run])
                )
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert compactions == Counter({f"r{number:02d}": 1 for number in range(30)})
    assert all(read_manifest(store, "p", run).points == 3 for run in compactions)


def test_only_a_killed_workers_claims_are_claimed_again_when_the_lease_is_over(
    either_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    for run in ("lost", "kept"):
        add(store, run)
    index_runs(either_backend)
    lost, kept = sorted(claim(catalog, 9), key=lambda claimed: claimed.run, reverse=True)
    assert claim(catalog, 9) == []
    later(catalog, monkeypatch, LEASE_SECONDS - 1)
    renew(catalog, [kept])
    later(catalog, monkeypatch, 2)
    assert [claimed.run for claimed in claim(catalog, 9)] == ["lost"]
    settle(catalog, lost, compact(store, "p", "lost"))  # its first worker lives after all: no harm
    assert rows(catalog)["lost"][0] == 0


def test_segments_that_come_while_a_run_is_compacted_are_not_forgotten(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    add(store, "a")
    index_runs(either_backend)
    (claimed,) = claim(catalog, 9)
    done = compact(store, "p", "a")
    add(store, "a", first=2, ended=False)  # a journal that was recovered
    with catalog.write() as session:
        session.execute(update(RunRow).values(look_again=0.0))
    index_runs(either_backend)
    settle(catalog, claimed, done)
    assert compact_waiting(store, catalog).points == 6
    assert len(read_points(store, "a")) == 12


def test_a_run_that_fails_does_not_keep_the_others_and_is_tried_again_later(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backend.store
    catalog = backend.catalog
    for run in "ab":
        add(store, run)
    index_runs(backend)
    assert store.folder
    (store.folder / "metrics/project=p/run=a/live/0001-000001.parquet").write_bytes(b"damaged")
    done = compact_waiting(store, catalog)
    assert done.runs == 1
    assert list(done.failed) == ["p/a"]
    assert count_waiting(catalog) == 0
    later(catalog, monkeypatch, LATER_SECONDS + 1)
    assert [claimed.run for claimed in claim(catalog, 9)] == ["a"]


def test_segments_behind_a_gap_are_told_of_and_looked_at_again_later(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backend.store
    catalog = backend.catalog
    add(store, "a", 1)
    write_segment(store, "a", 1, 2, [("loss", 9, 1, 0.5)])
    index_runs(backend)
    assert [name.rpartition("/")[2] for name in compact_waiting(store, catalog).gaps.values()] == [
        "0001-000002.parquet"
    ]
    assert rows(catalog)["a"][0] == 1
    later(catalog, monkeypatch, LATER_SECONDS + 1)
    assert count_waiting(catalog) == 1


def test_an_object_stores_segments_are_deleted_after_the_grace_by_one_request(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(s3.root(secrets.token_hex(6)))
    catalog = Catalog(f"sqlite:///{tmp_path}/catalog.db")
    add(store, "a", 5)
    Refresher(store, catalog).refresh()
    assert compact_waiting(store, catalog).points == 15
    assert count_waiting(catalog) == 0
    assert len(run_files(store, "p", "a").stale) == 5
    later(catalog, monkeypatch, GRACE_SECONDS + 2)
    monkeypatch.setattr("halving.maintenance.compaction.GRACE_SECONDS", 0.0)
    deleted: list[str] = []
    monkeypatch.setattr(Store, "delete", lambda _, name: deleted.append(name))
    assert compact_waiting(store, catalog).cleaned == 1
    assert not deleted, "none by itself"
    assert not run_files(store, "p", "a").stale
    assert rows(catalog)["a"][0] == 0
    assert len(read_points(store, "a")) == 15
    catalog.close()


def test_a_worker_with_a_store_that_refuses_says_so_for_each_run(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(backend.store, "a")
    index_runs(backend)

    def refuse(*_: object, **__: object) -> Compacted:
        raise StoreError("no space left")

    monkeypatch.setattr("resources.upkeep.compaction.compact", refuse)
    assert compact_waiting(backend.store, backend.catalog).failed == {"p/a": "no space left"}
    assert claims.claim(backend.catalog, 1) == []

"""The index of runs is made again, whoever refreshes it, how many at once, and wherever one is killed."""

import subprocess
import sys
import threading
from contextlib import closing

import pytest
from alembic import command
from sqlalchemy import select

from halving.query import runs
from resources.analysis.run_index import Refresher
from resources.analysis.run_index.columns import select_columns
from resources.analysis.run_index.lease import LEASE_SECONDS, hold_lease, new_holder, release_lease
from resources.analysis.run_index.rebuild import mark_stale, rebuild
from resources.backend import Backend
from resources.catalog import Catalog, RunAttemptRow, RunRow, RunValueRow, utcnow
from tests.backends import CHECKOUT
from tests.indexed_runs import add_record, add_run, names


def test_a_rebuild_replaces_wrong_rows_and_readers_never_see_less(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    for run in "abc":
        add_run(store, run, {"lr": 1}, loss=[1.0])
    Refresher(store, catalog).refresh()
    with catalog.write() as session:
        for row in session.scalars(select(RunValueRow)):
            row.number = 7.0
        for run in session.scalars(select(RunRow)):
            run.status = "wrong"
    listings = []
    done = rebuild(store, catalog, lambda _: listings.append(names(catalog)))
    assert done.changed == 3
    assert all(len(listed) == 3 for listed in listings)
    assert names(catalog, "status = finished and params.lr = 1 and metrics.loss = 1") == ["c", "b", "a"]
    assert Refresher(store, catalog).refresh().looked == 0


def test_an_upgrade_reads_runs_again_for_what_they_held_and_readers_never_see_less(
    either_backend: Backend, any_catalog: str
) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    for run in "abc":
        add_record(store, run, {"lr": 1})
    Refresher(store, catalog).refresh()
    command.downgrade(catalog.alembic(), "0024")
    with closing(Catalog(any_catalog)) as upgraded:
        assert names(upgraded) == ["c", "b", "a"]
        done = Refresher(store, upgraded).refresh()
        assert (done.changed, done.complete) == (3, True)
        with upgraded.read() as session:
            assert len(session.scalars(select(RunAttemptRow)).all()) == 3
        assert Refresher(store, upgraded).refresh().looked == 0


def test_an_upgrade_makes_numbers_of_the_params_of_mlflows_clients(
    either_backend: Backend, any_catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    add_record(store, "theirs", {"lr": "1e-05", "amp": "True"}, parent={"tracked": {"tool": "mlflow"}})
    add_record(store, "ours", {"lr": "1e-05"})
    with monkeypatch.context() as patch:
        patch.setattr(runs, "typed_params", lambda params, parent: params)  # as it was before
        Refresher(store, catalog).refresh()
    assert names(catalog, "params.lr < 1") == []
    command.downgrade(catalog.alembic(), "0025")
    with closing(Catalog(any_catalog)) as upgraded:
        assert names(upgraded, "params.lr = '1e-05'") == ["ours", "theirs"]
        assert Refresher(store, upgraded).refresh().changed == 2
        assert names(upgraded, "params.lr < 1 and params.amp = true") == ["theirs"]
        assert names(upgraded, "params.lr = '1e-05'") == ["ours"]
        assert Refresher(store, upgraded).refresh().looked == 0


_REBUILD = """
import os, signal, sys
from halving import Store
from resources.analysis.run_index import refresh
from resources.analysis.run_index.rebuild import rebuild
from resources.catalog import Catalog
refresh._AT_ONCE = 2
looked = lambda done: os.kill(os.getpid(), signal.SIGKILL) if done.looked >= 4 else None
rebuild(Store(sys.argv[1]), Catalog(sys.argv[2]), looked)
"""


@pytest.mark.slow
def test_a_rebuild_that_is_killed_is_finished_by_the_next_refresh(
    either_backend: Backend, any_catalog: str
) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    for number in range(8):
        add_record(store, f"r{number}", {"lr": 1})
    Refresher(store, catalog).refresh()
    with catalog.write() as session:
        for row in session.scalars(select(RunValueRow)):
            row.number = 7.0
    killed = subprocess.run(
        [sys.executable, "-c", _REBUILD, store.root, any_catalog], cwd=CHECKOUT, check=False
    )
    assert killed.returncode == -9
    assert len(names(catalog)) == 8
    assert 0 < len(names(catalog, "params.lr = 7")) < 8
    Refresher(store, catalog).refresh()
    assert len(names(catalog, "params.lr = 1")) == 8


def test_two_that_refresh_at_once_leave_what_one_leaves(either_backend: Backend, any_catalog: str) -> None:
    store = either_backend.store
    for number in range(40):
        add_record(store, f"r{number}", {"lr": number, f"own{number}": 1}, loss=1.0)
    begin = threading.Barrier(3)
    failed = []

    def refresh() -> None:
        try:
            with closing(Catalog(any_catalog)) as own:
                begin.wait()
                Refresher(store, own).refresh()
                begin.wait()
                mark_stale(own)
                Refresher(store, own).refresh()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=refresh) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with either_backend.catalog.read() as session:
        assert len(session.scalars(select(RunRow)).all()) == 40
        assert len(session.scalars(select(RunValueRow)).all()) == 120
        assert {param["count"] for param in select_columns(session)["params"]} == {40, 1}


def test_one_of_several_processes_has_the_lease(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    now = utcnow().timestamp()
    monkeypatch.setattr(catalog, "now", lambda: now)
    assert hold_lease(catalog, "a")
    assert not hold_lease(catalog, "b")
    now += LEASE_SECONDS * 0.6
    assert hold_lease(catalog, "a")
    now += LEASE_SECONDS * 0.6
    assert not hold_lease(catalog, "b")
    now += LEASE_SECONDS
    assert hold_lease(catalog, "b")
    assert not hold_lease(catalog, "a")
    now -= 3600
    assert hold_lease(catalog, "a"), "the other was killed before the clock was set back"
    assert not hold_lease(catalog, "b")
    now -= 3600
    assert hold_lease(catalog, "a")
    assert not hold_lease(catalog, "b"), "it has renewed it"


def test_a_process_whose_clock_lags_takes_no_lease_that_is_held(catalog: Catalog, lagging: Catalog) -> None:
    assert hold_lease(catalog, "a")
    assert not hold_lease(lagging, "b")
    assert hold_lease(catalog, "a")


@pytest.mark.slow
def test_the_lease_is_free_at_once_when_its_holder_gives_it_up_or_was_killed(catalog: Catalog) -> None:
    living = new_holder()
    host, process, _ = living.split(":")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    assert hold_lease(catalog, living)
    release_lease(catalog, "another")
    assert not hold_lease(catalog, "another")
    release_lease(catalog, living)
    killed = f"{host}:{dead.pid}:abc"
    assert hold_lease(catalog, killed)
    assert hold_lease(catalog, living)
    assert not hold_lease(catalog, f"elsewhere:{process}:abc")

"""The index of runs follows the store: what is new, what is resumed, what is gone, and what cannot be
read.
"""

import math
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select, text

import halving
from resources.analysis.run_index import Refreshed, Refresher, write
from resources.analysis.run_index.entry import next_look
from resources.analysis.run_index.rebuild import rebuild
from resources.analysis.run_index.select import state_of
from resources.backend import Backend
from resources.catalog import Catalog, ModelVersionRow, RunIndexRow, RunRow, RunValueRow, TrialRow
from resources.sweep_spec import SweepSpec
from tests.backends import add_version
from tests.indexed_runs import Clock, add_record, add_run, names, record_of, revision, rows, with_trial


def test_a_run_is_in_the_index_as_it_is_in_the_store(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    params = {"lr": 0.1, "optimizer": {"name": "adam"}, "layers": [8, 4], "fast": True, "note": None}
    add_run(store, "a", params, loss=[3.0, 1.0, 2.0], rate=[math.nan, math.inf])
    done = Refresher(store, catalog).refresh()
    assert (done.runs, done.added, done.looked, done.complete) == (1, 1, 1, True)
    columns = (
        "params.lr,params.optimizer/name,params.layers,params.fast,params.note,"
        "metrics.loss,min(metrics.loss),max(metrics.loss)"
    )
    columns += ",best(metrics.loss),metrics.rate,min(metrics.rate)"
    (row,) = rows(catalog, "", columns)
    assert row["id"] == "digits/a"
    assert row["status"] == "finished"
    assert row["started"] < row["ended"]
    assert row["values"] == {
        "params.lr": 0.1,
        "params.optimizer/name": "adam",
        "params.layers": "[8, 4]",
        "params.fast": True,
        "metrics.loss": 2.0,
        "min(metrics.loss)": 1.0,
        "max(metrics.loss)": 3.0,
        "metrics.rate": math.inf,
    }


def test_values_that_a_database_does_not_take_do_not_keep_a_run_out(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    add_run(
        store,
        "a",
        {"nan": math.nan, "nul": "a\0b", "half": "\ud800", "long": "é" * 5000, "big": 10**400, "n" * 3000: 1},
        loss=[math.nan],
    )
    assert Refresher(store, catalog).refresh().problems == {}
    (row,) = rows(catalog, "", "params.nan,params.nul,params.half,params.long,params.big,metrics.loss")
    assert math.isnan(row["values"]["params.nan"])
    assert math.isnan(row["values"]["metrics.loss"])
    assert row["values"]["params.nul"] == "ab"
    assert row["values"]["params.half"] == "?"
    assert row["values"]["params.long"] == "é" * 600
    assert row["values"]["params.big"] == 10**400


def test_a_runs_number_may_need_more_than_32_bits(either_backend: Backend) -> None:
    """Postgres takes a number for each row that is put, also where the run is there already."""
    store = either_backend.store
    catalog = either_backend.catalog
    add_record(store, "a", {"lr": 1})
    Refresher(store, catalog).refresh()
    with catalog.write() as session:
        if catalog.engine.dialect.name == "postgresql":
            session.execute(text("SELECT setval(pg_get_serial_sequence('runs', 'id'), 5000000000)"))
        else:
            session.execute(text("UPDATE runs SET id = 5000000000"))
    add_record(store, "b", {"lr": 2})
    Refresher(store, catalog).refresh()
    with catalog.read() as session:
        assert session.scalars(select(RunValueRow.run_id).order_by(RunValueRow.run_id)).all()[-1] > 2**32
    assert names(catalog, "params.lr = 2") == ["b"]


def test_nothing_new_changes_nothing(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    clock = Clock()
    add_run(store, "a", loss=[1.0])
    refresher = Refresher(store, catalog, clock)
    refresher.refresh()
    before = revision(catalog)
    assert refresher.refresh().looked == 0
    clock.now += 1000
    done = refresher.refresh()
    assert (done.looked, done.changed) == (1, 0)
    assert revision(catalog) == before


def test_a_resumed_run_is_seen_when_it_is_looked_at_again(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    clock = Clock()
    add_run(store, "a", loss=[1.0])
    refresher = Refresher(store, catalog, clock)
    refresher.refresh()
    before = revision(catalog)
    add_run(store, "a", loss=[1.0, 0.5])
    clock.now += 11
    assert refresher.refresh().changed == 1
    (row,) = rows(catalog, "", "metrics.loss")
    assert (row["attempt"], row["values"]) == (2, {"metrics.loss": 0.5})
    assert revision(catalog) > before


def test_a_run_that_trains_is_seen_to_end(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    clock = Clock()
    opened = halving.init("digits", {}, store.root, id="a", system_metrics=None)
    refresher = Refresher(store, catalog, clock)
    refresher.refresh()
    assert names(catalog, "status = running") == ["a"]
    opened.log({"loss": 0.5}, step=0)
    opened.finish("stopped early")
    clock.now += 5
    refresher.refresh()
    assert names(catalog, "status = 'stopped early' and metrics.loss = 0.5") == ["a"]


def test_runs_are_looked_at_as_soon_as_ever_when_the_clock_was_set_back(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    clock = Clock()
    opened = halving.init("digits", {}, store.root, id="a", system_metrics=None)
    refresher = Refresher(store, catalog, clock)
    refresher.refresh()
    opened.finish("stopped early")
    clock.now -= 3600
    refresher.refresh()
    assert names(catalog, "status = running") == ["a"]
    clock.now += 5
    assert refresher.refresh().looked == 1
    assert names(catalog, "status = 'stopped early'") == ["a"]
    opened = halving.init("digits", {}, store.root, id="b", system_metrics=None)
    refresher.refresh()
    opened.finish("stopped early")
    clock.now -= 3600
    another = Refresher(store, catalog, clock)
    another.refresh()
    clock.now += 5
    another.refresh()
    assert names(catalog, "status = 'stopped early' order by run") == ["a", "b"]


def test_a_process_whose_clock_lags_brings_nothing_forward(either_backend: Backend, lagging: Catalog) -> None:
    Refresher(either_backend.store, either_backend.catalog).refresh()
    assert not write.bring_forward(lagging, lagging.now)


def test_runs_are_brought_forward_in_parts_and_another_process_goes_on_after_a_kill(
    either_backend: Backend, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    clock = Clock()
    for number in range(5):
        run = halving.init("digits", {}, store.root, id=str(number), system_metrics=None)
        request.addfinalizer(run.finish)
    Refresher(store, catalog, clock).refresh()
    clock.now -= 3600
    monkeypatch.setattr(write, "_AT_ONCE", 2)

    def looks() -> list[float]:
        with catalog.read() as session:
            return list(session.scalars(select(RunRow.look_again).order_by(RunRow.id)))

    def kill_in_the_second_part(row: dict[str, Any], now: float) -> float:
        if looks()[0] <= now + 60:
            raise KeyboardInterrupt
        return next_look(row, now)

    with monkeypatch.context() as killed:
        killed.setattr(write, "next_look", kill_in_the_second_part)
        with pytest.raises(KeyboardInterrupt):
            write.bring_forward(catalog, clock)
    brought = [look <= clock.now + 60 for look in looks()]
    assert brought == [True, True, False, False, False]
    first = looks()[0]
    clock.now += 2
    assert write.bring_forward(catalog, clock)
    assert looks() == [first, first, *[first + 2] * 3]
    assert not write.bring_forward(catalog, clock)
    assert not write.bring_forward(catalog, lambda: clock.now - 2)
    assert looks() == [first, first, *[first + 2] * 3]


def test_the_number_of_looks_at_a_run_grows_with_the_logarithm_of_its_age() -> None:
    row = {"status": "finished", "started": 0.0, "ended": 100.0, "seconds": 100.0}
    now = 100.0
    looks = 0
    while now < 30 * 86_400:
        now = next_look(row, now)
        looks = looks + 1
    assert looks < 150
    assert next_look({**row, "status": "running"}, 1e6) - 1e6 < 10


@pytest.mark.parametrize(
    ("age", "pause"), [(-5.0, 1.0), (0.0, 1.0), (2.0, 1.0), (5.0, 2.0), (10.0, 4.0), (1e6, 4.0)]
)
def test_a_run_that_has_just_begun_is_looked_at_by_every_refresh(age: float, pause: float) -> None:
    row = {"status": "running", "started": 1e6, "ended": None, "seconds": age}
    assert next_look(row, 1e6 + age) == 1e6 + age + pause


def test_a_trial_that_the_catalog_says_was_resumed_is_looked_at_at_once(
    either_backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    clock = Clock()
    sweep = with_trial(either_backend, small_spec())
    resumed = Refresher(store, catalog, clock)
    resumed.refresh()
    clock.now += 30 * 86_400
    resumed.refresh()
    clock.now += 1
    assert resumed.refresh().looked == 0
    with catalog.write() as session:
        trial = session.get_one(TrialRow, (sweep, 0))
        trial.status = "running"
        trial.attempt = 2
    assert resumed.refresh().looked == 1


def test_best_is_by_the_objective_of_the_sweep(
    either_backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    sweep = with_trial(either_backend, small_spec())
    Refresher(either_backend.store, either_backend.catalog).refresh()
    (row,) = rows(
        either_backend.catalog,
        f"sweep = {sweep} and trial = 0 order by best(metrics.score)",
        "best(metrics.score),best(metrics.other)",
    )
    assert row["values"] == {"best(metrics.score)": 0.9}


def test_a_model_version_and_its_stage_are_those_of_now(
    either_backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    sweep = with_trial(either_backend, small_spec())
    catalog = either_backend.catalog
    Refresher(either_backend.store, catalog).refresh()
    assert names(catalog, "stage is null") == [f"{sweep}.0000"]
    version = {
        "version": "1.0.0",
        "stage": "staging",
        "checkpoint": "c",
        "sweep": sweep,
        "trial": 0,
        "snapshot": "sha256:a",
    }
    with catalog.write() as session:
        add_version(session, model="small", run=f"{sweep}.0000", report="r", **version)
    with catalog.read() as session:
        before = state_of(session)
    assert names(catalog, "model like SMALL and stage = staging") == [f"{sweep}.0000"]
    with catalog.write() as session:
        session.get_one(ModelVersionRow, ("small", "1.0.0")).stage = "champion"
    (row,) = rows(catalog, "stage = champion")
    assert (row["model"], row["version"], row["stage"]) == ("small", "1.0.0", "champion")
    with catalog.read() as session:
        assert state_of(session) != before


def test_a_run_of_several_versions_is_shown_once_with_champion_or_newest_in_use(
    either_backend: Backend,
) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    add_run(store, "a")
    Refresher(store, catalog).refresh()
    for version, stage in (("1.0.0", "staging"), ("1.0.1", "staging"), ("1.0.2", "archived")):
        with catalog.write() as session:
            add_version(session, model="net", version=version, stage=stage, project="digits", run="a")
    with catalog.write() as session:
        add_version(session, model="other", version="1.0.0", stage="champion", project="elsewhere", run="a")
    (row,) = rows(catalog, "model = net")
    assert (row["id"], row["version"], row["stage"]) == ("digits/a", "1.0.1", "staging")
    with catalog.write() as session:
        session.get_one(ModelVersionRow, ("net", "1.0.0")).stage = "champion"
    (row,) = rows(catalog, "")
    assert (row["version"], row["stage"]) == ("1.0.0", "champion")


def test_a_run_that_is_deleted_from_the_store_leaves_nothing(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    for run in "ab":
        add_run(store, run, {"lr": 1}, loss=[1.0])
    Refresher(store, catalog).refresh()
    before = revision(catalog)
    shutil.rmtree(record_of(store, "a").parent)
    assert Refresher(store, catalog).refresh().deleted == 1
    assert names(catalog) == ["b"]
    assert revision(catalog) > before
    with catalog.read() as session:
        assert len(session.scalars(select(RunValueRow)).all()) == 2


def test_a_store_that_lists_no_runs_at_all_empties_no_index(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    add_run(backend.store, "a")
    Refresher(backend.store, backend.catalog).refresh()
    assert backend.store.folder is not None
    (backend.store.folder / "runs").rename(backend.store.folder / "away")
    assert Refresher(backend.store, backend.catalog).refresh().deleted == 0
    assert names(backend.catalog) == ["a"]
    assert "lists no runs at all: the index keeps its 1" in caplog.text


@pytest.mark.parametrize("damage", ["{", "[]", '{"project": "digits"}', "\0"])
def test_a_damaged_record_is_the_problem_of_one_run(backend: Backend, damage: str) -> None:
    store = backend.store
    clock = Clock()
    for run in "abc":
        add_run(store, run, loss=[1.0])
    whole = record_of(store, "b").read_text()
    record_of(store, "b").write_text(damage)
    refresher = Refresher(store, backend.catalog, clock)
    done = refresher.refresh()
    assert list(done.problems) == ["digits/b"]
    assert (done.added, done.complete) == (2, True)
    assert refresher.refresh().looked == 0  # not at every refresh
    record_of(store, "b").write_text(whole)
    clock.now += 6
    assert refresher.refresh().added == 1
    assert sorted(names(backend.catalog)) == ["a", "b", "c"]


def test_an_attempt_of_a_number_that_no_database_keeps_is_the_problem_of_its_run(
    either_backend: Backend,
) -> None:
    store = either_backend.store
    for run in "ab":
        add_run(store, run, loss=[1.0])
    record = record_of(store, "a")
    record.with_name("start-9999999999.json").write_text(record.read_text())
    done = Refresher(store, either_backend.catalog).refresh()
    assert (list(done.problems), done.added) == (["digits/a"], 1)
    assert names(either_backend.catalog) == ["b"]


def test_a_run_that_the_database_does_not_take_keeps_no_other_out(backend: Backend) -> None:
    store = backend.store
    catalog = backend.catalog
    clock = Clock()
    refresher = Refresher(store, catalog, clock)
    add_run(store, "b", score=[1.0])
    refresher.refresh()
    refused = (
        "CREATE TRIGGER refuse BEFORE INSERT ON runs WHEN new.run IN ('b', 'd') BEGIN SELECT RAISE(ABORT, "
        "'not this one'); END"
    )
    with catalog.write() as session:
        session.execute(text(refused))
    add_run(store, "b", score=[2.0])
    for run in "acd":
        add_record(store, run)
    clock.now += 1e6
    done = refresher.refresh()
    assert (sorted(done.problems), done.complete) == (["digits/b", "digits/d"], True)
    assert "not this one" in done.problems["digits/b"]
    assert sorted(names(catalog)) == ["a", "b", "c"]
    assert [row["values"]["metrics.score"] for row in rows(catalog, "run = b", "metrics.score")] == [1.0]
    assert refresher.refresh().looked == 0  # not at every refresh
    with catalog.write() as session:
        session.execute(text("DROP TRIGGER refuse"))
    clock.now += 1e6
    assert refresher.refresh().problems == {}
    assert sorted(names(catalog)) == ["a", "b", "c", "d"]
    assert [row["values"]["metrics.score"] for row in rows(catalog, "run = b", "metrics.score")] == [2.0]


def test_a_run_that_was_damaged_after_it_was_indexed_stays_as_it_was(backend: Backend) -> None:
    store = backend.store
    catalog = backend.catalog
    add_run(store, "a", loss=[1.0])
    add_run(store, "b", loss=[1.0])
    Refresher(store, catalog).refresh()
    record_of(store, "a").write_text("{")
    done = rebuild(store, catalog)
    assert (list(done.problems), done.changed, done.complete) == (["digits/a"], 1, True)
    assert sorted(names(catalog)) == ["a", "b"]
    assert Refresher(store, catalog).refresh().looked == 0


def test_a_folder_without_a_record_is_no_problem(backend: Backend) -> None:
    record_of(backend.store, "a").parent.mkdir(parents=True)
    record_of(backend.store, "not a name").parent.mkdir(parents=True)
    refresher = Refresher(backend.store, backend.catalog)
    assert refresher.refresh().problems == {}
    assert refresher.refresh().looked == 0


def test_a_refresh_ends_in_time_and_the_next_goes_on(backend: Backend) -> None:
    for number in range(70):
        record_of(backend.store, f"r{number}").parent.mkdir(parents=True)
    add_run(backend.store, "a")
    first = Refresher(backend.store, backend.catalog).refresh(0.0)
    assert (first.complete, first.left) == (False, 7)  # however short its time, something is looked at
    assert Refresher(backend.store, backend.catalog).refresh().complete
    assert names(backend.catalog) == ["a"]


def test_when_the_index_was_complete_is_known(backend: Backend) -> None:
    clock = Clock()
    assert isinstance(Refresher(backend.store, backend.catalog, clock).refresh(), Refreshed)
    with backend.catalog.read() as session:
        assert session.scalars(select(RunIndexRow)).one().refreshed_at == clock.now

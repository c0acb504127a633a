"""The index of runs follows the store, whoever refreshes it, and whatever happens to it."""

import math
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import insert, select, text

import halving
from halving import InvalidInput, Store
from halving.query.run_filter import InvalidFilter
from halving.query.run_filter_parser import parse_fields, parse_filter
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from resources.analysis.run_index import Refreshed, Refresher, select_names, select_page
from resources.analysis.run_index.columns import select_columns
from resources.analysis.run_index.entry import next_look
from resources.analysis.run_index.groups import select_groups
from resources.analysis.run_index.lease import LEASE_SECONDS, hold_lease
from resources.analysis.run_index.reading import reading
from resources.analysis.run_index.rebuild import mark_stale, rebuild
from resources.analysis.run_index.select import state_of
from resources.backend import Backend
from resources.catalog import Catalog, ModelVersionRow, RunIndexRow, RunNameRow, RunRow, RunValueRow, TrialRow, utcnow
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import CHECKOUT, snapshot_row


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = utcnow().timestamp()

    def __call__(self) -> float:
        return self.now


def add_run(store: Store, run: str, params: dict[str, Any] | None = None, *, project: str = "digits", **curves: list[float]) -> None:
    """A finished run, or another attempt at it, with a curve for each keyword."""
    opened = halving.init(project, params or {}, store.root, id=run, system_metrics=None)
    for key, values in curves.items():
        for step, value in enumerate(values):
            opened.log({key: value}, step=step)
    opened.finish()


def add_record(store: Store, run: str, params: dict[str, Any] | None = None, **last: float) -> None:
    """A finished run without points: its records alone, with a last value for each keyword. It takes a hundredth of the time."""
    records = RunRecords(store, "digits", run)
    records.start(params or {}, {}, None, {"started": now(), "provenance": {}})
    records.end(1, {"status": "finished", "summary": last})


def record_of(store: Store, run: str, project: str = "digits") -> Path:
    assert store.folder is not None
    return store.folder / "runs" / f"project={project}" / run / "record.json"


def rows(catalog: Catalog, text: str = "", columns: str = "") -> list[dict[str, Any]]:
    with catalog.read() as session:
        return select_page(session, parse_filter(text), columns=parse_fields(columns)).runs


def names(catalog: Catalog, text: str = "") -> list[str]:
    with catalog.read() as session:
        return [run for _, run in select_names(session, parse_filter(text))]


def revision(catalog: Catalog) -> int:
    with catalog.read() as session:
        return state_of(session).revision


def test_a_run_is_in_the_index_as_it_is_in_the_store(either_backend: Backend) -> None:
    store, catalog = either_backend.store, either_backend.catalog
    params = {"lr": 0.1, "optimizer": {"name": "adam"}, "layers": [8, 4], "fast": True, "note": None}
    add_run(store, "a", params, loss=[3.0, 1.0, 2.0], rate=[math.nan, math.inf])
    done = Refresher(store, catalog).refresh()
    assert (done.runs, done.added, done.looked, done.complete) == (1, 1, 1, True)
    columns = "params.lr,params.optimizer/name,params.layers,params.fast,params.note,metrics.loss,min(metrics.loss),max(metrics.loss)"
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
    store, catalog = either_backend.store, either_backend.catalog
    add_run(
        store, "a", {"nan": math.nan, "nul": "a\0b", "half": "\ud800", "long": "é" * 5000, "big": 10**400, "n" * 3000: 1}, loss=[math.nan]
    )
    assert Refresher(store, catalog).refresh().problems == {}
    (row,) = rows(catalog, "", "params.nan,params.nul,params.half,params.long,params.big,metrics.loss")
    assert math.isnan(row["values"]["params.nan"])
    assert math.isnan(row["values"]["metrics.loss"])
    assert row["values"]["params.nul"] == "ab"
    assert row["values"]["params.half"] == "?"
    assert row["values"]["params.long"] == "é" * 600
    assert row["values"]["params.big"] == str(10**400)


def test_a_runs_number_may_need_more_than_32_bits(either_backend: Backend) -> None:
    """Postgres takes a number for each row that is put, also where the run is there already."""
    store, catalog = either_backend.store, either_backend.catalog
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
    store, catalog, clock = either_backend.store, either_backend.catalog, Clock()
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
    store, catalog, clock = either_backend.store, either_backend.catalog, Clock()
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
    store, catalog, clock = either_backend.store, either_backend.catalog, Clock()
    opened = halving.init("digits", {}, store.root, id="a", system_metrics=None)
    refresher = Refresher(store, catalog, clock)
    refresher.refresh()
    assert names(catalog, "status = running") == ["a"]
    opened.log({"loss": 0.5}, step=0)
    opened.finish("stopped early")
    clock.now += 5
    refresher.refresh()
    assert names(catalog, "status = 'stopped early' and metrics.loss = 0.5") == ["a"]


def test_the_number_of_looks_at_a_run_grows_with_the_logarithm_of_its_age() -> None:
    row = {"status": "finished", "started": 0.0, "ended": 100.0, "seconds": 100.0}
    now, looks = 100.0, 0
    while now < 30 * 86_400:
        now, looks = next_look(row, now), looks + 1
    assert looks < 150
    assert next_look({**row, "status": "running"}, 1e6) - 1e6 < 10


def test_a_trial_that_the_catalog_says_was_resumed_is_looked_at_at_once(
    either_backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    store, catalog, clock = either_backend.store, either_backend.catalog, Clock()
    sweep = with_trial(either_backend, small_spec())
    resumed = Refresher(store, catalog, clock)
    resumed.refresh()
    clock.now += 30 * 86_400
    resumed.refresh()
    clock.now += 1
    assert resumed.refresh().looked == 0
    with catalog.write() as session:
        trial = session.get_one(TrialRow, (sweep, 0))
        trial.status, trial.attempt = "running", 2
    assert resumed.refresh().looked == 1


def with_trial(backend: Backend, spec: SweepSpec) -> str:
    """A sweep with one trial, whose run has ended; its id."""
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
    sweep = open_sweep(backend.catalog, spec, "sha256:a", driver="job", commit=None).id
    with backend.catalog.write() as session:
        session.add(TrialRow(sweep=sweep, number=0, params={}, status="paused", attempt=1))
    add_run(backend.store, f"{sweep}.0000", project=spec.name, score=[0.1, 0.9, 0.5], other=[1.0])
    record = record_of(backend.store, f"{sweep}.0000", spec.name)
    record.write_text(record.read_text().replace('"parent": {}', f'"parent": {{"sweep": "{sweep}", "trial": 0}}'))
    return sweep


def test_best_is_by_the_objective_of_the_sweep(either_backend: Backend, small_spec: Callable[..., SweepSpec]) -> None:
    sweep = with_trial(either_backend, small_spec())
    Refresher(either_backend.store, either_backend.catalog).refresh()
    (row,) = rows(
        either_backend.catalog, f"sweep = {sweep} and trial = 0 order by best(metrics.score)", "best(metrics.score),best(metrics.other)"
    )
    assert row["values"] == {"best(metrics.score)": 0.9}


def test_a_model_version_and_its_stage_are_those_of_now(either_backend: Backend, small_spec: Callable[..., SweepSpec]) -> None:
    sweep, catalog = with_trial(either_backend, small_spec()), either_backend.catalog
    Refresher(either_backend.store, catalog).refresh()
    assert names(catalog, "stage is null") == [f"{sweep}.0000"]
    given = {"version": "1.0.0", "stage": "staging", "checkpoint": "c", "sweep": sweep, "trial": 0, "snapshot": "sha256:a"}
    given |= {"framework": "python", "input_schema": {}, "output_schema": {}, "metrics": {}, "report": "r", "created_at": utcnow()}
    with catalog.write() as session:
        session.add(ModelVersionRow(model="small", run=f"{sweep}.0000", **given))
    with catalog.read() as session:
        before = state_of(session)
    assert names(catalog, "model like SMALL and stage = staging") == [f"{sweep}.0000"]
    with catalog.write() as session:
        session.get_one(ModelVersionRow, ("small", "1.0.0")).stage = "champion"
    (row,) = rows(catalog, "stage = champion")
    assert (row["model"], row["version"], row["stage"]) == ("small", "1.0.0", "champion")
    with catalog.read() as session:
        assert state_of(session) != before


def test_a_run_that_is_deleted_from_the_store_leaves_nothing(either_backend: Backend) -> None:
    store, catalog = either_backend.store, either_backend.catalog
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


def test_a_store_that_lists_no_runs_at_all_empties_no_index(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    add_run(backend.store, "a")
    Refresher(backend.store, backend.catalog).refresh()
    assert backend.store.folder is not None
    (backend.store.folder / "runs").rename(backend.store.folder / "away")
    assert Refresher(backend.store, backend.catalog).refresh().deleted == 0
    assert names(backend.catalog) == ["a"]
    assert "lists no runs at all: the index keeps its 1" in caplog.text


@pytest.mark.parametrize("damage", ["{", "[]", '{"project": "digits"}', "\0"])
def test_a_damaged_record_is_the_problem_of_one_run(backend: Backend, damage: str) -> None:
    store, clock = backend.store, Clock()
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


def test_a_run_that_was_damaged_after_it_was_indexed_stays_as_it_was(backend: Backend) -> None:
    store, catalog = backend.store, backend.catalog
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


def test_a_rebuild_replaces_wrong_rows_and_readers_never_see_less(either_backend: Backend) -> None:
    store, catalog = either_backend.store, either_backend.catalog
    for run in "abc":
        add_run(store, run, {"lr": 1}, loss=[1.0])
    Refresher(store, catalog).refresh()
    with catalog.write() as session:
        for row in session.scalars(select(RunValueRow)):
            row.number = 7.0
        for run in session.scalars(select(RunRow)):
            run.status = "wrong"
    seen = []
    done = rebuild(store, catalog, lambda _: seen.append(names(catalog)))
    assert done.changed == 3
    assert all(len(found) == 3 for found in seen)
    assert names(catalog, "status = finished and params.lr = 1 and metrics.loss = 1") == ["c", "b", "a"]
    assert Refresher(store, catalog).refresh().looked == 0


_REBUILD = """
import os, signal, sys
from halving import InvalidInput, Store
from halving.query.run_filter import InvalidFilter
from resources.analysis.run_index import refresh
from resources.analysis.run_index.reading import reading
from resources.analysis.run_index.rebuild import rebuild
from resources.catalog import Catalog
refresh._AT_ONCE = 2
looked = lambda done: os.kill(os.getpid(), signal.SIGKILL) if done.looked >= 4 else None
rebuild(Store(sys.argv[1]), Catalog(sys.argv[2]), looked)
"""


def test_a_rebuild_that_is_killed_is_finished_by_the_next_refresh(either_backend: Backend, any_catalog: str) -> None:
    store, catalog = either_backend.store, either_backend.catalog
    for number in range(8):
        add_record(store, f"r{number}", {"lr": 1})
    Refresher(store, catalog).refresh()
    with catalog.write() as session:
        for row in session.scalars(select(RunValueRow)):
            row.number = 7.0
    killed = subprocess.run([sys.executable, "-c", _REBUILD, store.root, any_catalog], cwd=CHECKOUT, check=False)
    assert killed.returncode == -9
    assert len(names(catalog)) == 8
    assert 0 < len(names(catalog, "params.lr = 7")) < 8
    Refresher(store, catalog).refresh()
    assert len(names(catalog, "params.lr = 1")) == 8


def test_two_that_refresh_at_once_leave_what_one_leaves(either_backend: Backend, any_catalog: str) -> None:
    store = either_backend.store
    for number in range(40):
        add_record(store, f"r{number}", {"lr": number, f"own{number}": 1}, loss=1.0)
    begin, failed = threading.Barrier(3), []

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
        assert {one["count"] for one in select_columns(session)["params"]} == {40, 1}


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


def test_groups_have_the_mean_and_deviation_that_numpy_has(either_backend: Backend) -> None:
    store, catalog = either_backend.store, either_backend.catalog
    source = np.random.default_rng(0)
    values: dict[str, list[float]] = {"adam": [], "sgd": []}
    for number in range(12):
        name, loss = ("adam", "sgd")[number % 2], 1e6 + float(source.normal())
        values[name].append(loss)
        add_record(store, f"r{number:02d}", {"optimizer": name, "fold": number}, loss=loss)
    add_record(store, "x", {"optimizer": 1}, loss=math.inf)
    add_record(store, "y", {"optimizer": True}, loss=1e200)
    add_record(store, "z", {"optimizer": math.nan}, loss=math.nan)
    add_record(store, "zz")
    Refresher(store, catalog).refresh()
    with catalog.read() as session:
        found = select_groups(
            session, parse_filter(""), parse_fields("params.optimizer"), columns=parse_fields("metrics.loss,params.nobody")
        )
        best = select_groups(session, parse_filter("order by metrics.loss limit 3"), parse_fields("status,project"))
        nobody = select_groups(
            session, parse_filter("status = x"), parse_fields("params.nobody,started"), columns=parse_fields("metrics.loss")
        )
        rest = select_groups(session, parse_filter("params.fold > 9"), parse_fields("params.nobody"), columns=parse_fields("metrics.loss"))
    for group, name in zip(found, ("adam", "sgd"), strict=False):
        assert (group["key"], group["count"]) == ({"params.optimizer": name}, 6)
        statistics = group["values"]["metrics.loss"]
        assert statistics["mean"] == pytest.approx(np.mean(values[name]), rel=1e-12)
        assert statistics["std"] == pytest.approx(np.std(values[name], ddof=1), rel=1e-6)
    assert [group["values"] for group in found[2:]] == [{}] * 4
    assert sorted(str(group["key"]["params.optimizer"]) for group in found[2:]) == ["1.0", "None", "True", "nan"]
    assert best == [{"key": {"status": "finished", "project": "digits"}, "count": 3, "values": {}}]
    assert nobody == []
    assert [(group["key"], group["count"]) for group in rest] == [({"params.nobody": None}, 2)]


def test_columns_are_what_runs_have_with_their_types(either_backend: Backend) -> None:
    store, catalog = either_backend.store, either_backend.catalog
    add_run(store, "a", {"lr": 0.1, "Lr_end": 1, "both": "x", "100%": 1}, loss=[1.0])
    add_run(store, "b", {"lr": 0.1, "both": 2, "flag": False}, project="text", acc=[1.0])
    Refresher(store, catalog).refresh()
    with catalog.read() as session:
        every, own = select_columns(session), select_columns(session, projects=["text"])
        assert [one["name"] for one in every["params"]] == ["both", "lr", "100%", "Lr_end", "flag"]
        assert every["params"][0] == {"name": "both", "count": 2, "type": "mixed"}
        assert [one["name"] for one in own["params"]] == ["both", "flag", "lr"]
        assert own["metrics"] == [{"name": "acc", "count": 1, "type": "number"}]
        begun = select_columns(session, prefix="params.LR")
        assert [one["name"] for one in begun["params"]] == ["lr", "Lr_end"]
        assert begun["fields"] == begun["metrics"] == []
        assert select_columns(session, prefix="%")["params"] == []
        assert [field["name"] for field in select_columns(session, prefix="st")["fields"]] == ["status", "started", "stage"]
        assert len(select_columns(session, limit=1)["params"]) == 1


def test_when_the_index_was_complete_is_known(backend: Backend) -> None:
    clock = Clock()
    assert isinstance(Refresher(backend.store, backend.catalog, clock).refresh(), Refreshed)
    with backend.catalog.read() as session:
        assert session.scalars(select(RunIndexRow)).one().refreshed_at == clock.now


def test_a_question_that_takes_too_long_is_ended_and_the_next_is_answered(catalog: Catalog) -> None:
    endless = text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT count(*) FROM n")
    with pytest.raises(InvalidInput, match=r"take longer than 0\.05 s"), reading(catalog, 0.05) as session:
        session.execute(endless)
    with reading(catalog, 0.05) as session:
        assert select_page(session, parse_filter("")).total == 0
    with catalog.read() as session:
        time.sleep(0.06)
        assert session.scalar(text("SELECT count(*) FROM runs")) == 0


def test_more_names_than_a_database_joins_are_refused_with_their_place(catalog: Catalog) -> None:
    with catalog.write() as session:
        session.execute(insert(RunNameRow), [{"kind": "params", "name": f"p{number}"} for number in range(70)])
    asked = " and ".join(f"params.p{number} = 1" for number in range(70))
    with (
        catalog.read() as session,
        pytest.raises(InvalidFilter, match=r"params\.p50 is not accepted: the catalog is asked for at most 50") as raised,
    ):
        select_page(session, parse_filter(asked))
    assert asked[raised.value.column - 1 :].startswith("params.p50 ")
    with catalog.read() as session:
        assert select_page(session, parse_filter(" and ".join(f"params.p{number} = 1" for number in range(50)))).total == 0

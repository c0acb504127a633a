"""Trials that their sweep stopped are stopped in the index, though their records say that they were
paused.
"""

from collections.abc import Callable

import pytest
from sqlalchemy import text, update

from halving.query.runs import list_runs
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from resources.analysis.run_index import Refresher
from resources.analysis.run_index.outcomes import _ended_runs, with_stopped_runs
from resources.analysis.run_index.rebuild import mark_stale, rebuild
from resources.analysis.training_run import training_run
from resources.backend import Backend
from resources.catalog import Catalog, SweepRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row
from tests.indexed_runs import Clock, names, revision, rows

Spec = Callable[..., SweepSpec]
CASES = [
    # its record, its trial, its sweep, and what the index says
    ("paused", "paused", "searching", "paused"),
    ("paused", "queued", "searching", "paused"),
    ("paused", "stopped", "searching", "stopped"),
    ("paused", "paused", "evaluating", "stopped"),
    ("paused", "paused", "finished", "stopped"),
    ("paused", "paused", "rejected", "stopped"),
    ("paused", "paused", "failed", "stopped"),
    ("paused", "stopped", "finished", "stopped"),
    ("paused", "queued", "finished", "stopped"),
    ("paused", "running", "finished", "paused"),
    ("paused", "completed", "finished", "paused"),
    ("finished", "completed", "finished", "finished"),
    ("failed", "failed", "finished", "failed"),
    ("crashed", "stopped", "finished", "crashed"),
    ("paused", None, "finished", "paused"),
    ("paused", None, None, "paused"),
]


def open_one(backend: Backend, spec: SweepSpec) -> str:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
    return open_sweep(backend.catalog, spec, "sha256:a", driver="job", commit=None).id


def add_trial(backend: Backend, sweep: str | None, number: int, record: str, status: str | None) -> None:
    """A trial and the record of its run, which ended."""
    parent = {} if sweep is None else {"sweep": sweep, "trial": number}
    if status is not None and sweep is not None:
        with backend.catalog.write() as session:
            session.add(TrialRow(sweep=sweep, number=number, params={}, status=status, attempt=1))
    records = RunRecords(backend.store, "digits", f"r{number}")
    records.start({}, parent, None, {"started": now(), "provenance": {}})
    records.end(1, {"status": record, "summary": {}})


def end(catalog: Catalog, sweep: str, status: str) -> None:
    with catalog.write() as session:
        session.execute(update(SweepRow).where(SweepRow.id == sweep).values(status=status))


@pytest.mark.parametrize(("record", "trial", "status", "expected"), CASES)
@pytest.mark.parametrize("ends", ["before", "after"])
def test_the_index_says_what_became_of_a_trial(
    backend: Backend,
    small_spec: Spec,
    ends: str,
    record: str,
    trial: str | None,
    status: str | None,
    expected: str,
) -> None:
    sweep = open_one(backend, small_spec())
    catalog = backend.catalog
    clock = Clock()
    add_trial(backend, sweep if status else None, 0, record, trial)
    refresher = Refresher(backend.store, catalog, clock)
    if ends == "after":
        refresher.refresh()
    end(catalog, sweep, status or "searching")
    refresher.refresh()
    assert rows(catalog)[0]["status"] == expected
    before = revision(catalog)
    clock.now += 1
    assert refresher.refresh().changed == 0
    clock.now += 86_400
    refresher.refresh()
    assert revision(catalog) == before, "it is decided once"
    rebuild(backend.store, catalog)
    assert rows(catalog)[0]["status"] == expected
    assert [run.status for run in with_stopped_runs(catalog, list_runs(backend.store))] == [expected], (
        "as halving runs lists it"
    )


def test_the_runs_of_a_sweep_that_ends_are_stopped_with_it_and_filters_find_them(
    either_backend: Backend, small_spec: Spec
) -> None:
    sweep = open_one(either_backend, small_spec())
    catalog = either_backend.catalog
    for number in range(5):
        add_trial(either_backend, sweep, number, "paused", "paused")
    refresher = Refresher(either_backend.store, catalog)
    assert refresher.refresh().added == 5
    assert len(names(catalog, "status = paused")) == 5
    before = revision(catalog)
    end(catalog, sweep, "evaluating")
    assert refresher.refresh().changed == 5
    assert revision(catalog) == before + 1
    assert len(names(catalog, "status = stopped")) == 5
    assert names(catalog, "status = paused") == []


def test_a_run_that_is_to_be_read_again_is_read_though_its_sweep_ends_before(
    either_backend: Backend, small_spec: Spec
) -> None:
    sweep = open_one(either_backend, small_spec())
    catalog = either_backend.catalog
    add_trial(either_backend, sweep, 0, "paused", "paused")
    refresher = Refresher(either_backend.store, catalog)
    refresher.refresh()
    mark_stale(catalog)
    end(catalog, sweep, "finished")
    assert refresher.refresh().looked == 1
    assert names(catalog, "status = stopped") == ["r0"]
    assert refresher.refresh().looked == 0


def test_a_trial_that_goes_on_is_running_again(either_backend: Backend, small_spec: Spec) -> None:
    sweep = open_one(either_backend, small_spec())
    catalog = either_backend.catalog
    add_trial(either_backend, sweep, 0, "paused", "paused")
    refresher = Refresher(either_backend.store, catalog)
    refresher.refresh()
    records = RunRecords(either_backend.store, "digits", "r0")
    records.start({}, {}, 2, {"started": now(), "provenance": {}})
    with catalog.write() as session:
        trial = session.get_one(TrialRow, (sweep, 0))
        trial.status = "running"
        trial.attempt = 2
    refresher.refresh()
    records.end(2, {"status": "finished", "summary": {}})
    end(catalog, sweep, "finished")
    rebuild(either_backend.store, catalog)
    assert rows(catalog)[0]["status"] == "finished"


@pytest.mark.parametrize(
    ("trial", "status", "expected"),
    [
        ("paused", "searching", "paused"),
        ("paused", "evaluating", "stopped"),
        ("paused", "finished", "stopped"),
        ("paused", "failed", "stopped"),
        ("stopped", "searching", "stopped"),
        ("queued", "searching", "waiting"),
        ("completed", "finished", "finished"),
        ("failed", "finished", "failed"),
    ],
)
def test_the_page_of_a_run_says_what_became_of_its_trial(
    backend: Backend, small_spec: Spec, trial: str, status: str, expected: str
) -> None:
    spec = small_spec()
    sweep = open_one(backend, spec)
    add_trial(backend, sweep, 0, "paused", trial)
    end(backend.catalog, sweep, status)
    assert training_run(backend.catalog, backend.store, spec.name, trial_key(sweep, 0)).status == expected


def test_what_has_paused_is_found_by_its_own_index(backend: Backend) -> None:
    catalog = backend.catalog
    query = str(_ended_runs().compile(catalog.engine, compile_kwargs={"literal_binds": True}))
    with catalog.write() as session:
        session.execute(text("ANALYZE"))
        plan = [row[-1] for row in session.execute(text(f"EXPLAIN QUERY PLAN {query}"))]
    assert any("runs_paused" in line for line in plan), plan

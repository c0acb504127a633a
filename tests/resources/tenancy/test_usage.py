"""What asking for a place takes of the database, and whom it holds up."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, select, text
from sqlalchemy.dialects import postgresql

from resources.backend import Backend
from resources.catalog import ProjectRow, TrialRow
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import HeldBack, Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from resources.tenancy import usage
from resources.tenancy.projects import set_project
from resources.tenancy.usage import ask_for_place
from tests.backends import snapshot_row

on_postgres = pytest.mark.parametrize("any_catalog", ["postgres"], indirect=True)


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    with either_backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return either_backend


@pytest.fixture
def new_sweep(backend: Backend, small_spec: Callable[..., SweepSpec]) -> Callable[[str], Scheduler]:
    def open_it(name: str) -> Scheduler:
        row = open_sweep(backend.catalog, small_spec(name=name), "sha256:s", driver="job", commit=None)
        return Scheduler(backend.catalog, row.id, retry_seconds=0)

    return open_it


@on_postgres
def test_who_is_held_back_neither_waits_for_those_who_get_places_nor_holds_them_up(
    backend: Backend, new_sweep: Callable[[str], Scheduler]
) -> None:
    """Another transaction has the lock and gives a place; the server refuses who waits for it."""
    set_project(backend.catalog, "*", max_trials=1)
    full = new_sweep("full")
    late = new_sweep("late")
    assert isinstance(full.next_work("w"), Assignment)
    assert isinstance(late.next_work("w"), HeldBack)

    def limit_waits(driver: Any, _: Any) -> None:
        driver.execute("SET lock_timeout = '50ms'")
        driver.commit()

    event.listen(backend.catalog.engine, "connect", limit_waits)
    backend.catalog.engine.dispose()
    with backend.catalog.write() as session:
        session.execute(select(ProjectRow).with_for_update())
        assert isinstance(late.next_work("w"), HeldBack)
    with backend.catalog.read() as session:
        assert backend.catalog.sweep(session, late.id).waiting


@on_postgres
def test_whoever_seems_to_have_a_turn_looks_again_when_it_has_the_lock(
    backend: Backend, new_sweep: Callable[[str], Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_project(backend.catalog, "*", max_trials=0)
    first = new_sweep("first")
    second = new_sweep("second")
    assert isinstance(second.next_work("w"), HeldBack)
    set_project(backend.catalog, "*", max_trials=1)
    looks = list[bool]()

    class TakenMeanwhile(usage._Request):
        def __init__(self, *arguments: Any, lock: bool) -> None:
            super().__init__(*arguments, lock=lock)
            looks.append(self.has_turn)
            if looks == [True]:
                assert isinstance(first.next_work("w"), Assignment)

    monkeypatch.setattr(usage, "_Request", TakenMeanwhile)
    assert isinstance(second.next_work("w"), HeldBack)
    assert looks == [True, True, False]


@on_postgres
def test_no_ended_trial_is_read_to_know_what_the_running_ones_hold(
    backend: Backend, new_sweep: Callable[[str], Scheduler]
) -> None:
    sweeps = [new_sweep(f"sweep-{number}") for number in range(20)]
    running = 25
    ended = 75
    with backend.catalog.write() as session:
        for scheduler in sweeps:
            statuses = ["running"] * running + ["paused"] * ended
            trials = [{"number": number, "status": status} for number, status in enumerate(statuses)]
            session.execute(
                insert(TrialRow), [{"sweep": scheduler.id, "params": {}, **trial} for trial in trials]
            )
    with backend.catalog.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
        query = usage._HELD_BY_INDEX.params(of_sweep=sweeps[0].id).compile(
            dialect=postgresql.dialect(),
            compile_kwargs={"literal_binds": True},
        )
        ((plan,),) = connection.execute(text(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}"))
    read = [node for node in _nodes(plan[0]["Plan"]) if node.get("Relation Name") == "trials"]
    rows = [
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in read
    ]
    assert sum(rows) == len(sweeps) * running


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for node in plan.get("Plans", []):
        yield from _nodes(node)


def test_asking_takes_as_many_statements_for_many_sweeps_as_for_one(
    backend: Backend, new_sweep: Callable[[str], Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_project(backend.catalog, "*", max_trials=1)
    counts = []
    rows = []
    together = usage.together

    def count_together(connection: Connection, statements: Any, **options: Any) -> Any:
        answers = [list(answer) for answer in together(connection, statements, **options)]
        counts.append(len(statements))
        rows.append([len(answer) for answer in answers])
        return iter(answers)

    monkeypatch.setattr(usage, "together", count_together)
    sweeps = [new_sweep(f"sweep-{number}") for number in range(8)]
    with backend.catalog.transaction() as connection:
        ask_for_place(connection, sweeps[0].id, 1, 0, backend.catalog.now(), "w", waits=False)
    assert set(counts) == {2}
    assert rows[-1] == [1, 8]

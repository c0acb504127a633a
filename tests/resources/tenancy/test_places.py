"""Places that projects share, with real sweeps: quotas hold, and who shares nothing pays nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, select

from halving.errors import InvalidInput, NotFound
from pipelines.sensors import hand_out
from resources.analysis.summary import summarize
from resources.analysis.trial_history import history_of
from resources.backend import Backend
from resources.catalog import Catalog, ProjectRow, TrialRow
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import HeldBack, Scheduler
from resources.scheduling.sweeps import open_sweep, pause_sweep
from resources.search.decide import Wait
from resources.search.state import Control, Status
from resources.sweep_spec import SweepSpec
from resources.tenancy.projects import list_projects, rename_project, set_project, show_project, unset_project
from tests.backends import snapshot_row
from tests.clock import Clock
from tests.postgres import Postgres
from tests.resources.tenancy.places import Open, complete, pause_at_its_rung, row_of, waits, work
from tests.waiting import wait_for

ONE_EPOCH: dict[str, Any] = {"strategy": {"random": {"budget": 1}}}


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    with either_backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return either_backend


@pytest.fixture
def new_sweep(backend: Backend, small_spec: Callable[..., SweepSpec], clock: Clock) -> Open:
    """Open a sweep of this name, by which it has a project unless another is given."""

    def open_it(name: str, places: int = 9, **changes: Any) -> Scheduler:
        row = open_sweep(
            backend.catalog, small_spec(name=name, **changes), "sha256:s", driver="sensors", commit=None
        )
        return Scheduler(backend.catalog, row.id, clock, places=lambda spec: places)

    return open_it


def test_a_sweep_alone_without_a_project_asks_the_catalog_for_nothing_more(
    backend: Backend, new_sweep: Open
) -> None:
    """A laptop's sweep reads itself and its news, and writes the trial, its attempt and the revision."""
    scheduler = new_sweep("small")
    work(scheduler)
    statements: list[str] = []
    event.listen(
        backend.catalog.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2])
    )
    work(scheduler)
    if backend.catalog.engine.dialect.name == "sqlite":
        # on Postgres what decides does not go through SQLAlchemy
        said = [
            " ".join(statement.split()[:3]) for statement in statements if not statement.startswith("BEGIN")
        ]
        assert [statement for statement in said if not statement.startswith("SELECT")] == [
            "INSERT INTO trials",
            "INSERT INTO attempts",
            "UPDATE sweeps SET",
        ]
        assert len(said) <= 7, said
    assert not any("asked_at=" in statement for statement in statements)


def test_a_projects_sweeps_hold_no_more_than_its_quota_and_say_what_they_wait_for(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    set_project(backend.catalog, "vision", max_trials=3)
    first = new_sweep("one", project="vision")
    second = new_sweep("two", project="vision")
    other = new_sweep("three")
    assignments = [work(first), work(second), work(first)]
    assert waits(second) == "project vision has 3 trials running, and max_trials = 3"
    clock.now += 1
    assert waits(first)
    assert summarize(backend.catalog, second.id).held_back == row_of(second).waiting
    work(other)
    pause_at_its_rung(first, assignments[0])
    assert isinstance(first.next_work("w"), Wait)  # it holds as many as the other, which has waited longer
    work(second)
    assert row_of(second).waiting is None


def test_a_quota_of_gpus_counts_those_of_all_nodes(backend: Backend, new_sweep: Open) -> None:
    set_project(backend.catalog, "vision", max_gpus=8)
    gangs = new_sweep(
        "gangs",
        project="vision",
        resources={"gpus": 2, "nodes": 2},
        image="registry.example/train:1",
        elastic={"min_nodes": 1},
    )
    large = new_sweep("large", project="vision", resources={"gpus": 16})
    work(gangs), work(gangs)
    assert waits(gangs) == "project vision holds 8 GPUs, its next trial needs 4, and max_gpus = 8"
    assert waits(large).startswith("its trials need 16 GPUs, and project vision has max_gpus = 8")
    (line,) = list_projects(backend.catalog)
    assert (line.trials, line.gpus, sorted(line.waiting)) == (2, 8, sorted([gangs.id, large.id]))


def test_a_sweep_goes_on_and_waits_for_nothing_once_its_project_is_unset(
    backend: Backend, new_sweep: Open
) -> None:
    set_project(backend.catalog, "vision", max_trials=0, owners=["ann"])
    set_project(backend.catalog, "*", max_trials=1)
    scheduler = new_sweep("one", project="vision")
    other = new_sweep("other")
    assert "max_trials = 0" in waits(scheduler)
    assert unset_project(backend.catalog, "*") == []
    assert row_of(scheduler).waiting, "its own project's quota still holds"
    assert unset_project(backend.catalog, "vision") == []
    assert row_of(scheduler).waiting is None
    assert show_project(backend.catalog, "vision").owners == []
    work(scheduler), work(other)
    with pytest.raises(NotFound, match="nothing was set for project 'vision'"):
        unset_project(backend.catalog, "vision")


def test_unsetting_a_project_while_a_sweep_asks_for_a_place_refuses_neither(
    postgres: Postgres, small_spec: Callable[..., SweepSpec]
) -> None:
    """Asking locks the sweep's row before those of projects; the other way round would be a deadlock."""
    url = postgres.database("taken_back")
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = "
        "'Lock'"
    )
    plain_url = url.replace("+psycopg", "")
    with closing(Catalog(url)) as catalog, closing(Catalog(url)) as other, ThreadPoolExecutor(1) as pool:
        with catalog.write() as session:
            session.add(snapshot_row("sha256:s"))
        set_project(catalog, "small", max_trials=0)
        scheduler = Scheduler(
            catalog,
            open_sweep(catalog, small_spec(), "sha256:s", driver="job", commit=None).id,
            places=lambda spec: 9,
        )
        assert waits(scheduler)
        with psycopg.connect(plain_url, autocommit=True) as looking, other.write() as session:
            other.sweep(session, scheduler.id, lock=True)
            taken_back = pool.submit(unset_project, catalog, "small")
            wait_for(
                lambda: looking.execute(waiting).fetchone() == (1,), 60, "the one that waits for the sweep"
            )
            assert session.scalars(select(ProjectRow).with_for_update()).all() == []
        assert taken_back.result(60) == []
        assert row_of(scheduler).waiting is None


def test_whoever_was_killed_while_taking_back_does_it_again(backend: Backend, new_sweep: Open) -> None:
    set_project(backend.catalog, "vision", max_trials=0)
    scheduler = new_sweep("one", project="vision")
    assert waits(scheduler)
    with backend.catalog.write() as session:  # as far as it came
        session.delete(session.get(ProjectRow, "vision"))
    with pytest.raises(NotFound, match="nothing was set for project 'vision'"):
        unset_project(backend.catalog, "vision")
    assert row_of(scheduler).waiting is None


def test_a_renamed_project_keeps_its_names_when_what_was_set_is_taken_back(
    backend: Backend, new_sweep: Open
) -> None:
    set_project(backend.catalog, "vision", max_trials=0, max_gpus=1, gpu_hours=1, weight=3, owners=["ann"])
    rename_project(backend.catalog, "vision", "sight")
    scheduler = new_sweep("one", project="vision")
    assert "max_trials = 0" in waits(scheduler)
    with pytest.raises(InvalidInput, match="project 'vision' is called 'sight' now"):
        unset_project(backend.catalog, "vision")
    assert unset_project(backend.catalog, "sight") == ["vision"]
    line = show_project(backend.catalog, "vision")
    assert (line.name, line.former_names, line.owners, line.weight) == ("sight", ["vision"], [], 1.0)
    assert (line.max_trials, line.max_gpus, line.gpu_hours) == (None, None, None)
    work(scheduler)
    assert row_of(scheduler).waiting is None


def test_a_quota_that_is_changed_while_trials_run_holds_for_what_is_started_next(
    backend: Backend, new_sweep: Open
) -> None:
    set_project(backend.catalog, "small", max_trials=2)
    scheduler = new_sweep("small")
    assignments = [work(scheduler), work(scheduler)]
    assert waits(scheduler)
    set_project(backend.catalog, "small", max_trials=1)
    assert scheduler.heartbeat(assignments[1]) is Control.RUN  # what runs runs on
    pause_at_its_rung(scheduler, assignments[0])
    assert waits(scheduler) == "project small has 1 trials running, and max_trials = 1"
    set_project(backend.catalog, "small", max_trials=None)
    work(scheduler)


def test_several_daemons_and_jobs_on_one_catalog_give_no_place_twice(
    backend: Backend, new_sweep: Open, small_spec: Callable[..., SweepSpec]
) -> None:
    set_project(backend.catalog, "vision", max_trials=5)
    set_project(backend.catalog, "*", max_trials=7)
    ids = [
        new_sweep(name, project=project).id
        for name, project in (("a", "vision"), ("b", "vision"), ("c", "nlp"))
    ]

    def daemon(number: int) -> list[tuple[str, int]]:
        with closing(Catalog(backend.catalog.url)) as catalog:
            schedulers = [Scheduler(catalog, sweep) for sweep in ids]
            answers = [scheduler.next_work(f"w{number}") for _ in range(4) for scheduler in schedulers]
        return [
            (assignment.sweep, assignment.trial)
            for assignment in answers
            if isinstance(assignment, Assignment)
        ]

    with ThreadPoolExecutor(4) as pool:
        trials = [trial for handed_out in pool.map(daemon, range(4)) for trial in handed_out]
    assert len(trials) == len(set(trials)) == 7
    assert sum(sweep in ids[:2] for sweep, _ in trials) <= 5


def test_an_important_sweep_gets_places_at_the_next_checkpoint_and_victims_go_on(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    set_project(backend.catalog, "*", max_trials=2)
    low = new_sweep("low", project="vision")
    high = new_sweep("high", project="vision", priority=5, places=1)
    kept = work(low)
    newest = work(low)
    assert waits(high)
    assert low.heartbeat(newest) is Control.RUN  # not at once
    clock.now += 31
    assert waits(high)
    assert (low.heartbeat(kept), low.heartbeat(newest)) == (Control.RUN, Control.YIELD)
    waits(high)
    assert low.heartbeat(kept) is Control.RUN  # one is on its way already
    low.release(newest, 3.0)
    assert waits(low)
    assert (history_of(backend.catalog, newest.key).waiting or "").startswith("for its project: ")
    taken = work(high)
    pause_at_its_rung(high, taken)
    pause_sweep(backend.catalog, high.id)  # it wants no more
    assert isinstance(high.next_work("w"), Wait)
    again = work(low)
    assert (again.trial, again.attempt, again.rung) == (newest.trial, 2, newest.rung)
    with backend.catalog.read() as session:
        trial = session.get_one(TrialRow, (low.id, again.trial))
        assert (trial.failures, trial.preemptions, trial.asked_back) == (0, 0, False)
    assert [attempt.outcome for attempt in history_of(backend.catalog, again.key).attempts] == [
        "requeue",
        None,
    ]
    assert low.heartbeat(again) is Control.RUN


def test_a_trial_that_needs_gpus_has_as_many_asked_back_as_the_newest_trials_hold(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    set_project(backend.catalog, "*", max_gpus=8)
    low = new_sweep("low", project="vision", resources={"gpus": {1: 1, 3: 6}})
    high = new_sweep("high", project="vision", priority=5, resources={"gpus": 2})
    assignments = [work(low) for _ in range(3)]
    with backend.catalog.write() as session:
        session.get_one(TrialRow, (low.id, assignments[0].trial)).gpus = 6  # as if it were at its next rung
    assert waits(high)
    clock.now += 31
    assert waits(high)
    assert [low.heartbeat(assignment) for assignment in assignments] == [
        Control.RUN,
        Control.YIELD,
        Control.YIELD,
    ]


def test_a_sweep_whose_driver_was_gone_has_not_waited_meanwhile(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    set_project(backend.catalog, "*", max_trials=1)
    low = new_sweep("low", project="vision")
    high = new_sweep("high", project="vision", priority=5)
    running = work(low)
    assert waits(high)
    clock.now += 36_000
    assert waits(high)
    assert low.heartbeat(running, 99_999.0) is Control.RUN
    clock.now += 31
    assert waits(high)
    assert low.heartbeat(running) is Control.YIELD


def test_what_no_run_has_claimed_gives_its_place_at_once(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    set_project(backend.catalog, "*", max_trials=2)
    low = new_sweep("low", project="vision", concurrency=2)
    high = new_sweep("high", project="vision", priority=5, places=1)
    assert len(hand_out(low)) == 2
    assert waits(high)
    clock.now += 31
    assert waits(high)
    (kept,) = hand_out(low)
    work(high)
    newest = low.state().trials[1 - kept.trial]
    assert (newest.status, newest.failures, newest.preemptions) == (Status.QUEUED, 0, 0)


def test_a_renamed_project_keeps_its_trials_and_quota_and_its_runs_stay_in_place(
    backend: Backend, new_sweep: Open
) -> None:
    set_project(backend.catalog, "vision", max_trials=2)
    before = new_sweep("before", project="vision")
    assignment = work(before)
    rename_project(backend.catalog, "vision", "perception")
    assert before.heartbeat(assignment) is Control.RUN
    after = new_sweep("after", project="perception")
    still = new_sweep("still", project="vision")
    work(after)
    assert waits(still) == waits(before) == "project perception has 2 trials running, and max_trials = 2"
    pause_at_its_rung(before, assignment)
    assert isinstance(still.next_work("w"), Assignment | Wait)
    assert row_of(before).project == before.spec.project == "vision"
    (line,) = list_projects(backend.catalog)
    assert (line.name, line.former_names, line.searching) == ("perception", ["vision"], 3)


def test_a_sweep_whose_worker_is_gone_keeps_no_place_from_the_others(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    set_project(backend.catalog, "*", max_trials=2)
    gone = new_sweep("gone")
    going = new_sweep("going")
    assignments = [work(going), work(going)]
    assert waits(gone)
    pause_at_its_rung(going, assignments[0])
    assert waits(going)  # the place is for the other, which asked a moment ago
    clock.now += 21
    work(going)


def test_a_sweep_whose_worker_is_gone_keeps_no_place_though_the_clock_was_set_back(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    set_project(backend.catalog, "*", max_trials=1)
    holder = new_sweep("holder", **ONE_EPOCH)
    waiting = new_sweep("waiting", **ONE_EPOCH)
    gone = new_sweep("a-gone", **ONE_EPOCH)
    assignment = work(holder)
    assert waits(gone)
    assert waits(waiting)
    clock.set_back()
    pause_sweep(backend.catalog, holder.id)
    holder.release(assignment, 1.0)
    work(waiting)


def test_who_waits_while_the_clock_is_set_back_says_so_anew_and_waits_from_then_on(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    set_project(backend.catalog, "*", max_trials=1)
    low = new_sweep("low", project="vision")
    high = new_sweep("high", project="vision", priority=5)
    running = work(low)
    assert waits(high)
    clock.set_back()
    assert waits(high)
    row = row_of(high)
    assert (row.asked_at, row.waiting_since, row.asking) == (clock.now, clock.now, {"w": clock.now})
    clock.now += 29
    assert waits(high)
    assert low.heartbeat(running) is Control.RUN
    clock.now += 1
    assert waits(high)
    assert low.heartbeat(running) is Control.YIELD


def test_a_slot_whose_worker_is_gone_counts_no_place_though_the_clock_was_set_back(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    set_project(backend.catalog, "*", max_trials=1)
    job = new_sweep("a-job", places=4, **ONE_EPOCH)
    other = new_sweep("other", **ONE_EPOCH)
    work(other)
    for worker in ("gone", "alive"):
        assert isinstance(job.next_work(worker), HeldBack)
    assert row_of(job).places == 2
    clock.set_back()
    assert isinstance(job.next_work("alive"), HeldBack)
    assert row_of(job).places == 1


def test_a_jobs_slots_that_no_worker_is_in_keep_no_place_from_the_others(
    backend: Backend, new_sweep: Open, clock: Clock
) -> None:
    """Three of four slots are gone or wait for a node, and their sweep still asks at every trial's end."""
    set_project(backend.catalog, "*", max_trials=4)
    job = new_sweep("a-job", places=4, max_trials=40, **ONE_EPOCH)
    other = new_sweep("other", places=4, max_trials=40, **ONE_EPOCH)
    running = work(other)
    for _ in range(3):
        complete(job, work(job, "alive"))
        clock.now += 1
    assignment = work(job, "alive")
    for _ in range(2):
        work(other)
    assert row_of(job).places == 1
    assert isinstance(job.next_work("another"), HeldBack)
    assert isinstance(job.next_work("third"), HeldBack)
    assert row_of(job).places == 3, "two more live, and ask"
    complete(other, running)
    assert waits(other), "the place is for one of them"
    clock.now += 21  # both are gone, the first one goes on
    complete(job, assignment)
    work(job, "alive")
    assert row_of(job).places == 1
    work(other)

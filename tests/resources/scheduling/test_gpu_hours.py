"""A sweep that would take too many GPU-hours is refused; one that has used them up is paused."""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from halving.errors import InvalidInput
from halving.trial.messages import ReachedRung
from pipelines.sensors import hand_out
from resources.analysis.summary import summarize
from resources.analysis.trial_list import trials_of
from resources.backend import Backend
from resources.catalog import AttemptRow, ProjectRow, SweepRow, utcnow
from resources.scheduling import gpu_hours
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.gpu_hours import check_gpu_hours, estimate_of, gpu_epochs
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import has_unfinished, open_sweep, pause_sweep, resume_sweep, stop_sweep
from resources.search.decide import Continue, Finish, Requeue, Wait
from resources.search.state import Control, Status
from resources.sweep_spec import SweepSpec
from resources.tenancy import gpu_hours as project_hours
from resources.tenancy.projects import rename_project, set_project
from tests.backends import snapshot_row
from tests.clock import Clock
from tests.searches import search

Spec = Callable[..., SweepSpec]
HOUR = 3600.0
GPU = {"gpus": 1}


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    return {"score": params["x"] * epochs}


def limit(backend: Backend, hours: float | None, project: str = "small") -> None:
    with backend.catalog.write() as session:
        session.execute(delete(ProjectRow))
        session.add(
            ProjectRow(
                name=project, owners=[], weight=1.0, gpu_hours=hours, former_names=[], created_at=utcnow()
            )
        )


def backdate_attempts(backend: Backend, hours: float) -> None:
    """Make all attempts that are held since so much earlier."""
    with backend.catalog.write() as session:
        session.execute(update(AttemptRow).values(held_since=utcnow() - timedelta(hours=hours)))


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_hours, "LOOK_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _mid_month(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hours that a test has used are this month's, also in its first hours."""
    year_2000 = utcnow().replace(year=2000, month=1, day=1)
    monkeypatch.setattr(project_hours, "month_of", lambda now: (year_2000, year_2000.replace(year=3000)))


@pytest.fixture
def backend(backend: Backend) -> Backend:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return backend


def open_scheduler(backend: Backend, spec: SweepSpec, driver: str = "job") -> Scheduler:
    return Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, "sha256:s", driver=driver, commit=None).id
    )


def next_assignment(scheduler: Scheduler, worker: str | None = "w") -> Assignment:
    assignment = scheduler.next_work(worker)
    assert isinstance(assignment, Assignment)
    return assignment


def test_an_estimate_has_what_early_stopping_leaves_with_the_gpus_of_each_rung(small_spec: Spec) -> None:
    halving = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 9, "reduction_factor": 3}}
    assert gpu_epochs(small_spec(strategy=halving, max_trials=9)) == 0.0
    assert gpu_epochs(small_spec(strategy=halving, max_trials=9, resources=GPU)) == pytest.approx(
        9 * 1 + 3 * 2 + 1 * 6
    )
    by_rung = {"gpus": {1: 1, 3: 2, 9: 4}}
    assert gpu_epochs(small_spec(strategy=halving, max_trials=9, resources=by_rung)) == pytest.approx(
        9 * 1 + 3 * 2 * 2 + 1 * 6 * 4
    )
    assert gpu_epochs(small_spec(strategy={"random": {"budget": 5}}, max_trials=4, resources=GPU)) == 20.0
    audited = {"asha": {**halving["asha"], "audit": 1.0}}
    assert gpu_epochs(small_spec(strategy=audited, max_trials=9, resources=GPU)) == pytest.approx(81.0)
    final = {"on": ["train"], "seeds": 2, "epochs": 3}
    assert (
        gpu_epochs(small_spec(strategy={"random": {"budget": 5}}, max_trials=4, resources=GPU, final=final))
        == 26.0
    )


def test_a_sweep_beyond_what_is_left_is_refused_with_how_that_was_computed(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(resources=GPU, strategy={"random": {"budget": 2}}, max_trials=2)
    limit(backend, 10.0)
    assert check_gpu_hours(backend.catalog, spec).estimate.gpu_hours is None, "nothing is known yet"
    sweep = search(backend, spec, score, seconds=HOUR)
    with backend.catalog.read() as session:
        estimate = estimate_of(session, spec)
    assert estimate.gpu_hours == pytest.approx(4.0)
    assert check_gpu_hours(backend.catalog, spec).estimate.gpu_hours == pytest.approx(4.0)
    larger = small_spec(resources=GPU, strategy={"random": {"budget": 2}}, max_trials=4)
    with pytest.raises(InvalidInput) as refused:
        check_gpu_hours(backend.catalog, larger)
    said = str(refused.value)
    assert said.startswith("max_trials = 4 is not accepted: the sweep would take about 8 GPU-hours")
    for part in (
        f"3.6e+03 s an epoch as in {sweep}",
        "project small has 6 of its 10 GPU-hours left",
        "renewed on",
        "halving projects set",
    ):
        assert part in said
    assert check_gpu_hours(backend.catalog, small_spec(max_trials=90)).estimate.gpu_hours == 0.0, (
        "one without GPUs may run"
    )
    limit(backend, 3.0)
    with pytest.raises(
        InvalidInput, match=r"resources.gpus = 1 is not accepted: project small has 0 of its 3 GPU-hours left"
    ):
        check_gpu_hours(backend.catalog, larger)
    limit(backend, None)
    check_gpu_hours(backend.catalog, larger)


def test_what_unfinished_sweeps_are_still_expected_to_take_is_not_promised_twice(
    backend: Backend, small_spec: Spec
) -> None:
    two_epochs = {"resources": GPU, "strategy": {"random": {"budget": 2}}}
    search(backend, small_spec(**two_epochs, max_trials=2), score, seconds=HOUR)  # an hour for an epoch
    limit(backend, 20.0)
    larger = small_spec(**two_epochs, max_trials=4)
    largest = small_spec(**two_epochs, max_trials=5)
    scheduler = open_scheduler(backend, larger)
    with pytest.raises(
        InvalidInput,
        match=r"has 16 of its 20 GPU-hours left this month, of which its unfinished sweeps .* take 8:",
    ):
        check_gpu_hours(backend.catalog, largest)
    check_gpu_hours(backend.catalog, larger)
    for _ in range(2):
        assignment = next_assignment(scheduler)
        scheduler.report_rung(assignment, ReachedRung(2, {"score": 1.0}, "sha256:c"), 2 * HOUR)
    with pytest.raises(
        InvalidInput,
        match=r"has 12 of its 20 GPU-hours left this month, of which its unfinished sweeps .* take 4:",
    ):
        check_gpu_hours(backend.catalog, largest)
    stop_sweep(backend.catalog, scheduler.id)
    check_gpu_hours(backend.catalog, largest)
    with backend.catalog.write() as session:  # one that goes on, of a version whose specs had other fields
        session.execute(
            update(SweepRow)
            .where(SweepRow.id == scheduler.id)
            .values(control=Control.RUN, spec={"searcher": "asha"})
        )
    check_gpu_hours(backend.catalog, largest)


def test_a_sweep_that_goes_on_is_not_refused_and_another_of_its_spec_is(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(resources=GPU)
    limit(backend, 0.0)

    def check(spec: SweepSpec, driver: str = "job", snapshot: str | None = None) -> None:
        check_gpu_hours(
            backend.catalog, spec, goes_on=has_unfinished(backend.catalog, spec, driver, snapshot)
        )

    sweep = open_scheduler(backend, spec).id
    for snapshot in (None, "sha256:s"):
        check(spec, snapshot=snapshot)
    for driver, snapshot in (("sensors", None), ("sensors", "sha256:s"), ("job", "sha256:other")):
        with pytest.raises(InvalidInput, match="has 0 of its 0 GPU-hours left"):
            check(spec, driver, snapshot)
    with pytest.raises(InvalidInput, match="has 0 of its 0 GPU-hours left"):
        check_gpu_hours(backend.catalog, spec)
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, sweep).spec_digest = "sha256:of an earlier version"
    check(spec)
    rename_project(backend.catalog, "small", "little")
    check(small_spec(resources=GPU, project="little", priority=3))
    set_project(backend.catalog, "other", gpu_hours=0.0)
    with pytest.raises(InvalidInput, match="project other has 0 of its 0 GPU-hours left"):
        check(small_spec(resources=GPU, project="other"))


def test_spent_hours_give_running_trials_back_and_new_ones_let_them_go_on(
    backend: Backend, small_spec: Spec
) -> None:
    scheduler = open_scheduler(backend, small_spec(resources=GPU, max_trials=4))
    limit(backend, 5.0)
    running = next_assignment(scheduler)
    assert scheduler.heartbeat(running) is Control.RUN
    backdate_attempts(backend, 6.0)
    scheduler.heartbeat(running)
    assert scheduler.heartbeat(running) is Control.YIELD, (
        "it ends its epoch, however long that is, saves a checkpoint and is given back"
    )
    pause_sweep(backend.catalog, scheduler.id)
    assert scheduler.heartbeat(running) is Control.PAUSE, "its user does not wait for that"
    resume_sweep(backend.catalog, scheduler.id)
    assert isinstance(scheduler.release(running, 6 * HOUR), Requeue)
    assert isinstance(scheduler.next_work("w"), Wait)
    summary = summarize(backend.catalog, scheduler.id)
    assert summary.control == "run", "that is what its user wants"
    assert str(summary.held_back).startswith("project small has used its 5 GPU-hours of ")
    assert "project small has used" in str(trials_of(backend.catalog, scheduler.id)[0].waiting)
    limit(backend, 100.0)
    again = next_assignment(scheduler)
    assert (again.trial, again.attempt) == (running.trial, 2), "where it was"
    assert summarize(backend.catalog, scheduler.id).held_back is None
    assert scheduler.heartbeat(again) is Control.RUN
    limit(backend, 5.5)  # the quota is lowered while a trial runs
    scheduler.heartbeat(again)
    assert scheduler.heartbeat(again) is Control.YIELD


def test_a_new_month_lets_a_paused_sweep_go_on(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = open_scheduler(backend, small_spec(resources=GPU))
    limit(backend, 1.0)
    scheduler.release(next_assignment(scheduler), 2 * HOUR)
    backdate_attempts(backend, 3.0)
    assert isinstance(scheduler.next_work("w"), Wait)
    ahead = utcnow() + timedelta(hours=1)
    monkeypatch.setattr(project_hours, "month_of", lambda now: (ahead, ahead.replace(year=3001)))
    next_assignment(scheduler)


def test_hours_that_turn_out_a_little_less_once_trials_have_ended_make_no_sweep_flap(
    backend: Backend, small_spec: Spec
) -> None:
    scheduler = open_scheduler(backend, small_spec(resources=GPU))
    limit(backend, 1.0)
    running = next_assignment(scheduler)
    backdate_attempts(backend, 1.001)
    assert isinstance(scheduler.next_work("another"), Wait)
    scheduler.release(running, 0.999 * HOUR)
    assert isinstance(scheduler.next_work("w"), Wait)


def test_what_waits_for_a_run_is_taken_back_and_a_run_that_comes_late_does_not_start(
    backend: Backend, small_spec: Spec
) -> None:
    scheduler = open_scheduler(backend, small_spec(resources=GPU), "sensors")
    next_assignment(scheduler, None)
    late = next_assignment(scheduler, None)
    limit(backend, 0.0)
    assert isinstance(scheduler.next_work(None), Wait)
    with pytest.raises(
        Superseded, match="its sweep is to pause, by its user or because its project's GPU-hours are used up"
    ):
        scheduler.claim(late.trial, "w")
    assert scheduler.unclaimed_attempts() == []


def test_an_unclaimed_attempt_is_no_crash_when_the_hours_run_out(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    scheduler = open_scheduler(
        backend, small_spec(resources=GPU, max_trials=4, concurrency=2, max_retries=0), "sensors"
    )
    refused, _ = hand_out(scheduler)
    limit(backend, 0.0)
    assert scheduler.heartbeat(refused) is Control.RUN  # it looks, and the next one is told
    assert scheduler.report_failed_launch(refused, "its run ended before it began to train: it was refused")
    given_back = [scheduler.state().trials[refused.trial]]
    limit(backend, 100.0)
    assert len(hand_out(scheduler)) == 2
    limit(backend, 0.0)
    assert hand_out(scheduler) == []
    given_back += scheduler.state().trials
    assert {(trial.status, trial.failures) for trial in given_back} == {(Status.QUEUED, 0)}


def test_a_stop_ends_a_sweep_without_hours_and_a_rung_that_is_reached_counts(
    backend: Backend, small_spec: Spec
) -> None:
    scheduler = open_scheduler(
        backend, small_spec(resources=GPU, strategy={"median": {"min_budget": 1, "max_budget": 9}})
    )
    running = next_assignment(scheduler)
    limit(backend, 0.0)
    scheduler.heartbeat(running)
    decision = scheduler.report_rung(running, ReachedRung(running.granted, {"score": 0.5}, "sha256:c"), 1.0)
    assert not isinstance(decision, Continue), "its attempt ends here"
    stop_sweep(backend.catalog, scheduler.id)
    assert isinstance(scheduler.next_work("w"), Finish)


def test_of_all_processes_of_a_sweep_one_looks_at_a_time(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_hours, "LOOK_SECONDS", 60.0)
    first = open_scheduler(backend, small_spec(resources=GPU))
    other = Scheduler(backend.catalog, first.id)
    next_assignment(first)
    began = time.time()
    with backend.catalog.read() as session:
        looked = session.scalar(select(SweepRow.gpu_hours_looked_at).where(SweepRow.id == first.id))
    assert looked is not None
    assert abs(looked - began) < 60
    limit(backend, 0.0)
    next_assignment(other)
    with backend.catalog.write() as session:
        session.execute(update(SweepRow).values(gpu_hours_looked_at=looked - 61))
    assert isinstance(Scheduler(backend.catalog, first.id).next_work("w"), Wait)


def test_a_spent_quota_pauses_at_the_next_look_though_the_clock_was_set_back(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """After a look by a fast clock, the next heartbeat looks again, by the catalog's time."""
    monkeypatch.setattr(backend.catalog, "now", clock)
    limit(backend, 100.0)
    first = open_scheduler(backend, small_spec(resources=GPU))
    assignment = next_assignment(first)
    limit(backend, 0.0)
    monkeypatch.setattr(gpu_hours, "LOOK_SECONDS", 15.0)
    assert Scheduler(backend.catalog, first.id).heartbeat(assignment) is Control.RUN, (
        "somebody has just looked"
    )
    clock.set_back()
    second = Scheduler(backend.catalog, first.id)
    second.heartbeat(assignment)
    assert second.heartbeat(assignment) is not Control.RUN
